"""The specs of a RayCluster and of a RayJob: how Ray's autoscaler reads them, and how long they wait for nodes.

The reviewed lists of the stack files (tests/rehearsal/golden) have their other values.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from infra.eks.stack import ray_args as on_eks
from infra.gke.stack import ray_args as on_gke
from infra.kubernetes.pods import RayArgs
from infra.kubernetes.ray_cluster import ray_cluster_spec, ray_job_spec
from infra.settings import GkeSettings, LocalSettings, from_stack_file, parse
from tests.unit.stacks import EKS, GKE, changed
from workloads.nccl.options import BenchOptions

ROOT = Path(__file__).resolve().parents[3]
JOB: dict[str, Any] = {"ray.mode": "job", "ray.entrypoint": "python /app/train.py"}
BLOCK = "cr-0123456789abcdef0"


def args_of(stack: dict[str, Any], changes: dict[str, Any]) -> RayArgs:
    settings = parse(changed(stack, changes))
    assert not isinstance(settings, LocalSettings)
    return on_gke(settings, "a3u-ray") if isinstance(settings, GkeSettings) else on_eks(settings, "p5-ray")


def test_autoscaler_reads_one_group_of_whole_nodes_from_zero() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    spec = ray_cluster_spec(args_of(GKE, {"nodes.max": 4}))
    seen = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "a3u-ray", "namespace": "ray"}, "spec": spec})
    group, head = (seen["available_node_types"][name] for name in ("gpu-group", "headgroup"))
    assert (group["min_workers"], group["max_workers"], group["idle_timeout_s"]) == (0, 4, 900)
    assert (group["resources"]["GPU"], group["resources"]["CPU"]) == (8, 220)
    assert (head["resources"]["CPU"], "GPU" in head["resources"]) == (0, False)


@pytest.mark.parametrize(
    ("stack", "changes", "hours"),
    [
        (GKE, {"nodes.capacity": "flex-start"}, 168),
        (GKE, {"nodes.capacity": "spot"}, 168),
        (GKE, {"nodes.capacity": "reservation", "nodes.reservation": "mine"}, 1),
        # The longer wait of both counts.
        (
            GKE,
            {
                "nodes.capacity": "reservation",
                "nodes.reservation": "mine",
                "computeClass": True,
                "nodes.fallback": "spot",
            },
            168,
        ),
        (EKS, {"nodes.capacity": "on-demand"}, 1),
        (EKS, {"nodes.capacity": "reservation", "nodes.reservation": BLOCK}, 1),
        (EKS, {"nodes.capacity": "spot"}, 168),
        (EKS, {"nodes.capacity": "capacity-block", "nodes.reservation": BLOCK}, 168),
    ],
)
def test_ray_waits_as_long_as_its_capacity_may_take(stack: dict[str, Any], changes: dict[str, Any], hours: int) -> None:
    spec = ray_cluster_spec(args_of(stack, changes))
    waits = {item["name"]: item.get("value") for item in spec["autoscalerOptions"]["env"]}
    assert waits["RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"] == str(3600 * hours)
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "value": str(3600 * hours)} in head
    assert ray_job_spec(args_of(stack, changes | JOB))["preRunningDeadlineSeconds"] == 3600 * hours


def test_job_without_a_queue_releases_its_nodes() -> None:
    spec = ray_job_spec(args_of(GKE, JOB))
    assert (spec["submissionMode"], spec["shutdownAfterJobFinishes"], spec["backoffLimit"]) == ("HTTPMode", True, 0)
    assert 0 < spec["ttlSecondsAfterFinished"] <= 600
    assert "activeDeadlineSeconds" not in spec


def test_entry_point_of_the_sample_stack_is_a_benchmark_on_all_its_nodes() -> None:
    settings = from_stack_file(ROOT / "Pulumi.gke-dws.yaml")
    assert isinstance(settings, GkeSettings)
    python, dash_m, module, said = shlex.split(str(settings.ray.entrypoint))
    assert (python, dash_m, module) == ("python", "-m", "workloads.nccl.driver")
    spec = BenchOptions.from_json(said)
    assert (spec.nodes, spec.per_node, spec.machine) == (settings.ray.max_workers, 8, settings.nodes.machine)
    assert spec.target == settings.target
