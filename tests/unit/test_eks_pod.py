"""Environment of Ray's pods on EKS: no obsolete variable, and a reason for each variable that is set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.machines import EKS_CATALOG
from infra.eks.pod import ENVIRONMENT, HEAD_ENVIRONMENT, OBSOLETE
from infra.eks.stack import ray_args
from infra.eks.storage import fsx_folder
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.ray_cluster import ray_cluster_spec
from tests.unit.stacks import eks

SET = {"FI_EFA_USE_HUGE_PAGE": "0", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
"""Variables of a worker in addition to Ray's own."""


def spec_of(changes: dict[str, Any], *, shared: bool = False) -> dict[str, Any]:
    settings = eks(changes)
    folder = fsx_folder(settings.storage, "p5-shared") if shared else None
    return ray_cluster_spec(replace(ray_args(settings, "p5-ray"), folder=folder))


def environment(template: dict[str, Any]) -> dict[str, str]:
    container = template["template"]["spec"]["containers"][0]
    names = [item["name"] for item in container["env"]]
    assert len(names) == len(set(names))
    return {item["name"]: item.get("value", "") for item in container["env"]}


@pytest.mark.parametrize("fabric", ["efa", "efa-dranet"])
@pytest.mark.parametrize("machine", EKS_CATALOG)
def test_worker_has_no_obsolete_variable(machine: str, fabric: str) -> None:
    spec = spec_of({"nodes.machine": machine, "fabric": fabric, "nodes.min": 1})
    worker, head = environment(spec["workerGroupSpecs"][0]), environment(spec["headGroupSpec"])
    assert {name: value for name, value in worker.items() if not name.startswith(("RAY_", "RDMA_RAY_"))} == SET
    assert {name: value for name, value in head.items() if not name.startswith("RAY_")} == {
        "NVIDIA_VISIBLE_DEVICES": "void"
    }
    assert set(OBSOLETE).isdisjoint({*worker, *head})


@pytest.mark.parametrize("machine", EKS_CATALOG)
def test_job_pod_has_the_same_variables(machine: str) -> None:
    job = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py", "nodes.machine": machine}
    found = environment(job_spec(ray_args(eks(job), "p5-ray")))
    assert {name: found.get(name) for name in SET} == SET
    assert set(OBSOLETE).isdisjoint(found)


def test_variables_have_reason_and_source() -> None:
    assert {variable.name: variable.value for variable in ENVIRONMENT} == SET
    for variable in (*ENVIRONMENT, *HEAD_ENVIRONMENT):
        assert len(variable.why.split()) > 4
        assert variable.source


def test_obsolete_variables_match_published_table() -> None:
    """The table is AWS' cheat sheet of 2026-07 and what aws-ofi-nccl sets by platform; add its new entries here."""
    assert set(OBSOLETE) == {
        "FI_PROVIDER",
        "FI_EFA_USE_DEVICE_RDMA",
        "FI_EFA_FORK_SAFE",
        "RDMAV_FORK_SAFE",
        "NCCL_PROTO",
        "NCCL_ALGO",
        "NCCL_TUNER_PLUGIN",
        "NCCL_BUFFSIZE",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_NVLS_CHUNKSIZE",
        "NCCL_NVLSTREE_MAX_CHUNKSIZE",
        "NCCL_NET_FORCE_FLUSH",
        "NCCL_NETDEVS_POLICY",
        "NCCL_TIMEOUT",
        "OFI_NCCL_PROTOCOL",
    }


@pytest.mark.parametrize(
    ("capacity", "hours"), [("on-demand", 1), ("reservation", 1), ("spot", 168), ("capacity-block", 168)]
)
def test_worker_wait_follows_capacity(capacity: str, hours: int) -> None:
    reserved = {"nodes.reservation": "cr-0123456789abcdef0"} if capacity in ("reservation", "capacity-block") else {}
    spec = spec_of({"nodes.capacity": capacity, **reserved})
    waits = {item["name"]: item.get("value") for item in spec["autoscalerOptions"]["env"]}
    assert waits["RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"] == str(3600 * hours)


def test_head_selects_cpu_nodes() -> None:
    head = spec_of({})["headGroupSpec"]["template"]["spec"]
    assert head["nodeSelector"] == {"eks.amazonaws.com/nodegroup": "system"}
    assert "tolerations" not in head
    assert "initContainers" not in head


def test_head_opens_shared_folder() -> None:
    spec = spec_of({}, shared=True)
    head = spec["headGroupSpec"]["template"]["spec"]
    (prepare,) = head["initContainers"]
    assert prepare["command"] == ["chmod", "1777", "/bucket"]
    assert prepare["securityContext"] == {"runAsUser": 0}
    assert prepare["volumeMounts"] == [{"name": "shared", "mountPath": "/bucket"}]
    worker = spec["workerGroupSpecs"][0]["template"]["spec"]
    assert "initContainers" not in worker
    for pod in (head, worker):
        assert {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}} in pod["volumes"]
        assert {"name": "shared", "mountPath": "/bucket"} in pod["containers"][0]["volumeMounts"]
