"""Rehearsals on a cluster that the user has: changes, the check before the first object, and what stays the user's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.existing.workload import ray_args
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, from_stack_file
from rehearsal.clouds.kubernetes import identity
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph
from rehearsal.report.outcome import Outcome
from rehearsal.scenario import RehearsalRequest, Scenario
from rehearsal.users_cluster import prepare
from tests.unit.stacks import written

NAME = "kubernetes"
JOB = "ray.entrypoint=python /app/train.py"
CASES: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...], str]] = {
    "more nodes": ({"protect": True}, ("nodes.max=4",), "cluster"),
    "job": ({"installKuberay": True, "nodes.maxHours": 24}, ("ray.mode=job", JOB), "job"),
    "indexed-job": (
        {"ray.headCpus": None, "ray.headMemoryGib": None, "storage.claim": "shared"},
        ("ray.mode=indexed-job", JOB),
        "indexed-job",
    ),
    "service": (
        {"nodes.gpus": 1},
        ("service.application=app:app", "service.deployment=App", "ray.mode=service"),
        "service",
    ),
    "queue": (
        {},
        (
            *("queue=kueue", "localQueue=team-queue", "storage.claim=shared", "ray.serviceAccount=training"),
            *("ray.volumes[0]=datasets=/datasets", "ray.secrets[0]=huggingface", "ray.priorityClass=training"),
        ),
        "cluster",
    ),
}
"""For each name, other settings of the stack file, a change of them, and ray.mode after it."""


def stack_file(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write the stack file with other settings."""
    # Without protection, which saves a phase.
    return written(NAME, {"protect": False, **settings}, folder)


def settings_of(file: Path, changes: tuple[str, ...] = ()) -> KubernetesSettings:
    """Return the settings of a stack file with changes of the command line."""
    values: dict[str, Any] = {}
    for path, _, value in (each.partition("=") for each in changes):
        values |= {path.removesuffix("[0]"): [value]} if path.endswith("[0]") else {path: value}
    settings = from_stack_file(file, values)
    assert isinstance(settings, KubernetesSettings)
    return settings


def tried(settings: KubernetesSettings) -> set[tuple[str, str]]:
    """Return kind and name of every object that the check creates as a dry run."""
    return {(each["kind"], each["metadata"]["name"]) for each in every_object(ray_args(settings, f"{NAME}-ray"))}


def registered(graph: Graph) -> set[tuple[str, str]]:
    """Return kind and name of every object of a stack."""
    nodes = [node for node in graph.managed if node.type.startswith("kubernetes:") and "Release" not in node.type]
    return {(node.inputs["kind"], node.inputs["metadata"]["name"]) for node in nodes}


@pytest.mark.parametrize("name", CASES)
def test_change_is_rehearsed_and_every_object_was_tried(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    given, changes, mode = CASES[name]
    file = stack_file(tmp_path, given)
    request = RehearsalRequest(stack=NAME, file=file, changes=changes)
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    outcome: Outcome = Scenario(request, workspace, lambda _name, _phase: None).run()
    assert [phase.said for phase in outcome.phases if not phase.ok] == []
    assert outcome.ok
    assert outcome.graph_before is not None
    before, after = settings_of(file), settings_of(file, changes)
    assert (before.ray.mode, after.ray.mode) == ("cluster", mode)
    assert registered(outcome.graph_before) == tried(before)
    assert registered(outcome.graph) == tried(after)
    ops = {change.op for change in outcome.changes}
    assert (ops == {"update"}) is (name == "more nodes")


@pytest.fixture
def engine(fork_server: ForkServer, tmp_path: Path) -> Engine:
    """A stack that is not up."""
    file = stack_file(tmp_path, {"ray.secrets": ["huggingface"]})
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    workspace.begin(NAME, file)
    engine = Engine(workspace, NAME)
    with engine.cloud_state.transaction() as state:
        prepare(state, from_stack_file(file))
    engine.init()
    return engine


def test_missing_namespace_ends_the_first_preview_and_up_and_nothing_of_the_users_is_deleted(engine: Engine) -> None:
    users = engine.objects()
    with engine.cloud_state.transaction() as state:
        namespace = state.get(identity.NAMESPACE, "ray") or {}
        state.remove(identity.NAMESPACE, "ray")
    for said in (engine.run("preview", stack=True), engine.up()):
        assert not said.ok
        text = " ".join(said.text.split())
        assert "Cluster rdma-ray, for stack kubernetes, has 1 problem; nothing was created" in text
        assert "The cluster has no such namespace. Fix: kubectl create namespace ray" in text
        assert engine.steps() == []
        assert "Traceback" not in text
    with engine.cloud_state.transaction() as state:
        state.put(identity.NAMESPACE, "ray", namespace)
    assert engine.up().ok
    assert users < engine.objects()
    assert engine.destroy().ok
    assert engine.objects() == users


def test_every_problem_is_reported_at_once(engine: Engine) -> None:
    policy = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
    with engine.cloud_state.transaction() as state:
        state.remove(identity.DEFINITION, "rayclusters.ray.io")
        state.remove(identity.SECRET, "ray/huggingface")
        for type_, id_, live in list(state.all(identity.NODE)):
            state.put(type_, id_, {**live, "status": {"allocatable": {"cpu": "1500m", "memory": "64Gi"}}})
        metadata = {"name": "kubernetes-ray-ingress", "namespace": "ray", "labels": {"rdma-ray/stack": "other"}}
        state.put(policy, "ray/kubernetes-ray-ingress", {"metadata": metadata})
    before, said = engine.objects(), engine.run("preview", stack=True)
    assert not said.ok
    text = " ".join(said.text.split())
    for words in (
        "has 4 problems; nothing was created",
        "The cluster has no KubeRay: it does not serve ray.io/v1",
        "There is no Secret huggingface",
        "has room for a worker: cpu 2 (at most 1500m)",
        "There is a NetworkPolicy kubernetes-ray-ingress, of the stack other, and this stack would overwrite it",
    ):
        assert words in text
    assert engine.steps() == []
    assert engine.objects() == before
