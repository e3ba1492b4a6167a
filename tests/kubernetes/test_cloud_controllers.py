"""The cloud controllers with the real API server and scheduler (1.36.1); kwok simulates nodes and pods.

The tests show that the controllers behave as their sources describe, so that scenarios can rely on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from infra.catalog.pins import COMPUTE_CLASS_API, DEVICE_API, GKE_NETWORK_API
from infra.settings import from_stack_file
from rehearsal.clouds.gcp import tokens as gcp
from rehearsal.clouds.kubernetes.compute_class import SELECTOR
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.controllers.events import (
    ClusterEmptied,
    ClusterOpened,
    Event,
    NetworkReady,
    NodeGranted,
    NodeRemoved,
    NodesWanted,
    OutOfStock,
    RequestChanged,
)
from rehearsal.cluster.controllers.snapshot import Delays
from tests.kubernetes import simulated_clouds as clouds
from tests.kubernetes.simulated_clouds import NICS, WHOLE_NODE, gpu_pool, network, pod
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 90.0
DELAYS = Delays(grant=0.5, idle=2.0, queue=1.0, booking=3.0, refusal=2.0)
MANAGED = {"labels": {"cloud.google.com/gke-networking-dra-driver": "true"}}
CLASS = {
    "labels": {SELECTOR: "rdma"},
    "taints": [clouds.GPU_TAINT, {"key": SELECTOR, "value": "rdma", "effect": "NO_SCHEDULE"}],
}
E_ = TypeVar("E_", bound=Event)


@dataclass
class Cluster:
    """A served cluster."""

    controllers: CloudControllers
    state: State
    api: Api

    def events_of(self, kind: type[E_], count: int = 1, **like: object) -> list[E_]:
        """Wait for that many events of a type; return them."""

        def look() -> list[E_] | None:
            self.controllers.check()
            found = [event for event in self.controllers.events if isinstance(event, kind)]
            alike = [event for event in found if all(getattr(event, key) == value for key, value in like.items())]
            return alike if len(alike) >= count else None

        return self.api.until(f"{count} × {kind.__name__} {like or ''}", look, WITHIN_S)

    def running(self, *names: str) -> list[str]:
        """Wait until pods run; return their nodes."""

        def look() -> list[str] | None:
            pods = [self.api.get("v1", "Pod", name, "default") or {} for name in names]
            return [its["spec"]["nodeName"] for its in pods] if all(_phase(its) == "Running" for its in pods) else None

        return self.api.until(f"{', '.join(names)} running", look, WITHIN_S)

    def nodes(self, pool: str) -> list[Json]:
        """Return the nodes of a pool."""
        return self.api.list("v1", "Node", selector=f"cloud.google.com/gke-nodepool={pool}")

    def delete(self, *names: str) -> None:
        """Delete pods."""
        for name in names:
            self.api.delete("v1", "Pod", name, "default")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.start_kwok()
        yield plane


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A GKE cluster with a pool for each test, so that no test waits for another's nodes."""
    state = State(tmp_path_factory.mktemp("clouds") / "clouds.sqlite")
    settings = from_stack_file(ROOT / "Pulumi.gke.yaml")
    with CloudControllers(plane, state, settings, lambda _: None, DELAYS) as controllers:
        clouds.gke(
            state,
            gpu_pool("gpu", 2),
            gpu_pool("claims", 1, networks=False, node=MANAGED),
            gpu_pool("first", 1, node=CLASS),
            gpu_pool("second", 1, node=CLASS),
            gpu_pool("queued", 2, node={"flexStart": True}, queuedProvisioning={"enabled": True}),
        )
        cluster = Cluster(controllers, state, plane.api)
        cluster.events_of(ClusterOpened)
        for nic in NICS:
            for body in network(nic, f"blue-{nic}"):
                plane.api.apply(body)
        cluster.events_of(NetworkReady, len(NICS), problem=None)
        yield cluster


def test_pod_gets_devices_of_existing_networks(cluster: Cluster) -> None:
    def admitted() -> Json:
        try:
            return cluster.api.create(pod("named", networks=("default", *NICS)), dry_run=True)
        except ApiError as problem:
            # The API server's admission sees the list of networks a moment after it is written.
            raise NotYet(problem.message) from problem

    named = cluster.api.until("a pod with every network", admitted, WITHIN_S)
    resources = named["spec"]["containers"][0]["resources"]
    added = {f"networking.gke.io.networks/{nic}{suffix}": "1" for nic in NICS for suffix in ("", ".IP")}
    assert resources == {"requests": {**WHOLE_NODE, **added}, "limits": {**WHOLE_NODE, **added}}
    with pytest.raises(ApiError, match='network "rdma-9" not found') as refused:
        cluster.api.create(pod("named", networks=("default", "rdma-9")), dry_run=True)
    assert refused.value.status == 403


def test_parameter_set_reports_problem_and_keeps_finalizer(cluster: Cluster) -> None:
    api = cluster.api
    for body in network("astray", "blue-nowhere"):
        api.apply(body)
    (events_of,) = cluster.events_of(NetworkReady, network="astray")
    assert events_of.problem == "subnet: blue-nowhere not found in VPC: blue-rdma"
    parameters = GKE_NETWORK_API, "GKENetworkParamSet", "astray"
    api.delete(*parameters)
    held = api.get(*parameters)
    assert held is not None
    assert held["metadata"]["finalizers"] == ["networking.gke.io/gnp-controller"]
    api.delete(GKE_NETWORK_API, "Network", "astray")
    api.until("the parameter set gone", lambda: api.get(*parameters) is None, WITHIN_S)


def test_pool_scales_up_to_limit_and_down(cluster: Cluster) -> None:
    select = {"cloud.google.com/gke-nodepool": "gpu"}
    assert not cluster.nodes("gpu")
    for name in ("one", "two", "three"):
        cluster.api.create(pod(name, networks=("default", *NICS), selector=select))
    granted = cluster.events_of(NodeGranted, 2, pool="gpu")
    wanted = cluster.events_of(NodesWanted, pool="gpu")
    # After the delay, and up to the pool's limit; the third pod keeps waiting.
    assert all(event.after_s >= DELAYS.grant for event in granted)
    assert sum(event.count for event in wanted) == 2
    cluster.api.until("two of three run", lambda: _running(cluster, "one", "two", "three") == 2, WITHIN_S)
    live = _pool(cluster.state, "gpu")
    assert live["nodeCount"] == 2
    offered = cluster.nodes("gpu")[0]["status"]["allocatable"]
    assert {nic for nic in NICS if offered.get(f"networking.gke.io.networks/{nic}") == "1"} == set(NICS)
    cluster.delete("one", "two", "three")
    taken = cluster.events_of(NodeRemoved, 2, pool="gpu")
    assert all(event.why.startswith("empty for") for event in taken)
    assert cluster.nodes("gpu") == []
    assert _pool(cluster.state, "gpu")["nodeCount"] == 0
    assert len(cluster.nodes("system")) == 1


def test_scheduler_allocates_driver_devices(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": 8}
    template = {
        "apiVersion": DEVICE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}},
    }
    cluster.api.apply(template)
    claims = [{"name": "nics", "resourceClaimTemplateName": "all"}]
    cluster.api.create(pod("claiming", selector={"cloud.google.com/gke-nodepool": "claims"}, resourceClaims=claims))
    (node,) = cluster.running("claiming")
    (claim,) = cluster.api.list(DEVICE_API, "ResourceClaim", "default")
    devices = claim["status"]["allocation"]["devices"]["results"]
    assert {(its["driver"], its["pool"]) for its in devices} == {("dra.net", node)}
    assert len({its["device"] for its in devices}) == 8
    cluster.delete("claiming")


def test_compute_class_orders_pools_and_reports_health(cluster: Cluster) -> None:
    priorities = [{"nodepools": ["first"]}, {"nodepools": ["second"]}]
    body = {
        "apiVersion": COMPUTE_CLASS_API,
        "kind": "ComputeClass",
        "metadata": {"name": "rdma"},
        "spec": {"priorities": priorities, "whenUnsatisfiable": "DoNotScaleUp"},
    }
    cluster.api.apply(body)
    cluster.api.until("the class is healthy", lambda: _health(cluster) == ("True", "Crd is healthy."), WITHIN_S)
    with pytest.raises(ApiError, match=r"cannot be combined with cloud\.google\.com/gke-accelerator"):
        cluster.api.create(pod("both", selector={SELECTOR: "rdma", **clouds.ACCELERATOR}), dry_run=True)
    cluster.controllers.stock("first", out=True)
    tolerated = [{"key": SELECTOR, "operator": "Equal", "value": "rdma"}]
    cluster.api.create(pod("classy", selector={SELECTOR: "rdma"}, tolerations=tolerated))
    (node,) = cluster.running("classy")
    assert cluster.events_of(OutOfStock)[0].pool == "first"
    assert [event.pool for event in cluster.events_of(NodeGranted) if event.node == node] == ["second"]
    cluster.delete("classy")
    body["spec"] = {"priorities": [*priorities, {"nodepools": ["third"]}]}
    cluster.api.apply(body)
    words = "Nodepool third doesn't exist."
    cluster.api.until("the class says what is missing", lambda: _health(cluster) == ("False", words), WITHIN_S)
    for wrong, says in (
        ({"nodepools": ["first"], "spot": True}, "Nodepool field cannot be set along with other fields"),
        ({"nodePools": ["first"]}, "unknown field|field not declared"),
        ({}, "at least 1 properties|MinProperties"),
    ):
        with pytest.raises(ApiError, match=says):
            cluster.api.apply({**body, "spec": {"priorities": [wrong]}}, dry_run=True)


def test_provisioning_request_gets_all_nodes_at_once(cluster: Cluster) -> None:
    template = pod("queued", selector={"cloud.google.com/gke-nodepool": "queued"})
    del template["metadata"]["name"], template["metadata"]["namespace"]
    cluster.api.create(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "gang"}, "template": _inner(template)}
    )
    cluster.api.create(_request("turn", 2))
    (accepted,) = cluster.events_of(RequestChanged, request="default/turn", condition="Accepted")
    (provisioned,) = cluster.events_of(RequestChanged, request="default/turn", condition="Provisioned")
    granted = cluster.events_of(NodeGranted, 2, pool="queued")
    assert (accepted.pool, accepted.nodes, provisioned.nodes) == ("queued", 2, 2)
    assert provisioned.at_s - accepted.at_s >= DELAYS.queue
    assert all(event.at_s > accepted.at_s + DELAYS.queue for event in granted)
    found = cluster.api.get("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "turn", "default") or {}
    assert found["status"]["provisioningClassDetails"]["NodePoolName"] == "queued"
    # Unused nodes stay until the booking ends.
    (expired,) = cluster.events_of(RequestChanged, request="default/turn", condition="BookingExpired")
    taken = cluster.events_of(NodeRemoved, 2, pool="queued")
    assert all(event.at_s > expired.at_s for event in taken)


def test_provisioning_request_fails_with_gke_messages(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match="currently supports only single PodSet per request"):
        cluster.api.create(_request("two-sets", 1, 1))
    with pytest.raises(ApiError, match="maxRunDurationSeconds"):
        cluster.api.create(_request("too-long", 1, seconds="604801"))
    cluster.api.create(_request("too-many", 3))
    (failed,) = cluster.events_of(RequestChanged, request="default/too-many", condition="Failed")
    assert failed.message == "Max nodepool size reached, affected nodepools: queued"
    foreign = pod("foreign", selector={"cloud.google.com/gke-nodepool": "queued"})
    foreign["spec"]["containers"][0]["resources"] = {"limits": {"example.com/dongle": "1"}}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "foreign"}, "template": _inner(foreign)}
    )
    cluster.api.create(_request("odd", 1, template="foreign"))
    (failed,) = cluster.events_of(RequestChanged, request="default/odd", condition="Failed")
    assert failed.message.endswith("Predicate checking errors: queued (Insufficient example.com/dongle)")


def test_no_pool_grows_for_pods_that_use_a_request(cluster: Cluster) -> None:
    user = pod("user", selector={"cloud.google.com/gke-nodepool": "queued"})
    user["metadata"]["annotations"] = {"autoscaling.x-k8s.io/consume-provisioning-request": "none"}
    made = cluster.api.create(user, dry_run=True)
    assert "cloud.google.com/gke-queued" in {each["key"] for each in made["spec"]["tolerations"]}
    assert cluster.nodes("queued") == []
    cluster.api.create(user)
    cluster.api.create(pod("plain", selector={"cloud.google.com/gke-nodepool": "queued"}))
    for name in ("user", "plain"):
        cluster.api.until(f"{name} is unschedulable", lambda name=name: _unschedulable(cluster, name), WITHIN_S)  # type: ignore[misc]
    # One round later, another pool has grown and this one has not.
    cluster.api.create(pod("other", networks=("default",), selector={"cloud.google.com/gke-nodepool": "gpu"}))
    cluster.running("other")
    assert cluster.nodes("queued") == []
    cluster.delete("user", "plain", "other")


def test_cluster_deletion_empties_api_server(cluster: Cluster) -> None:
    cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ray"}})
    stuck = {"name": "stuck", "namespace": "ray", "finalizers": ["example.com/never"]}
    cluster.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stuck})
    assert cluster.controllers.leftovers()
    clouds.nothing(cluster.state)
    (emptied,) = cluster.events_of(ClusterEmptied)
    assert "ConfigMap ray/stuck" in emptied.forced
    assert cluster.controllers.leftovers() == []


def _request(name: str, *counts: int, template: str = "gang", seconds: str = "3600") -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "provisioningClassName": "queued-provisioning.gke.io",
            "parameters": {"maxRunDurationSeconds": seconds},
            "podSets": [{"count": count, "podTemplateRef": {"name": template}} for count in counts],
        },
    }


def _inner(body: Json) -> Json:
    return {"metadata": {"labels": {"app": "gang"}}, "spec": {**body["spec"], "restartPolicy": "Never"}}


def _pool(state: State, name: str) -> Json:
    with state.transaction() as view:
        return view.get(gcp.NODE_POOL, f"{clouds.GKE}/nodePools/{name}") or {}


def _health(cluster: Cluster) -> tuple[str, str] | None:
    found = cluster.api.get(COMPUTE_CLASS_API, "ComputeClass", "rdma") or {}
    conditions = (found.get("status") or {}).get("conditions")
    return (conditions[0]["status"], conditions[0]["message"]) if conditions else None


def _running(cluster: Cluster, *names: str) -> int:
    return sum(_phase(cluster.api.get("v1", "Pod", name, "default") or {}) == "Running" for name in names)


def _unschedulable(cluster: Cluster, name: str) -> bool:
    found = cluster.api.get("v1", "Pod", name, "default") or {}
    return any(each.get("reason") == "Unschedulable" for each in (found.get("status") or {}).get("conditions") or ())


def _phase(its: Json) -> str | None:
    return (its.get("status") or {}).get("phase")
