"""Kueue's objects and configuration: their shapes, the quotas, and that they leave what pods ask for as it is."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.machines import CATALOG, eks_machine, gke_machine
from infra.eks import queue as on_eks
from infra.gke import queue as on_gke
from infra.kubernetes import queue_facts as facts
from infra.kubernetes.queue_manifest import (
    Admission,
    QueueShape,
    cluster_queue,
    configuration,
    local_queue,
    provisioning,
    resource_flavors,
    times,
    topology,
    worker_resources,
)
from infra.settings import GkeSettings, LocalSettings, parse
from rehearsal.clouds.kubernetes.custom_shapes import custom
from rehearsal.clouds.kubernetes.identity import Api
from rehearsal.clouds.kubernetes.shapes import misfits
from tests.unit.stacks import EKS, GKE, changed, gke

RESERVED = {"nodes.capacity": "reservation", "nodes.reservation": "ours"}
QUEUED = {"nodes.capacity": "flex-start-queued"}
STACKS: dict[str, dict[str, Any]] = {
    "gke": changed(GKE, {}),
    "gke, claims": changed(GKE, {"fabric": "dranet"}),
    "gke, a class": changed(GKE, {"computeClass": True, "nodes.fallback": "spot"}),
    "gke, queued": changed(GKE, QUEUED),
    "gke, queued next": changed(GKE, {**RESERVED, "nodes.fallback": "flex-start-queued"}),
    "gke, places": changed(GKE, {**RESERVED, "nodes.min": 2}),
    "eks": changed(EKS, {}),
    "eks, claims": changed(EKS, {"fabric": "efa-dranet", "nodes.min": 1}),
}


def shape_of(stack: dict[str, Any]) -> QueueShape:
    settings = parse(changed(stack, {"queue": "kueue"}))
    assert not isinstance(settings, LocalSettings)
    if isinstance(settings, GkeSettings):
        return on_gke.queue_shape(settings, gke_machine(settings.nodes.machine))
    return on_eks.queue_shape(settings, eks_machine(settings.nodes.machine))


def objects(shape: QueueShape) -> list[dict[str, Any]]:
    places = topology(shape)
    return [
        *([places] if places else []),
        *resource_flavors(shape),
        *provisioning(shape),
        cluster_queue(shape),
        local_queue(),
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_objects_have_the_shapes_of_their_kinds(stack: str) -> None:
    made = objects(shape_of(STACKS[stack]))
    assert len({(body["kind"], body["metadata"]["name"]) for body in made}) == len(made)
    for body in made:
        group, _, version = body["apiVersion"].partition("/")
        known = custom(Api(group, version, body["kind"]))
        assert known is not None, body["kind"]
        assert list(misfits(known[0], body)) == []
        assert list(misfits(known[0], {**body, "spec": {**body["spec"], "surplus": 1}}))


@pytest.mark.parametrize("stack", STACKS)
def test_what_one_worker_asks_for_is_covered_and_fits_as_often_as_there_are_nodes(stack: str) -> None:
    shape = shape_of(STACKS[stack])
    (group,) = cluster_queue(shape)["spec"]["resourceGroups"]
    worker = worker_resources(shape)
    assert set(group["coveredResources"]) == set(worker)
    assert set(shape.pod.resources["requests"]) <= set(worker)
    assert bool(shape.pod.resource_claims) == (facts.NICS in worker)
    for flavor in group["flavors"]:
        # The definition's own rule, else it is refused: every flavor has every resource of the group.
        assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]
    system, *gpus = group["flavors"]
    assert {each["name"]: each["nominalQuota"] for each in system["resources"]}["nvidia.com/gpu"] == "0"
    for gpu in gpus:
        assert {each["name"]: each["nominalQuota"] for each in gpu["resources"]}["nvidia.com/gpu"] == str(
            8 * shape.nodes
        )


@pytest.mark.parametrize("stack", STACKS)
def test_what_kueue_writes_into_templates_is_there_already_or_not_ours(stack: str) -> None:
    """Selectors and tolerations are atomic for the API server: another value of Kueue's would be a conflict."""
    shape = shape_of(STACKS[stack])
    selector = shape.pod.pod().get("nodeSelector", {})
    for flavor in shape.flavors:
        assert flavor.labels
        assert not selector or dict(flavor.labels).items() <= selector.items()
    assert bool(selector) == (len(shape.flavors) == 1)
    assert all("tolerations" not in body["spec"] for body in resource_flavors(shape))


def test_a_head_never_lands_on_gpu_nodes_and_no_worker_on_cpu_nodes() -> None:
    for stack in STACKS.values():
        shape = shape_of(stack)
        selector = shape.pod.pod().get("nodeSelector", {})
        assert not dict(shape.system_labels).items() <= selector.items()
        assert all(dict(flavor.labels) != dict(shape.system_labels) for flavor in shape.flavors)


def test_queued_machines_are_asked_for_again_as_long_as_we_wait_for_any() -> None:
    config, check = provisioning(shape_of(STACKS["gke, queued"]))
    assert config["spec"]["managedResources"] == ["nvidia.com/gpu"]
    assert config["spec"]["podSetMergePolicy"] == "IdenticalWorkloadSchedulingRequirements"
    retry = config["spec"]["retryStrategy"]
    assert retry["backoffLimitCount"] * retry["backoffMaxSeconds"] == 7 * 24 * 3600
    assert check["spec"]["controllerName"] == "kueue.x-k8s.io/provisioning-request"
    assert provisioning(shape_of(STACKS["gke"])) == []


@pytest.mark.parametrize(
    ("stack", "hours"),
    [("gke", 169), ("gke, queued", 1), ("gke, queued next", 2), ("gke, places", 2), ("gke, a class", 169), ("eks", 2)],
)
def test_nobody_is_evicted_while_machines_or_images_are_on_their_way(stack: str, hours: int) -> None:
    """Kueue's clock starts at admission: with queued machines when they are there, else before they are asked for."""
    assert configuration(shape_of(STACKS[stack]))["waitForPodsReady"]["timeout"] == f"{3600 * hours}s"


def test_kueue_chooses_nodes_by_place_only_where_they_all_stand() -> None:
    places = shape_of(STACKS["gke, places"])
    assert topology(places) is not None
    assert [flavor.topology for flavor in places.flavors] == [True]
    # A flavor with places admits no pod that asks for none.
    assert places.pod.annotations[facts.TOPOLOGY_ANNOTATION] == "cloud.google.com/gce-topology-block"
    assert "networking.gke.io/interfaces" in places.pod.annotations
    for stack in STACKS:
        if stack != "gke, places":
            shape = shape_of(STACKS[stack])
            assert topology(shape) is None
            assert not any(flavor.topology for flavor in shape.flavors)
            assert facts.TOPOLOGY_ANNOTATION not in shape.pod.annotations


@pytest.mark.parametrize(
    ("quantity", "count", "product"),
    [
        ("220", 4, "880"),
        ("8", 125, "1k"),
        ("8", 1000, "8k"),
        ("2800Gi", 4, "11200Gi"),
        ("512Gi", 4, "2Ti"),
        ("2800Gi", 0, "0"),
        ("0", 3, "0"),
        ("16Gi", 3, "48Gi"),
    ],
)
def test_quantities_are_written_as_kubernetes_writes_them(quantity: str, count: int, product: str) -> None:
    assert times(quantity, count) == product


def test_a_quantity_that_is_no_whole_one_is_refused() -> None:
    with pytest.raises(ValueError, match="500m is not a whole quantity"):
        times("500m", 2)


@pytest.mark.parametrize("machine", [row.name for row in CATALOG.values() if row.unsupported is None])
def test_workers_ask_in_quantities_that_stay_as_they_are(machine: str) -> None:
    """Kueue reads a RayCluster into numbers and writes it back; another spelling would look like a change."""
    shape = shape_of(changed(GKE if CATALOG[machine].cloud == "gke" else EKS, {"nodes.machine": machine}))
    assert all(times(amount, 1) == amount for amount in worker_resources(shape).values())


def test_how_long_machines_are_lent_is_said_where_somebody_asks_for_them() -> None:
    def marks(changes: dict[str, Any]) -> Admission:
        return on_gke.admission(gke({"queue": "kueue", **changes}))

    assert marks(QUEUED).annotations == {facts.MAX_RUN_ANNOTATION: str(168 * 3600)}
    assert marks({**QUEUED, "nodes.maxRunHours": 5}).annotations == {facts.MAX_RUN_ANNOTATION: "18000"}
    assert marks({**RESERVED, "nodes.fallback": "flex-start-queued"}).annotations
    assert marks({}).annotations == {}
    assert marks({}).labels == {facts.QUEUE_LABEL: facts.LOCAL_QUEUE}
