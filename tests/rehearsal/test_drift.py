"""The text that a person gets for each kind of drift: the real engine, program and event log on simulated clouds.

The texts are in `drift.md`, which a reviewer reads; `make golden` writes it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.settings import from_stack_file
from rehearsal import users_cluster
from rehearsal.clouds import registry
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.kubernetes import identity
from rehearsal.engine.commands import Engine
from rehearsal.engine.kind import Json
from rehearsal.engine.state import View
from rehearsal.engine.values import merged
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from tools.drift import PREVIEW, report
from tools.drift_events import CAUSES, Findings, findings

GOLDEN = Path(__file__).with_name("drift.md")
POOL, FIREWALL = "gcp:container/nodePool:NodePool", "gcp:compute/firewall:Firewall"
Events = Callable[[View], object]


def change(type_: str, changes: Json, name: str = "") -> Events:
    """Return an event that changes the only object of a type, of those with this text in the id."""

    def event(state: View) -> None:
        ((id_, live),) = [(id_, live) for _, id_, live in list(state.all(type_)) if name in id_]
        state.put(type_, id_, merged(live, changes))

    return event


def delete(type_: str, name: str = "") -> Events:
    """Return an event that deletes the objects of a type with this text in the id, and what is in them."""

    def event(state: View) -> None:
        every = [(id_, live) for _, id_, live in list(state.all(type_)) if name in id_]
        assert every
        for id_, _ in every:
            state.remove(type_, id_)
            if type_ == identity.NAMESPACE:
                for other, other_id, _ in list(state.all()):
                    if other.startswith("kubernetes:") and other_id.startswith(f"{id_}/"):
                        state.remove(other, other_id)

    return event


@dataclass(frozen=True)
class Drift:
    """Something that happens to a stack which is up; `acts`: what `up` does about it, by resource."""

    name: str
    stack: str
    event: Events
    acts: tuple[str, ...]


DRIFTS = (
    *(Drift("automatic changes", stack, registry.drift, ()) for stack in ("gke", "gke-dws", "eks", "kubernetes")),
    Drift(
        "a larger maximum, and a firewall rule that is open to the internet",
        "gke",
        lambda state: (
            change(POOL, {"autoscaling": {"totalMaxNodeCount": 9}}, "gpu")(state),
            change(FIREWALL, {"sourceRanges": ["0.0.0.0/0"]})(state),
        ),
        ("update NodePool pool-gpu", "update Firewall gvnic"),
    ),
    Drift(
        "a pool that a person made again, with nodes for an hour",
        "gke",
        change(POOL, {"nodeConfig": {"maxRunDuration": "3600s"}}, "gpu"),
        ("replace NodePool pool-gpu",),
    ),
    Drift("a firewall rule that is gone", "gke", delete(FIREWALL), ("create Firewall gvnic",)),
    Drift(
        "a token that a person wrote into its Secret",
        "gke",
        change(identity.SECRET, {"data": {"auth_token": "aHVudGVyMjpodW50ZXIy"}}),
        ("replace Secret ray-token",),
    ),
    Drift(
        "a size that a person set, while the autoscaler added a worker",
        "gke",
        lambda state: (
            registry.drift(state),
            change(identity.RAY_CLUSTER, {"spec": {"autoscalerOptions": {"idleTimeoutSeconds": 5}}})(state),
        ),
        ("update RayCluster ray",),
    ),
    Drift(
        "a network of the GPUs that a person made again, without jumbo frames",
        "gke",
        change(
            "gcp:compute/network:Network", {"networkProfile": "projects/my-project/global/networkProfiles/x"}, "rdma"
        ),
        ("replace Network rdma",),
    ),
    Drift("a cluster that is gone", "gke", delete("gcp:container/cluster:Cluster"), ("create Cluster cluster",)),
    Drift("a namespace that is gone", "gke", delete(identity.NAMESPACE, "ray"), ("create Namespace ray",)),
    Drift(
        "network access of everybody to the control plane",
        "eks",
        change(tokens.CLUSTER, {"vpcConfig": {"publicAccessCidrs": ["0.0.0.0/0"]}}),
        ("update Cluster cluster",),
    ),
    Drift(
        "an upgrade of the control plane",
        "eks",
        change(tokens.CLUSTER, {"version": "1.36"}),
        ("update Cluster cluster",),
    ),
)


@pytest.fixture(scope="module")
def read(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Drift], Findings]:
    """Return what `make drift` finds after a drift. Stacks are brought up once; a preview changes nothing."""
    engines: dict[str, Engine] = {}

    def run(drift: Drift) -> Findings:
        if drift.stack not in engines:
            workspace = Workspace(tmp_path_factory.mktemp("drift") / drift.stack, fork_server.bin)
            file = ROOT / f"Pulumi.{drift.stack}.yaml"
            settings = from_stack_file(file)
            engines[drift.stack] = Engine.deployed(
                workspace, drift.stack, file, lambda state: users_cluster.prepare(state, settings)
            )
        engine = engines[drift.stack]
        before = engine.workspace.cloud_state.with_suffix(".before")
        shutil.copyfile(engine.workspace.cloud_state, before)
        with engine.cloud_state.transaction() as state:
            drift.event(state)
        log = engine.workspace.folder / "events"
        log.unlink(missing_ok=True)
        said = engine.run(*PREVIEW, "--event-log", str(log), stack=True)
        shutil.copyfile(before, engine.workspace.cloud_state)
        found = findings(log.read_text().splitlines())
        assert said.ok is not found.failed, said.text
        return found

    return run


def texts() -> dict[str, str]:
    """Return the parts of the golden file by title."""
    _, *parts = re.split(
        r"^# (.+)\n", GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else "", flags=re.MULTILINE
    )
    return {title: part.strip() for title, part in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda each: f"{each.stack}: {each.name}")
def test_text_of_drift_matches_golden_list(drift: Drift, read: Callable[[Drift], Findings]) -> None:
    found = read(drift)
    assert {f"{each.action} {each.name}" for each in found.acted_on} >= set(drift.acts)
    assert bool(found.acted_on) is bool(drift.acts)
    text = report(drift.stack, found).strip()
    title = f"{drift.stack}: {drift.name}"
    known = texts()
    if os.environ.get("UPDATE_GOLDENS"):
        known[title] = text
        order = {f"{each.stack}: {each.name}": at for at, each in enumerate(DRIFTS)}
        kept = sorted((each for each in known if each in order), key=lambda each: order[each])
        GOLDEN.write_text("\n\n".join(f"# {each}\n{known[each]}" for each in kept) + "\n", encoding="utf-8")
    assert known.get(title) == text, f"{GOLDEN.name} differs; if that is meant: make golden"
    assert "hunter2" not in text
    assert "aHVudGVy" not in text


def test_every_cause_is_in_a_rehearsed_text() -> None:
    """A row that no simulated cloud ever does would be a guess."""
    text = GOLDEN.read_text(encoding="utf-8")
    assert [row["may"] for row in CAUSES if row["may"] not in text] == []
