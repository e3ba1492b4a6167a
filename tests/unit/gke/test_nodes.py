"""Pods of GKE: all that a worker stores on disk fits its limits, and the notice of spot nodes reaches it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from infra.catalog.capacity import GKE_CAPACITIES
from infra.catalog.gcp import LOCAL_SSD_GB
from infra.catalog.machines import GKE_CATALOG, supported
from infra.eks.workload import ray_args as on_eks
from infra.gke.pod import SPARE_GIB
from infra.gke.workload import ray_args
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.ray_cluster import STOP_S, ray_cluster_spec
from tests.kubernetes.cloud_mocks import Made, deployed
from tests.unit.stacks import GKE, changed, eks, gke, problems_of

BUCKET = {"storage.bucket": "ours"}
JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}
NODE_POOL = "gcp:container/nodePool:NodePool"


def worker(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the pods on GPU nodes."""
    args = ray_args(gke(changes), "stack-ray")
    spec = job_spec(args) if "ray.mode" in changes else ray_cluster_spec(args)["workerGroupSpecs"][0]
    template: dict[str, Any] = spec["template"]
    return template


def environment(template: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in template["spec"]["containers"][0]["env"]}


def gib(text: str) -> int:
    found = re.fullmatch(r"(\d+)Gi", text)
    assert found, text
    return int(found[1])


WITH_SSDS = [name for name in supported("gke") if GKE_CATALOG[name].local_ssds]


@pytest.mark.parametrize(
    ("machine", "bucket", "mode"), [*product(WITH_SSDS, ({}, BUCKET), ({}, JOB))], ids=lambda value: str(value)
)
def test_all_that_a_worker_stores_fits_its_limits(machine: str, bucket: dict[str, Any], mode: dict[str, Any]) -> None:
    """Cache, spilled objects, the sidecar's other files and those of the user: in sum at most the pod's limits."""
    template = worker({"nodes.machine": machine, **bucket, **mode})
    annotations, (container,) = template["metadata"]["annotations"], template["spec"]["containers"]
    limits = [gib(container["resources"]["limits"]["ephemeral-storage"])]
    cache = 0
    if bucket:
        limits.append(gib(annotations["gke-gcsfuse/ephemeral-storage-limit"]))
        (volume,) = [each["csi"] for each in template["spec"]["volumes"] if "csi" in each]
        found = re.search(r"file-cache:max-size-mb:(\d+)", volume["volumeAttributes"]["mountOptions"])
        assert found, "the cache has no bound"
        cache = int(found[1]) // 1024
        assert 0 < cache < limits[-1]
        # A request of the cache's size would ask the autoscaler for a larger node.
        assert gib(annotations["gke-gcsfuse/ephemeral-storage-request"]) < 10
    ssds = GKE_CATALOG[machine].local_ssds
    assert ssds
    # At this use of the disk, which includes the cache, Ray spills no more.
    ends = float(environment(template)["RAY_local_fs_capacity_threshold"]) * ssds * LOCAL_SSD_GB * 10**9 / 2**30
    assert cache < ends
    staged = limits[1] - cache if bucket else 0
    assert ends + staged + SPARE_GIB <= sum(limits) + 6  # of three decimals
    assert sum(limits) * 2**30 < 0.8 * ssds * LOCAL_SSD_GB * 10**9
    # Nothing else of the pod is on the disk.
    on_disk = [each for each in template["spec"]["volumes"] if each.get("emptyDir", {"medium": ""}) == {}]
    assert [each["name"] for each in on_disk] == ["ray-logs"]


@pytest.mark.parametrize("machine", sorted({*supported("gke")} - {*WITH_SSDS}))
def test_worker_without_local_disks_fits_its_boot_disk(machine: str) -> None:
    """With GKE's reservation, and without a cache or a limit of the sidecar, as on the head's node."""
    few = {"nodes.capacity": "on-demand", "fabric": "socket"}
    template = worker({"nodes.machine": machine, **few, **BUCKET})
    annotations, (container,) = template["metadata"]["annotations"], template["spec"]["containers"]
    asked = gib(container["resources"]["limits"]["ephemeral-storage"])
    nodes = [one.inputs["nodeConfig"] for one in pools({"nodes.machine": machine, **few})]
    [disk] = [node["diskSizeGb"] for node in nodes if "diskSizeGb" in node]  # the system pool has GKE's default
    # GKE keeps 10 % for evictions, and at most 100 GiB of half the disk or 35 % and 6 GiB for the node.
    assert asked < 0.9 * disk - min(disk / 2, 6 + 0.35 * disk, 100)
    assert annotations["gke-gcsfuse/ephemeral-storage-limit"] == "0"
    assert "file-cache" not in str(template["spec"]["volumes"])
    assert float(environment(template)["RAY_local_fs_capacity_threshold"]) < 0.9
    shared = [each["emptyDir"] for each in template["spec"]["volumes"] if each["name"] == "shm"]
    assert gib(shared[0]["sizeLimit"]) <= gib(container["resources"]["limits"]["memory"]) / 4


def test_sidecar_of_the_head_asks_for_no_disk() -> None:
    """The head's node has a boot disk of 100 GB, and its mount has no cache."""
    head = ray_cluster_spec(ray_args(gke(BUCKET), "stack-ray"))["headGroupSpec"]["template"]
    assert head["metadata"]["annotations"]["gke-gcsfuse/ephemeral-storage-limit"] == "0"
    (volume,) = [each["csi"] for each in head["spec"]["volumes"] if "csi" in each]
    assert "file-cache" not in volume["volumeAttributes"]["mountOptions"]


def capacities() -> list[dict[str, Any]]:
    """Return every capacity, and every second choice of a ComputeClass, as settings of a valid stack."""
    found = []
    for first, second in product(GKE_CAPACITIES, (None, *GKE_CAPACITIES)):
        reserved = {"nodes.reservation": "ours"} if "reservation" in (first, second) else {}
        queue = {"queue": "kueue"} if "flex-start-queued" in (first, second) else {}
        more = {"nodes.fallback": second, "computeClass": True} if second else {}
        settings = {"nodes.capacity": first, **reserved, **queue, **more}
        if not problems_of(changed(GKE, settings)):
            found.append(settings)
    return found


def pools(settings: Mapping[str, Any]) -> list[Made]:
    made = deployed(changed(GKE, settings), stack="demo", config={"gcp:project": "mine"})
    return [one for one in made if one.type == NODE_POOL]


@pytest.mark.parametrize("settings", capacities(), ids=str)
def test_notice_of_spot_nodes_reaches_the_pods(settings: dict[str, Any]) -> None:
    """Pods have what the kubelet gives to pods that are not critical, and Ray is told of it, less what it needs."""
    template, job = worker(settings), worker({**settings, **JOB})
    grace = template["spec"]["terminationGracePeriodSeconds"]
    assert int(environment(template)["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"]) == grace - STOP_S > 60
    spot = 0
    for pool in pools(settings):
        node = pool.inputs["nodeConfig"]
        kubelet = node.get("kubeletConfig")
        assert (kubelet is not None) is node.get("spot", False), "GKE takes a grace period on spot pools only"
        if kubelet:
            spot += 1
            assert kubelet["shutdownGracePeriodSeconds"] == 120
            pods = kubelet["shutdownGracePeriodSeconds"] - kubelet["shutdownGracePeriodCriticalPodsSeconds"]
            assert job["spec"]["terminationGracePeriodSeconds"] <= pods
            assert grace <= pods
    assert grace == (105 if spot else 120)


def test_workers_on_aws_have_the_two_minutes_of_a_spot_notice() -> None:
    spec = ray_cluster_spec(on_eks(eks({"nodes.capacity": "spot"}), "p5-ray"))["workerGroupSpecs"][0]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120
