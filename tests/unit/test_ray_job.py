"""The spec of a RayJob, and the entry point of the sample stack."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import RAY_API
from infra.eks.stack import ray_args as eks_ray_args
from infra.gke.stack import ray_args as gke_ray_args
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.ray_cluster import ray_job_spec
from infra.settings import GkeSettings, LocalSettings, from_stack_file, parse
from rehearsal.clouds.kubernetes.custom_shapes import custom
from rehearsal.clouds.kubernetes.identity import Api
from rehearsal.clouds.kubernetes.shapes import misfits
from tests.unit.stacks import EKS, GKE, changed
from workloads.nccl.options import BenchOptions

ROOT = Path(__file__).resolve().parents[2]
JOB: dict[str, Any] = {"ray.mode": "job", "ray.entrypoint": "python /app/train.py"}


def args_of(stack: dict[str, Any], changes: dict[str, Any] | None = None) -> RayArgs:
    settings = parse(changed(stack, {**JOB, **(changes or {})}))
    assert not isinstance(settings, LocalSettings)
    if isinstance(settings, GkeSettings):
        return gke_ray_args(settings, "a3u-ray")
    return eks_ray_args(settings, "p5-ray")


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
def test_spec_matches_the_schema(stack: dict[str, Any]) -> None:
    known = custom(Api("ray.io", "v1", "RayJob"))
    assert known is not None
    spec = ray_job_spec(args_of(stack))
    body = {"apiVersion": RAY_API, "kind": "RayJob", "metadata": {"name": "a"}}
    assert list(misfits(known[0], {**body, "spec": spec})) == []
    assert list(misfits(known[0], {**body, "spec": {**spec, "ttlSecondsAfterFinish": 1}}))


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
def test_cluster_has_a_fixed_size_one_gpu_group_and_a_token(stack: dict[str, Any]) -> None:
    args = args_of(stack, {"nodes.max": 3})
    spec = ray_job_spec(args)
    cluster = spec["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in cluster
    (group,) = cluster["workerGroupSpecs"]
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]
    assert "idleTimeoutSeconds" not in group
    assert group["groupName"] != "head"
    assert cluster["authOptions"] == {"mode": "token", "secretName": args.token_secret}
    for one in (cluster["headGroupSpec"], group):
        assert one["template"]["metadata"]["labels"] == args.labels
        (container,) = one["template"]["spec"]["containers"]
        assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} <= {variable["name"] for variable in container["env"]}
    assert "suspend" not in spec


def test_job_releases_its_nodes_and_waits_for_them_as_long_as_the_capacity_may_take() -> None:
    spec = ray_job_spec(args_of(GKE))
    assert (spec["submissionMode"], spec["shutdownAfterJobFinishes"], spec["backoffLimit"]) == ("HTTPMode", True, 0)
    assert 0 < spec["ttlSecondsAfterFinished"] <= 600
    assert spec["preRunningDeadlineSeconds"] == 168 * 3600
    assert "activeDeadlineSeconds" not in spec
    reserved = {"nodes.capacity": "reservation", "nodes.reservation": "ours"}
    assert ray_job_spec(args_of(GKE, reserved))["preRunningDeadlineSeconds"] == 3600


def test_queued_job_holds_no_node_longer_than_its_quota() -> None:
    """Kueue's webhook requires the first, and Kueue frees the quota at the end regardless of the second."""
    spec = ray_job_spec(args_of(GKE, {"queue": "kueue"}))
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 0)
    assert "deletionStrategy" not in spec


def test_entry_point_of_the_sample_stack_is_a_benchmark_on_all_its_nodes() -> None:
    settings = from_stack_file(ROOT / "Pulumi.gke-dws.yaml")
    assert isinstance(settings, GkeSettings)
    python, dash_m, module, said = shlex.split(str(settings.ray.entrypoint))
    assert (python, dash_m, module) == ("python", "-m", "workloads.nccl.driver")
    spec = BenchOptions.from_json(said)
    assert (spec.nodes, spec.per_node, spec.machine) == (settings.ray.max_workers, 8, settings.nodes.machine)
    assert spec.target == settings.target
