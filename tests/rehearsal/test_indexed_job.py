"""Rehearsals of Ray as an Indexed Job: alone on each cloud, and in place of a running RayCluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Node
from rehearsal.scenario import RehearsalRequest, Scenario

JOB = {"mode": "indexed-job", "entrypoint": "torchrun /app/train.py"}
BUCKET = {"bucket": "data", "mountPath": "/bucket"}
RAY_KINDS = ("kubernetes:batch/v1:Job", "kubernetes:ray.io/v1:RayCluster", "kubernetes:helm.sh/v3:Release")


def stack_file(folder: Path, like: str, ray: dict[str, str], **settings: Any) -> Path:
    """Return a stack file with other settings, without protection, which saves a phase."""
    content = yaml.safe_load((ROOT / f"Pulumi.{like}.yaml").read_text(encoding="utf-8"))
    config = content["config"]
    config["rdma-ray:ray"] = config["rdma-ray:ray"] | ray
    config |= {f"rdma-ray:{key}": value for key, value in {"protect": False, **settings}.items()}
    file = folder / "Pulumi.job.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def ray_of(nodes: list[Node]) -> list[str]:
    """Return the Ray workloads and the operator."""
    found = [node for node in nodes if node.type in RAY_KINDS and node.name in ("ray", "kuberay")]
    return sorted(node.type.rpartition(":")[2] for node in found)


def test_job_stack_goes_up_and_down(fork_server: ForkServer, tmp_path: Path) -> None:
    storage = BUCKET | {"capacityGib": 1200}
    request = RehearsalRequest(stack="job", file=stack_file(tmp_path, "eks", JOB, storage=storage))
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert [phase.said for phase in outcome.phases if not phase.ok] == []
    assert outcome.leftovers == ()
    assert ray_of(outcome.graph.managed) == ["Job"]


def test_cluster_becomes_job_in_same_namespace(fork_server: ForkServer, tmp_path: Path) -> None:
    file = stack_file(tmp_path, "gke", {}, fabric="managed-dranet", storage=BUCKET)
    changes = tuple(f"ray.{key}={value}" for key, value in JOB.items())
    request = RehearsalRequest(stack="job", file=file, changes=changes)
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert [phase.said for phase in outcome.phases if not phase.ok] == []
    assert outcome.leftovers == ()
    ops = {(change.type.rpartition(":")[2], change.name): change.op for change in outcome.changes}
    assert ops[("Job", "ray")] == "create"
    assert {what for what, op in ops.items() if op == "delete"} == {
        ("RayCluster", "ray"),
        ("PodDisruptionBudget", "ray-head"),
        ("ServiceAccount", "ray-head"),
        ("Release", "kuberay"),
        ("KubeRay", "kuberay"),
        ("BucketAccess", "bucket-ray-head"),
        ("BucketIAMMember", "bucket-ray-head"),
    }
    assert not {"Namespace", "Secret", "RandomPassword", "ResourceClaimTemplate"} & {kind for kind, _ in ops}
