"""Decisions of the cloud controllers, without a cluster: quantities, predicates, pool growth, devices."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.machines import EKS_CATALOG, GKE_CATALOG
from rehearsal.clouds.kubernetes.compute_class import SELECTOR
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers import compute_class, devices, provisioning
from rehearsal.cluster.controllers.autoscaler import plan
from rehearsal.cluster.controllers.nodes import node, template
from rehearsal.cluster.controllers.plugins import difference
from rehearsal.cluster.controllers.pools import Pool, UnknownMachineError, pools
from rehearsal.cluster.controllers.quantities import GIB, amount, amounts, left_for_pods, requests
from rehearsal.cluster.controllers.scheduling import CandidateNode, place_of, selected, tolerated
from tests.kubernetes import simulated_clouds as clouds
from tests.kubernetes.simulated_clouds import EKS, GKE, gpu_pool, pod

CLUSTER = "gcp:container/cluster:Cluster"


def gke_pools(tmp_path: Path, *more: dict[str, Any]) -> dict[str, Pool]:
    state = State(tmp_path / "clouds.sqlite")
    clouds.gke(state, *more)
    with state.transaction() as view:
        return {pool.name: pool for pool in pools(view, (CLUSTER, GKE))}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", Fraction(1, 4)),
        ("1", 1),
        ("2800Gi", 2800 * GIB),
        ("16G", 16 * 10**9),
        ("1.5", Fraction(3, 2)),
        ("4k", 4000),
    ],
)
def test_quantity_is_parsed(text: str, number: Fraction) -> None:
    assert amount(text) == number


def test_invalid_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid literal"):
        amount("eight")


def test_pod_requests_are_its_maximum_at_one_time() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    large_step = {"resources": {"requests": {"cpu": "8", "memory": "1Gi"}}}
    work = {"resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "8"}}}
    spec = {"initContainers": [sidecar, large_step], "containers": [work, work], "overhead": {"cpu": "100m"}}
    # The step runs next to the sidecar, 9 CPUs; later both containers do, 9 CPUs as well.
    assert requests(spec) == {
        "cpu": Fraction(91, 10),
        "memory": GIB,
        "nvidia.com/gpu": 16,
        "pods": 1,
    }


@pytest.mark.parametrize("machine", [row for row in (*GKE_CATALOG.values(), *EKS_CATALOG.values()) if row.pod_cpus])
def test_every_machine_fits_worker_and_installer(machine: Any) -> None:
    memory = machine.memory_mib * 2**20 if machine.memory_mib else 2952 * GIB
    left = amounts(left_for_pods(machine.vcpus, memory, 12 * 10**12))
    assert left["cpu"] >= machine.pod_cpus + Fraction(3, 20)
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


@pytest.mark.parametrize(
    ("operator", "values", "label", "allowed"),
    [
        ("In", ["a", "b"], "a", True),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], None, True),
        ("Exists", [], "a", True),
        ("DoesNotExist", [], "a", False),
        ("Gt", ["4"], "5", True),
        ("Lt", ["4"], "5", False),
    ],
)
def test_required_affinity_selects_by_labels(
    operator: str, values: list[str], label: str | None, allowed: bool
) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    labels = {} if label is None else {"zone": label}
    assert selected({"affinity": {"nodeAffinity": required}}, labels, "node") is allowed


def test_candidate_node_counts_its_pods() -> None:
    body = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "2"}}}
    its = {"spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "3"}}}]}}
    over = {**its, "status": {"phase": "Succeeded"}}
    place = place_of(body, "pool", [its, over])
    assert place.free == {"cpu": 1, "pods": 1}
    assert place.why_not(its) == "Insufficient cpu"


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


def test_unknown_machine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownMachineError, match="x9-odd-3"):
        gke_pools(tmp_path, clouds.gke_pool("odd", "x9-odd-3", most=1))


def test_node_offers_device_and_address_per_network(tmp_path: Path) -> None:
    gpu = gke_pools(tmp_path, gpu_pool("gpu", 1))["gpu"]
    offered = devices.offered(gpu, {("blue-rdma", "blue-rdma-3"): "rdma-3", ("blue-rdma", "elsewhere"): "other"}, {})
    assert offered == {
        "nvidia.com/gpu": 8,
        "networking.gke.io.networks/rdma-3": 1,
        "networking.gke.io.networks/rdma-3.IP": 1,
    }
    made = node(gpu, "n", offered)
    assert difference(made, offered) == {}
    assert difference(made, {"nvidia.com/gpu": 8}) == {
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
    assert plan([pod("e", networks=(), selector={"zone": "other"})], [], [gpu], {"gpu": 2}, expected, {}) == []


def test_small_pods_share_a_node(tmp_path: Path) -> None:
    system = gke_pools(tmp_path)["system"]
    small = {"metadata": {"name": "s"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}
    (growth,) = plan([small] * 6, [], [system], {"system": 3}, {"system": {}}, {})
    # 7.91 CPUs are left of 8: three pods on each.
    assert growth.count == 2


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
    assert compute_class.health(_class({"nodepools": ["a"]}), all_pools)["status"] == "True"
    assert compute_class.health(_class({"nodepools": ["other"]}), all_pools)["reason"] == "CrdLabelNotMatching"
    assert compute_class.health(_class({"nodepools": ["none"]}), all_pools)["reason"] == "NodePoolNotExist"


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


def test_candidate_node_refuses_with_scheduler_message() -> None:
    place = CandidateNode(
        "n", "p", {"zone": "a"}, [{"key": "k", "value": "v", "effect": "NoSchedule"}], amounts({"cpu": "1"})
    )
    assert place.why_not({"spec": {}}) == "node(s) had untolerated taint {k: v}"
    tolerant = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "b"}}
    assert place.why_not({"spec": tolerant}) == "node(s) didn't match Pod's node affinity/selector"
