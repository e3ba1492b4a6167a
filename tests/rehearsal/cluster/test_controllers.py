"""Decisions of the cloud controllers, without a cluster: quantities, predicates, pool growth, devices."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from infra.catalog.machines import EKS_CATALOG, GKE_CATALOG
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.kubernetes.pods import SELECTOR
from rehearsal.cluster.controllers import compute_class, devices, provisioning
from rehearsal.cluster.controllers.autoscaler import plan, runs
from rehearsal.cluster.controllers.device_networks import unfit
from rehearsal.cluster.controllers.nodes import node, template
from rehearsal.cluster.controllers.pools import Pool, pools
from rehearsal.cluster.controllers.quantities import GIB, amounts, left_for_pods, requests
from rehearsal.cluster.controllers.scheduling import place_of, tolerated
from rehearsal.cluster.controllers.snapshot import Cluster, Release, Snapshot
from rehearsal.engine.state import State
from tests.rehearsal.cluster import simulated_clouds as clouds
from tests.rehearsal.cluster.simulated_clouds import EKS, GKE, gpu_pool, pod
from tools.kubernetes.api import Api

CLUSTER = "gcp:container/cluster:Cluster"


def gke_pools(tmp_path: Path, *more: dict[str, Any]) -> dict[str, Pool]:
    state = State(tmp_path / "clouds.sqlite")
    clouds.gke(state, *more)
    with state.transaction() as view:
        return {pool.name: pool for pool in pools(view, (CLUSTER, GKE))}


def test_pod_requests_are_its_maximum_at_one_time() -> None:
    large_step = {"resources": {"requests": {"cpu": "9100m", "memory": "1Gi"}}}
    work = {"resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "8"}}}
    found = requests({"initContainers": [large_step, large_step], "containers": [work, work]})
    assert found == {"cpu": Decimal("9.1"), "memory": GIB, "nvidia.com/gpu": 16, "pods": 1}


@pytest.mark.parametrize("machine", [row for row in (*GKE_CATALOG.values(), *EKS_CATALOG.values()) if row.pod_cpus])
def test_every_machine_fits_worker_and_installer(machine: Any) -> None:
    memory = machine.memory_mib * 2**20
    left = amounts(left_for_pods(machine.vcpus, memory, 12 * 10**12))
    assert left["cpu"] >= machine.pod_cpus + Decimal("0.15")
    assert left["memory"] >= machine.pod_memory_gib * GIB
    assert left["cpu"] < machine.vcpus
    assert left["memory"] < memory


def test_tolerations_cover_taints_by_key_value_and_effect() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert tolerated(taint, [{"operator": "Exists"}])
    assert tolerated(taint, [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])
    assert tolerated(taint, [{"key": "nvidia.com/gpu", "value": "present"}])
    assert not tolerated(taint, [{"key": "nvidia.com/gpu", "value": "true"}])
    assert not tolerated(taint, [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}])
    assert not tolerated(taint, None)


IS_N = {"key": "metadata.name", "operator": "In", "values": ["n"]}


def test_candidate_node_counts_its_pods() -> None:
    body = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "2"}}}
    its = {"spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "3"}}}]}}
    over = {**its, "status": {"phase": "Succeeded"}}
    place = place_of(body, "pool", [its, over])
    assert place.free == {"cpu": 1, "pods": 1}
    assert place.why_not(its) == "Insufficient cpu"


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([], False),
        ([{}], False),
        ([{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200", "b200"]}]}], True),
        ([{"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["h200"]}]}], False),
        ([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}], True),
        ([{"matchExpressions": [{"key": "gpu", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}]}], False),
        ([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": [IS_N]}], True),
        ([{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}], False),
        ([{"matchExpressions": [{"key": "nics", "operator": "Gt", "values": ["7"]}]}], True),
        ([{"matchExpressions": [{"key": "nics", "operator": "Lt", "values": ["8"]}]}], False),
        ([{"matchExpressions": [{"key": "gpu", "operator": "Gt", "values": ["7"]}]}], False),
        ([{"matchFields": [{**IS_N, "values": ["other"]}]}], False),
    ],
)
def test_required_node_affinity(terms: list[dict[str, Any]], fits: bool) -> None:
    metadata = {"name": "n", "labels": {"gpu": "h200", "nics": "8"}}
    place = place_of({"metadata": metadata, "status": {"allocatable": {"pods": "1"}}}, "pool", [])
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    why = place.why_not({"spec": {"affinity": affinity}})
    assert why == (None if fits else "node(s) didn't match Pod's node affinity/selector")


def test_gke_pool_has_labels_taints_sizes_and_networks(tmp_path: Path) -> None:
    found = gke_pools(tmp_path, gpu_pool("gpu", 4, node={"flexStart": True}, queuedProvisioning={"enabled": True}))
    gpu, system = found["gpu"], found["system"]
    assert (system.least, system.most, system.wanted, system.gpus) == (1, 3, 1, 0)
    assert (gpu.least, gpu.most, gpu.wanted, gpu.gpus, gpu.nics) == (0, 4, 0, 8, 8)
    assert (
        gpu.labels.items()
        >= {
            "cloud.google.com/gke-nodepool": "gpu",
            "cloud.google.com/gke-accelerator": "nvidia-h200-141gb",
            "cloud.google.com/gke-flex-start": "true",
            "topology.kubernetes.io/zone": "us-central1-b",
            "topology.kubernetes.io/region": "us-central1",
        }.items()
    )
    assert gpu.taints == (
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"},
    )
    assert gpu.networks[0] == ("blue-gvnic", "blue-gvnic-1")
    assert len(gpu.networks) == 9


def test_eks_group_announces_devices_by_tags(tmp_path: Path) -> None:
    state = State(tmp_path / "clouds.sqlite")
    clouds.eks(state, most=4)
    with state.transaction() as view:
        found = {pool.name: pool for pool in pools(view, ("aws:eks/cluster:Cluster", EKS))}
    gpu = found["gpu"]
    assert (gpu.most, gpu.zone, gpu.labels["eks.amazonaws.com/nodegroup"]) == (4, "us-east-2a", "gpu")
    assert devices.expected(gpu, {}) == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 16}
    # The actual devices depend on the plugins, and those on their tolerations.
    assert devices.offered(gpu, {}, {}) == {}
    tolerant = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    assert devices.offered(gpu, {}, {"aws-efa-k8s-device-plugin": tolerant}) == {"vpc.amazonaws.com/efa": 16}
    assert devices.offered(gpu, {}, {"aws-efa-k8s-device-plugin": {}}) == {}
    assert len(devices.claimable(gpu, {"aws-dranet": tolerant})) == 16
    # A group grows by the autoscaler of a release.
    cluster = Cluster(type="aws:eks/cluster:Cluster", id=EKS, live={"name": EKS})
    values = {"autoDiscovery": {"clusterName": EKS}}
    for releases in ([], [Release(id="a/b", chart="cluster-autoscaler", revision=1, values=values)]):
        snapshot = Snapshot(api=cast(Api, None), now=0.0, cluster=cluster, releases=releases)
        assert runs(snapshot) is bool(releases)


def test_node_offers_device_and_address_per_network(tmp_path: Path) -> None:
    gpu = gke_pools(tmp_path, gpu_pool("gpu", 1))["gpu"]
    offered = devices.offered(gpu, {("blue-rdma", "blue-rdma-3"): "rdma-3", ("blue-rdma", "elsewhere"): "other"}, {})
    assert offered == {
        "nvidia.com/gpu": 8,
        "networking.gke.io.networks/rdma-3": 1,
        "networking.gke.io.networks/rdma-3.IP": 1,
    }
    made = node(gpu, "n", offered)
    assert devices.difference(made, offered) == {}
    assert devices.difference(made, {"nvidia.com/gpu": 8}) == {
        "networking.gke.io.networks/rdma-3": None,
        "networking.gke.io.networks/rdma-3.IP": None,
    }


def test_reserved_nodes_have_topology_labels(tmp_path: Path) -> None:
    reserved = {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}
    found = gke_pools(tmp_path, gpu_pool("reserved", 2, node=reserved), gpu_pool("flex", 2))
    block, host = (f"cloud.google.com/gce-topology-{level}" for level in ("block", "host"))
    one, two = (node(found["reserved"], name, {})["metadata"]["labels"] for name in ("one", "two"))
    assert one[block] == two[block]
    assert one[host] != two[host]
    assert block not in node(found["flex"], "three", {})["metadata"]["labels"]


def test_pools_grow_for_unschedulable_pods_within_limits(tmp_path: Path) -> None:
    gpu = gke_pools(tmp_path, gpu_pool("gpu", 2))["gpu"]
    expected = {"gpu": devices.expected(gpu, {})}
    there = template(gpu, "there", expected["gpu"])
    (growth,) = plan([pod(name) for name in "abcd"], [there], [gpu], {"gpu": 2}, expected, {})
    assert (growth.count, growth.pods, there.pods) == (2, ["default/b", "default/c"], ["default/a"])
    assert plan([pod("e", selector={"zone": "other"})], [], [gpu], {"gpu": 2}, expected, {}) == []


def test_empty_pool_grows_for_claims_only_with_managed_driver(tmp_path: Path) -> None:
    label = {"labels": {"cloud.google.com/gke-networking-dra-driver": "true"}}
    found = gke_pools(tmp_path, gpu_pool("managed", 2, node=label), gpu_pool("own", 2))
    expected = {name: devices.expected(pool, {}) for name, pool in found.items()}
    claiming, room = pod("a"), dict.fromkeys(found, 2)
    claiming["spec"]["resourceClaims"] = [{"name": "nics", "resourceClaimTemplateName": "nics"}]
    running = template(found["own"], "running", expected["own"])
    running.take(pod("b"))
    for name, places, grows in (("managed", [], True), ("own", [], False), ("own", [running], True)):
        assert bool(plan([claiming], places, [found[name]], room, expected, {})) is grows
    refused = provisioning.choose(claiming, 1, [found["managed"]], room, expected)
    assert isinstance(refused, tuple)
    assert refused[1].endswith("managed (cannot allocate all claims)")


def _class(*rules: dict[str, Any], unsatisfiable: str = "DoNotScaleUp") -> dict[str, Any]:
    spec = {"priorities": list(rules), "whenUnsatisfiable": unsatisfiable}
    return {"metadata": {"name": "rdma"}, "spec": spec}


def test_compute_class_orders_pools_and_excludes_others(tmp_path: Path) -> None:
    labels = {"labels": {SELECTOR: "rdma"}}
    found = gke_pools(tmp_path, gpu_pool("a", 1, node=labels), gpu_pool("b", 1, node=labels), gpu_pool("other", 1))
    all_pools, chosen = list(found.values()), {"spec": {"nodeSelector": {SELECTOR: "rdma"}}}
    rules = {"nodepools": ["b"]}, {"nodepools": ["a", "other"]}

    def names(body: dict[str, Any], its: dict[str, Any]) -> list[str]:
        return [pool.name for pool in compute_class.order(its, all_pools, {"rdma": body})]

    # A pool without the class's label is no pool of the class, whatever the rule names.
    assert names(_class(*rules), chosen) == ["b", "a"]
    assert names(_class(*rules, unsatisfiable="ScaleUpAnyway"), chosen) == ["b", "a", "system", "other"]
    assert names(_class(*rules), {"spec": {}}) == ["system", "other"]
    assert compute_class.order(chosen, all_pools, {}) == []


def test_request_gets_queued_pool_or_reason(tmp_path: Path) -> None:
    queued = gke_pools(tmp_path, gpu_pool("queued", 2, queuedProvisioning={"enabled": True}))["queued"]
    offers = {"queued": devices.expected(queued, {})}
    turn = provisioning.choose(pod("w"), 2, [queued], {"queued": 2}, offers)
    assert isinstance(turn, provisioning.Turn)
    assert turn.nodes == 2
    assert provisioning.choose(pod("w"), 3, [queued], {"queued": 2}, offers) == (
        "NodepoolSizeReached",
        "Max nodepool size reached, affected nodepools: queued",
    )
    assert provisioning.choose(pod("w"), 1, [], {}, {})[0] == "NoQueuedNodepoolAvailable"  # type: ignore[index]
    elsewhere = provisioning.choose(pod("w", selector={"zone": "other"}), 1, [queued], {"queued": 2}, offers)
    assert isinstance(elsewhere, tuple)
    assert elsewhere[0] == "ProvisioningRequestNotSchedulableInNodepool"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"vpcSubnet": "nowhere"}, "SubnetNotFound"),
        ({"vpc": "nowhere"}, "VPCNotFound"),
        ({"vpc": "own", "vpcSubnet": "own-0"}, "DeviceModeCantUseDefaultVPC"),
        ({"deviceMode": None}, "SecondaryRangeAndDeviceModeUnspecified"),
        ({"podIPv4Ranges": {"rangeNames": ["pods"]}}, "DeviceModeCantBeUsedWithSecondaryRange"),
        ({"vpcSubnet": "rdma-1"}, "DeviceModeSubnetAlreadyInUse"),
    ],
)
def test_invalid_parameter_set_reports_reason(change: dict[str, Any], reason: str | None) -> None:
    live = {
        gcp.NETWORK: [{"name": "rdma"}, {"name": "own"}],
        gcp.SUBNETWORK: [{"name": name} for name in ("rdma-0", "rdma-1", "own-0")],
    }
    cluster = Cluster(type=gcp.CLUSTER, id="c", live={"network": "projects/p/global/networks/own"})
    snapshot = Snapshot(api=cast(Api, None), now=0.0, cluster=cluster, live=live)

    def parameters(name: str, made: str, **spec: Any) -> dict[str, Any]:
        whole = {"vpc": "rdma", "vpcSubnet": name, "deviceMode": "RDMA", **spec}
        return {"metadata": {"name": name, "creationTimestamp": f"2026-11-21T00:00:0{made}Z"}, "spec": whole}

    first, second = parameters("rdma-1", "0"), parameters("rdma-0", "5", **change)
    assert unfit(first, [first, second], snapshot) is None
    found = unfit(second, [first, second], snapshot)
    assert (found and found[0]) == reason
