"""The spec of a RayJob, and the sample stack's own entry point."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.machines import eks_machine, gke_machine
from infra.catalog.pins import RAY_API
from infra.eks.names import EksNames
from infra.eks.ray import cloud_side as on_eks
from infra.gke.names import GkeNames
from infra.gke.ray import cloud_side as on_gke
from infra.kubernetes.ray_job_manifest import RayJobShape, job_labels, ray_job
from infra.kubernetes.workload_shape import ray_job_shape
from infra.settings import GkeSettings, LocalSettings, from_stack_file, parse
from rehearsal.clouds.kubernetes.custom_shapes import custom
from rehearsal.clouds.kubernetes.identity import Api
from rehearsal.clouds.kubernetes.shapes import misfits
from tests.unit.stacks import EKS, GKE, changed
from workloads.nccl.options import BenchOptions

ROOT = Path(__file__).resolve().parents[2]
JOB: dict[str, Any] = {"ray.mode": "job", "ray.entrypoint": "python /app/train.py"}


def shape_of(stack: dict[str, Any], changes: dict[str, Any] | None = None) -> RayJobShape:
    settings = parse(changed(stack, {**JOB, **(changes or {})}))
    assert not isinstance(settings, LocalSettings)
    if isinstance(settings, GkeSettings):
        side = on_gke(settings, gke_machine(settings.nodes.machine), GkeNames("a3u"), None)
    else:
        side = on_eks(settings, eks_machine(settings.nodes.machine), EksNames("p5", "us-east-1"), None)
    return ray_job_shape(settings, side)


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
def test_it_has_the_shape_of_its_kind(stack: dict[str, Any]) -> None:
    known = custom(Api("ray.io", "v1", "RayJob"))
    assert known is not None
    spec = ray_job(shape_of(stack))
    body = {"apiVersion": RAY_API, "kind": "RayJob", "metadata": {"name": "a"}}
    assert list(misfits(known[0], {**body, "spec": spec})) == []
    assert list(misfits(known[0], {**body, "spec": {**spec, "ttlSecondsAfterFinish": 1}}))


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
def test_its_cluster_has_a_fixed_size_one_gpu_group_and_a_token(stack: dict[str, Any]) -> None:
    shape = shape_of(stack, {"nodes.max": 3})
    spec = ray_job(shape)
    cluster = spec["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in cluster
    (group,) = cluster["workerGroupSpecs"]
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]
    assert "idleTimeoutSeconds" not in group
    assert group["groupName"] != "head"
    assert cluster["authOptions"] == {"mode": "token", "secretName": shape.ray.token_secret}
    for one in (cluster["headGroupSpec"], group):
        assert one["template"]["metadata"]["labels"] == job_labels(shape.name)
        (container,) = one["template"]["spec"]["containers"]
        assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} <= {variable["name"] for variable in container["env"]}
    assert "suspend" not in spec


def test_it_gives_its_nodes_back_and_waits_for_them_no_longer_than_promised() -> None:
    spec = ray_job(shape_of(GKE))
    assert (spec["submissionMode"], spec["shutdownAfterJobFinishes"], spec["backoffLimit"]) == ("HTTPMode", True, 0)
    assert 0 < spec["ttlSecondsAfterFinished"] <= 600
    assert spec["preRunningDeadlineSeconds"] == 168 * 3600
    assert "activeDeadlineSeconds" not in spec
    reserved = {"nodes.capacity": "reservation", "nodes.reservation": "ours"}
    assert ray_job(shape_of(GKE, reserved))["preRunningDeadlineSeconds"] == 3600


def test_in_a_queue_it_holds_no_machine_longer_than_its_quota() -> None:
    """Kueue's webhook takes none without the first, and frees the quota at the end whatever the second says."""
    spec = ray_job(shape_of(GKE, {"queue": "kueue"}))
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 0)
    assert "deletionStrategy" not in spec


def test_a_cluster_that_resizes_itself_is_refused() -> None:
    shape = shape_of(GKE)
    with pytest.raises(ValueError, match="fixed size"):
        ray_job(replace(shape, ray=replace(shape.ray, autoscaled=True)))


def test_the_sample_stacks_entry_point_is_a_benchmark_on_all_its_nodes() -> None:
    settings = from_stack_file(ROOT / "Pulumi.gke-dws.yaml")
    assert isinstance(settings, GkeSettings)
    python, dash_m, module, said = shlex.split(str(settings.ray.entrypoint))
    assert (python, dash_m, module) == ("python", "-m", "workloads.nccl.driver")
    spec = BenchOptions.from_json(said)
    assert (spec.nodes, spec.per_node, spec.machine) == (settings.ray.max_workers, 8, settings.nodes.machine)
    assert spec.target == settings.target
