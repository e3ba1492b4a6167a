"""Rehearsal of Ray as an Indexed Job in place of a running RayCluster."""

from __future__ import annotations

from pathlib import Path

import yaml

from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario

JOB = {"mode": "indexed-job", "entrypoint": "python /app/train.py"}


def test_cluster_becomes_job_in_same_namespace(fork_server: ForkServer, tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "Pulumi.gke.yaml").read_text(encoding="utf-8"))
    # Without protection, which saves a phase.
    settings = {"protect": False, "fabric": "managed-dranet", "storage": {"bucket": "data", "mountPath": "/bucket"}}
    content["config"] |= {f"rdma-ray:{key}": value for key, value in settings.items()}
    file = tmp_path / "Pulumi.job.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
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
        ("ClusterRole", "ray-nodes"),
        ("ClusterRoleBinding", "ray-nodes"),
        ("Release", "kuberay"),
        ("KubeRay", "kuberay"),
        ("BucketAccess", "bucket-ray-head"),
        ("BucketIAMMember", "bucket-ray-head"),
    }
    assert not {"Namespace", "Secret", "RandomPassword", "ResourceClaimTemplate"} & {kind for kind, _ in ops}
