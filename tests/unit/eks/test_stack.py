"""Environment of Ray's pods on EKS: no obsolete variable, for any machine; the provider's region."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.machines import EKS_CATALOG
from infra.eks.pod import OBSOLETE
from infra.eks.ray import ray_args
from infra.eks.stack import region_problems
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.ray_cluster import ray_cluster_spec
from tests.unit.stacks import eks

SET = {"FI_EFA_USE_HUGE_PAGE": "0", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
"""Variables of a worker in addition to Ray's own."""
JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}


def environment(template: dict[str, Any]) -> dict[str, str]:
    container = template["template"]["spec"]["containers"][0]
    names = [item["name"] for item in container["env"]]
    assert len(names) == len(set(names))
    return {item["name"]: item.get("value", "") for item in container["env"]}


@pytest.mark.parametrize("fabric", ["efa", "efa-dranet"])
@pytest.mark.parametrize("machine", EKS_CATALOG)
def test_pods_have_no_obsolete_variable(machine: str, fabric: str) -> None:
    changes = {"nodes.machine": machine, "fabric": fabric, "nodes.min": 1}
    spec = ray_cluster_spec(ray_args(eks(changes), "p5-ray"))
    worker, head = environment(spec["workerGroupSpecs"][0]), environment(spec["headGroupSpec"])
    assert {name: value for name, value in worker.items() if not name.startswith(("RAY_", "RDMA_RAY_"))} == SET
    assert {name: value for name, value in head.items() if not name.startswith("RAY_")} == {
        "NVIDIA_VISIBLE_DEVICES": "void"
    }
    job = environment(job_spec(ray_args(eks(changes | JOB), "p5-ray")))
    assert SET.items() <= job.items()
    assert set(OBSOLETE).isdisjoint({*worker, *head, *job})


def test_region_must_be_that_of_the_zone() -> None:
    settings = eks()
    assert region_problems(settings, "us-east-1") == []
    assert "aws:region us-east-1" in region_problems(settings, None)[0].fix
    (problem,) = region_problems(settings, "us-west-2")
    assert problem.settings == ("aws:region", "location")
    assert region_problems(eks({"location": "use1-az1"}), "us-west-2") == []
