"""Stack file of a cluster on Google Cloud: sections, defaults and rules."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from infra.addresses import BaseRangeError, gke_addresses
from infra.catalog.capacity import DWS, MAX_RUN_HOURS, QUEUED, TOOLKIT
from infra.catalog.machines import GKE_CATALOG
from infra.settings.common import (
    ADDRESSES,
    KUBERNETES_LIMITS,
    CloudAccess,
    CloudNetwork,
    CloudNodes,
    CloudSettings,
    NameLimit,
    not_a_bucket,
    not_a_zone,
    not_available,
    supported,
)
from infra.settings.fields import Cidr, Derived, Flag, FromText, OneOf
from infra.settings.problems import Finding, Found, Rules

BUCKETS = "Cloud Storage docs naming-buckets, read 2026-11"
COMPUTE_CLASS = "GKE docs ComputeClass CRD reference and concepts, 2026-04-13"
FLAVORS = "kubernetes-sigs/kueue 0.19.2: flavors are tried in their order, by quota (pkg/scheduler/flavorassigner)"
GCE_NAMES = "Compute Engine docs, resource naming: at most 63 characters; unverified, 2026-11"
GKE_NAMES = "GKE docs, Cluster and NodePool REST resources: at most 40 characters; checked 2026-11"
ROCE = "Google Cloud docs rdma-network-profiles, read 2026-08: an RDMA network belongs to one zone"

GkeCapacityName = Literal["flex-start", "flex-start-queued", "spot", "reservation", "on-demand"]
GkeFabricName = Literal["multi-network", "dranet", "managed-dranet"]

NAME_LIMITS = (
    NameLimit("GKE cluster", 40, "", GKE_NAMES),
    # Node pools are named within their cluster; the nodes' service account is cut to fit (infra/gke/names.py).
    NameLimit("firewall rule", 63, "-gvnic-internal", GCE_NAMES),
    *KUBERNETES_LIMITS,
)


class GkeNodes(CloudNodes):
    """Node pool of GPU machines."""

    machine: Annotated[str, OneOf(tuple(GKE_CATALOG))] = Field(examples=supported("gke"))
    capacity: GkeCapacityName = "flex-start"
    fallback: GkeCapacityName | None = Field(
        None,
        title="capacity",
        description="gke: second choice of capacity, when the first has no machine. Needs computeClass; "
        "flex-start-queued after a reservation needs queue kueue instead.",
    )
    max_run_hours: Annotated[
        Annotated[int, Field(ge=1, le=100_000), FromText] | None,
        Derived(
            lambda s: MAX_RUN_HOURS if "flex-start" in f"{s.nodes.capacity} {s.nodes.fallback}" else None,
            f"{MAX_RUN_HOURS} with flex-start, else not set",
        ),
    ] = Field(title="hours", description="gke: hours after which a flex-start node ends, at most 168 (seven days).")

    @property
    def capacities(self) -> tuple[str, ...]:
        """Kinds of capacity in the order in which they are tried."""
        return (self.capacity,) if self.fallback is None else (self.capacity, self.fallback)


class GkeAccess(CloudAccess):
    """Who reaches the cluster's control plane."""

    egress: Literal["nat"] = "nat"


class GkeNetwork(CloudNetwork):
    """Addresses of the stack's own networks."""

    base_range: Cidr = "10.64.0.0/14"


class GkeSettings(CloudSettings):
    """Stack file of a cluster on Google Cloud."""

    target: Literal["gke"]
    nodes: GkeNodes
    fabric: GkeFabricName = "multi-network"
    compute_class: Flag = Field(
        False, description="gke: provision nodes through a ComputeClass, which can try a second kind of capacity."
    )
    access: GkeAccess
    network: GkeNetwork


RULES = Rules()
rule = RULES.add


@rule("location", source=ROCE)
def location_not_a_zone(s: GkeSettings) -> Finding:
    """RDMA does not leave a zone, so the location is a zone."""
    return not_a_zone(s.location, r"[a-z]+-[a-z]+\d+-[a-z]", r"[a-z]+-[a-z]+\d+", "-b", "us-central1-b")


@rule("nodes.fallback", "nodes.machine", source=TOOLKIT)
def fallback_unavailable(s: GkeSettings) -> Finding:
    """Google Cloud does not offer the machine type as the second choice."""
    if s.nodes.fallback is not None:
        yield from not_available(s.nodes.machine, s.nodes.fallback, "nodes.fallback")


@rule("nodes.reservation", "nodes.capacity", "nodes.fallback", source=TOOLKIT)
def reservation_missing(s: GkeSettings) -> Finding:
    """The capacity is a reservation, and none is named."""
    if "reservation" in (s.nodes.capacity, s.nodes.fallback) and s.nodes.reservation is None:
        yield Found(
            "Capacity reservation needs the reservation's name; without it the nodes would be bought on demand or "
            "never start.",
            "set nodes.reservation to the reservation's name",
        )


@rule("nodes.reservation", "nodes.capacity", source=TOOLKIT)
def reservation_unused(s: GkeSettings) -> Finding:
    """A reservation is named, but the capacity is another one."""
    if s.nodes.reservation is None or "reservation" in (s.nodes.capacity, s.nodes.fallback):
        return
    fix = "remove nodes.reservation, or set nodes.capacity to reservation"
    if s.nodes.capacity.startswith("flex-start"):
        says = (
            f"{s.nodes.capacity} nodes come from outside every reservation: GKE rejects the node pool unless its "
            "reservation affinity is none, and the reservation would be paid for and idle."
        )
        yield Found(says, fix, f"{TOOLKIT}; terraform-provider-google #18341")
    else:
        yield Found(f"{s.nodes.capacity} nodes do not use a reservation, so this one would be paid for and idle.", fix)


@rule("nodes.reservation", source=TOOLKIT)
def reservation_malformed(s: GkeSettings) -> Finding:
    """The name cannot be a reservation's."""
    part = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    name = rf"(projects/[^/]+/reservations/)?{part}(/reservationBlocks/{part}(/reservationSubBlocks/{part})?)?"
    if s.nodes.reservation is not None and not re.fullmatch(name, s.nodes.reservation):
        yield Found(
            f"{s.nodes.reservation} cannot be the name of a reservation; Google Cloud would not find it.",
            "write a name, or projects/PROJECT/reservations/NAME/reservationBlocks/BLOCK",
        )


@rule("nodes.maxRunHours", "nodes.capacity", source=DWS)
def run_time_too_long(s: GkeSettings) -> Finding:
    """A flex-start node runs for seven days at most."""
    if has_flex_start(s) and (s.nodes.max_run_hours or 0) > MAX_RUN_HOURS:
        yield Found(
            f"A flex-start node ends after {MAX_RUN_HOURS} hours (seven days); GKE rejects {s.nodes.max_run_hours}.",
            f"set nodes.maxRunHours to {MAX_RUN_HOURS} or less, and let the training resume from checkpoints",
        )


@rule("nodes.maxRunHours", "nodes.capacity", source=DWS)
def run_time_without_flex_start(s: GkeSettings) -> Finding:
    """Only flex-start nodes have a run time."""
    if not has_flex_start(s) and s.nodes.max_run_hours is not None:
        yield Found(
            f"{s.nodes.capacity} nodes have no run time; nothing would end them after {s.nodes.max_run_hours} hours.",
            "remove nodes.maxRunHours, or set nodes.capacity to flex-start",
        )


def has_flex_start(s: GkeSettings) -> bool:
    """Return whether one of the capacities is flex-start, queued or not."""
    return "flex-start" in f"{s.nodes.capacity} {s.nodes.fallback}"


@rule("nodes.min", "nodes.capacity", source=TOOLKIT)
def flex_start_not_static(s: GkeSettings) -> Finding:
    """A flex-start pool begins empty and grows on demand."""
    if s.nodes.capacity == "flex-start" and s.nodes.min > 0:
        yield Found(
            "A flex-start pool has no static nodes: they start when pods wait, and end after seven days at the latest. "
            f"{s.nodes.min} nodes cannot stay up.",
            "set nodes.min to 0",
        )


@rule("nodes.fallback", "computeClass", source=COMPUTE_CLASS)
def fallback_without_compute_class(s: GkeSettings) -> Finding:
    """A ComputeClass tries a second capacity; only queued nodes are for Kueue to choose."""
    queued = "flex-start-queued" in (s.nodes.capacity, s.nodes.fallback)
    if s.nodes.fallback is not None and not s.compute_class and not queued:
        yield Found(
            "Without a ComputeClass, nothing orders the capacities, so the second would never be tried.",
            "set computeClass to true, or remove nodes.fallback",
        )


@rule("nodes.fallback", "nodes.capacity", source=COMPUTE_CLASS)
def fallback_repeats_capacity(s: GkeSettings) -> Finding:
    """The second choice is the first."""
    if s.nodes.fallback == s.nodes.capacity != "flex-start-queued":
        yield Found(
            f"Both choices are {s.nodes.fallback}; when the first has no machine, the second has none either.",
            "choose another fallback, or remove it",
        )


@rule("nodes.min", "nodes.capacity", source=QUEUED)
def queued_not_static(s: GkeSettings) -> Finding:
    """A queued pool has no node without an admitted request."""
    if s.nodes.capacity == "flex-start-queued" and s.nodes.min > 0:
        yield Found(
            "Queued nodes exist for one admitted request only; GKE rejects a queued pool with a minimum above 0.",
            "set nodes.min to 0",
        )


@rule("nodes.capacity", "queue", source=QUEUED)
def queued_without_kueue(s: GkeSettings) -> Finding:
    """Kueue creates the ProvisioningRequests."""
    if s.nodes.capacity == "flex-start-queued" and s.queue != "kueue":
        yield Found(
            "Queued nodes start only for a ProvisioningRequest, and only Kueue creates one: pods would stay Pending.",
            "set queue to kueue, or nodes.capacity to flex-start",
        )


@rule("computeClass", "nodes.capacity", source=f"field report on queued provisioning, read 2026-08; {QUEUED}")
def queued_with_compute_class(s: GkeSettings) -> Finding:
    """ComputeClass and ProvisioningRequest exclude each other."""
    if s.nodes.capacity == "flex-start-queued" and s.compute_class:
        yield Found(
            "A ProvisioningRequest cannot request nodes of a ComputeClass, so it would never be provisioned.",
            "set computeClass to false, or nodes.capacity to flex-start",
        )


@rule("nodes.fallback", "nodes.capacity", source=QUEUED)
def queued_with_fallback(s: GkeSettings) -> Finding:
    """A queued request waits for its own pool only."""
    if s.nodes.capacity == "flex-start-queued" and s.nodes.fallback is not None:
        yield Found(
            f"A queued request waits for one pool; {s.nodes.fallback} would never be tried.",
            "remove nodes.fallback, or set nodes.capacity to flex-start and computeClass to true",
        )


@rule("nodes.fallback", "computeClass", source=f"{COMPUTE_CLASS}; {QUEUED}")
def queued_fallback_with_compute_class(s: GkeSettings) -> Finding:
    """A ComputeClass does not provision queued nodes."""
    if queued_second(s) and s.compute_class:
        yield Found(
            "A ComputeClass cannot provision queued nodes: they start for a ProvisioningRequest only.",
            "set nodes.fallback to flex-start or spot, or computeClass to false after a reservation with queue kueue",
        )


@rule("nodes.fallback", "nodes.capacity", source=f"{FLAVORS}; {QUEUED}")
def queued_fallback_without_reservation(s: GkeSettings) -> Finding:
    """Kueue tries the second choice when the first's quota is in use, not when its machines are."""
    if queued_second(s) and not s.compute_class and s.nodes.capacity != "reservation":
        yield Found(
            "Kueue tries queued nodes when the first choice's quota is in use. Only the quota of a reservation means "
            f"that its machines exist; that of {s.nodes.capacity} is free without any, and a job would wait there.",
            "set nodes.capacity to reservation, or to flex-start-queued and remove nodes.fallback",
        )


@rule("nodes.fallback", "queue", source=QUEUED)
def queued_fallback_without_kueue(s: GkeSettings) -> Finding:
    """Kueue tries the reservation first, and then creates the ProvisioningRequests."""
    if queued_second(s) and not s.compute_class and s.nodes.capacity == "reservation" and s.queue != "kueue":
        yield Found(
            "Queued nodes start only for a ProvisioningRequest, and only Kueue creates one when the reservation is in "
            "use.",
            "set queue to kueue, or remove nodes.fallback",
        )


def queued_second(s: GkeSettings) -> bool:
    """Return whether only the second choice is queued."""
    return s.nodes.fallback == "flex-start-queued" != s.nodes.capacity


@rule("storage.bucket", source=BUCKETS)
def bucket_malformed(s: GkeSettings) -> Finding:
    """The name cannot be a bucket's."""
    name = s.storage.bucket or "bucket"
    # A name with dots may be longer, as long as no part of it is.
    accepted = re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name) and "google" not in name
    accepted = accepted and all(1 <= len(part) <= 63 for part in name.split(".")) and not name.startswith("goog")
    words = "Cloud Storage: 3 to 63 of a-z, 0-9, - _ and ., with a letter or digit at both ends, without google"
    return not_a_bucket(name, bool(accepted), words)


@rule("network.baseRange", "nodes.max", source=ADDRESSES)
def base_range_too_small(s: GkeSettings) -> Finding:
    """Every node, pod and NIC needs an address."""
    try:
        gke_addresses(IPv4Network(s.network.base_range), s.nodes.max, GKE_CATALOG[s.nodes.machine].nics)
    except BaseRangeError as error:
        yield Found(error.says, error.fix)
