"""Objects and configuration of Kueue: schemas, quotas, and that Kueue changes nothing in the pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.catalog.aws import TOPOLOGY as EKS_TOPOLOGY
from infra.catalog.gcp import TOPOLOGY as GKE_TOPOLOGY
from infra.catalog.machines import CATALOG
from infra.catalog.names import LOCAL_QUEUE
from infra.eks import pod as on_eks
from infra.gke import pod as on_gke
from infra.kubernetes.queue_args import QueueArgs
from infra.kubernetes.queue_objects import (
    MAX_RUN_ANNOTATION,
    NICS,
    QUEUE_LABEL,
    TOPOLOGY_ANNOTATION,
    admission_marks,
    cluster_queue,
    configuration,
    resource_flavors,
    times,
    topology,
    worker_resources,
)
from infra.settings import EksSettings, GkeSettings, parse
from tests.unit.stacks import EKS, GKE, changed

RESERVED = {"nodes.capacity": "reservation", "nodes.reservation": "ours"}
QUEUED = {"nodes.capacity": "flex-start-queued"}
STACKS: dict[str, dict[str, Any]] = {
    "gke": changed(GKE, {}),
    "gke, claims": changed(GKE, {"fabric": "managed-dranet"}),
    "gke, a class": changed(GKE, {"computeClass": True, "nodes.fallback": "spot"}),
    "gke, queued": changed(GKE, QUEUED),
    "gke, queued next": changed(GKE, {**RESERVED, "nodes.fallback": "flex-start-queued"}),
    "gke, topology": changed(GKE, {**RESERVED, "nodes.min": 2}),
    "eks": changed(EKS, {}),
    "eks, topology": changed(EKS, {"nodes.min": 2}),
    "eks, claims": changed(EKS, {"fabric": "efa-dranet", "nodes.min": 1}),
}


def args_of(stack: dict[str, Any]) -> QueueArgs:
    settings = parse(changed(stack, {"queue": "kueue"}))
    if isinstance(settings, GkeSettings):
        return on_gke.queue_args(settings, on_gke.gpu_pod(settings, settings.machine))
    assert isinstance(settings, EksSettings)
    return on_eks.queue_args(settings, on_eks.gpu_pod(settings, settings.machine))


@pytest.mark.parametrize("stack", STACKS)
def test_quota_covers_the_requests_of_one_worker_per_node(stack: str) -> None:
    args = args_of(STACKS[stack])
    (group,) = cluster_queue(args)["spec"]["resourceGroups"]
    worker = worker_resources(args)
    assert set(group["coveredResources"]) == set(worker)
    assert set(args.pod.resources["requests"]) <= set(worker)
    assert bool(args.pod.resource_claims) == (NICS in worker)
    for flavor in group["flavors"]:
        # The CRD rejects a flavor that lacks a resource of the group.
        assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]
    system, *gpus = group["flavors"]
    assert {each["name"]: each["nominalQuota"] for each in system["resources"]}["nvidia.com/gpu"] == "0"
    for gpu in gpus:
        assert {each["name"]: each["nominalQuota"] for each in gpu["resources"]}["nvidia.com/gpu"] == str(
            8 * args.nodes
        )


@pytest.mark.parametrize("stack", STACKS)
def test_labels_that_kueue_adds_to_templates_cause_no_conflict(stack: str) -> None:
    """To the API server a node selector is one value: another value from Kueue would be a conflict."""
    args = args_of(STACKS[stack])
    selector = args.pod.pod().get("nodeSelector", {})
    for flavor in args.flavors:
        assert flavor.labels
        assert not selector or dict(flavor.labels).items() <= selector.items()
    assert bool(selector) == (len(args.flavors) == 1)
    assert all("tolerations" not in body["spec"] for body in resource_flavors(args))


def test_flavors_of_cpu_and_gpu_nodes_do_not_overlap() -> None:
    for stack in STACKS.values():
        args = args_of(stack)
        selector = args.pod.pod().get("nodeSelector", {})
        assert not dict(args.system_labels).items() <= selector.items()
        assert all(dict(flavor.labels) != dict(args.system_labels) for flavor in args.flavors)


@pytest.mark.parametrize(
    ("stack", "hours"),
    [
        ("gke", 169),
        ("gke, queued", 1),
        ("gke, queued next", 2),
        ("gke, topology", 2),
        ("gke, a class", 169),
        ("eks", 2),
    ],
)
def test_timeout_covers_the_wait_for_nodes_and_images(stack: str, hours: int) -> None:
    """Kueue counts from admission: with queued nodes when they exist, otherwise before they are requested."""
    assert configuration(args_of(STACKS[stack]))["waitForPodsReady"]["timeout"] == f"{3600 * hours}s"


def test_kueue_uses_topology_only_where_all_nodes_stay_up() -> None:
    preferred = {
        "gke, topology": "cloud.google.com/gce-topology-block",
        "eks, topology": "topology.k8s.aws/network-node-layer-3",
    }
    assert "networking.gke.io/interfaces" in args_of(STACKS["gke, topology"]).pod.annotations
    for stack in STACKS:
        args = args_of(STACKS[stack])
        assert (topology(args) is not None) == (stack in preferred)
        assert {flavor.topology for flavor in args.flavors} == {stack in preferred}
        # A flavor with a topology admits no pod that requests none.
        assert args.pod.annotations.get(TOPOLOGY_ANNOTATION) == preferred.get(stack)


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
def test_quantities_have_the_spelling_of_kubernetes(quantity: str, count: int, product: str) -> None:
    assert times(quantity, count) == product


def test_fractional_quantity_is_rejected() -> None:
    with pytest.raises(ValueError, match="500m is not a whole quantity"):
        times("500m", 2)


@pytest.mark.parametrize("machine", [row.name for row in CATALOG.values() if row.unsupported is None])
def test_requests_of_workers_are_in_canonical_form(machine: str) -> None:
    """Kueue parses a RayCluster and writes it back; another spelling would look like a change."""
    row = CATALOG[machine]
    changes = {"nodes.machine": machine, "nodes.capacity": row.capacities[0]}
    args = args_of(changed(GKE if row.cloud == "gke" else EKS, changes))
    assert all(times(amount, 1) == amount for amount in worker_resources(args).values())


def test_run_time_of_nodes_is_passed_on_with_queued_provisioning() -> None:
    def max_run_s(changes: dict[str, Any]) -> int | None:
        return args_of(changed(GKE, changes)).max_run_s

    assert max_run_s(QUEUED) == 168 * 3600
    assert max_run_s({**QUEUED, "nodes.maxRunHours": 5}) == 18_000
    assert max_run_s({**RESERVED, "nodes.fallback": "flex-start-queued"}) == 168 * 3600
    assert max_run_s({}) is None
    assert admission_marks(LOCAL_QUEUE, 18_000) == ({QUEUE_LABEL: LOCAL_QUEUE}, {MAX_RUN_ANNOTATION: "18000"})
    assert admission_marks(LOCAL_QUEUE, None) == ({QUEUE_LABEL: LOCAL_QUEUE}, {})


def test_documentation_names_what_a_job_needs_on_a_stack_with_a_topology() -> None:
    """A flavor with a topology admits no pod that requests none (cluster-toolkit #3534)."""
    text = (Path(__file__).parents[3] / "docs" / "queues.md").read_text(encoding="utf-8")
    assert f"{TOPOLOGY_ANNOTATION}: {GKE_TOPOLOGY[0]}" in text
    assert f"`{EKS_TOPOLOGY[2]}`" in text
