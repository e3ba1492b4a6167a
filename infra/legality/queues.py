"""Rules about the queue: what Kueue admits, and machines that come for an admitted request only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.catalog.capacity import QUEUED
from infra.legality.capacity import COMPUTE_CLASS
from infra.problems import Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

KUEUE = "kubernetes-sigs/kueue 0.19.2: RayCluster webhook, ff69552e, 2026-08-22"
FLAVORS = "kubernetes-sigs/kueue 0.19.2: flavors are tried in their order, by quota (pkg/scheduler/flavorassigner)"


def kueue_wants_a_fixed_size(s: Settings) -> Problem | None:
    """Kueue admits a cluster of a known size."""
    if s.target == "local" or s.queue != "kueue" or s.ray.min_workers == s.ray.max_workers:
        return None
    return Problem(
        settings=("ray.minWorkers", "ray.maxWorkers", "queue"),
        says="Kueue admits a cluster whole, so its size is fixed; it refuses one "
        "that Ray's own autoscaler would resize.",
        fix=f"set ray.minWorkers to {s.ray.max_workers} (or leave it out), or queue to none",
        source=KUEUE,
    )


def queued_starts_empty(s: Settings) -> Problem | None:
    """A queued pool has no node outside an admitted request."""
    if s.target != "gke" or s.nodes.capacity != "flex-start-queued" or s.nodes.min == 0:
        return None
    return Problem(
        settings=("nodes.min", "nodes.capacity"),
        says="Queued nodes exist for one admitted request only; GKE refuses a queued pool with a minimum above 0.",
        fix="set nodes.min to 0",
        source=QUEUED,
    )


def queued_needs_kueue(s: Settings) -> Problem | None:
    """Somebody has to file the ProvisioningRequests."""
    if s.target != "gke" or s.nodes.capacity != "flex-start-queued" or s.queue == "kueue":
        return None
    return Problem(
        settings=("nodes.capacity", "queue"),
        says="Queued nodes come only for a ProvisioningRequest, and without Kueue nobody files one: pods would stay "
        "Pending for ever.",
        fix="set queue to kueue, or nodes.capacity to flex-start",
        source=QUEUED,
    )


def queued_with_compute_class(s: Settings) -> Problem | None:
    """ComputeClass and ProvisioningRequest exclude each other."""
    if s.target != "gke" or s.nodes.capacity != "flex-start-queued" or not s.compute_class:
        return None
    return Problem(
        settings=("computeClass", "nodes.capacity"),
        says="A ProvisioningRequest cannot ask for nodes of a ComputeClass, so no request would ever be provisioned.",
        fix="set computeClass to false, or nodes.capacity to flex-start",
        source=f"field report on queued provisioning, read 2026-08; {QUEUED}",
    )


def queued_has_no_fallback(s: Settings) -> Problem | None:
    """A queued request waits for its own pool only."""
    if s.target != "gke" or s.nodes.capacity != "flex-start-queued" or s.nodes.fallback is None:
        return None
    return Problem(
        settings=("nodes.fallback", "nodes.capacity"),
        says=f"A queued request waits for one pool; {s.nodes.fallback} would never be tried.",
        fix="remove nodes.fallback, or set nodes.capacity to flex-start and computeClass to true",
        source=QUEUED,
    )


def fallback_cannot_queue(s: Settings) -> Problem | None:
    """Queued provisioning is no rung of a ComputeClass."""
    if not _queues_second(s) or not s.compute_class:
        return None
    return Problem(
        settings=("nodes.fallback", "computeClass"),
        says="A ComputeClass cannot hand out queued nodes: they come for a ProvisioningRequest only.",
        fix="set nodes.fallback to flex-start or spot, or computeClass to false after a reservation with queue kueue",
        source=f"{COMPUTE_CLASS}; {QUEUED}",
    )


def queued_after_a_guess(s: Settings) -> Problem | None:
    """Kueue goes on to the second choice when the first's quota is taken, not when its machines are."""
    if not _queues_second(s) or s.compute_class or s.nodes.capacity == "reservation":
        return None
    return Problem(
        settings=("nodes.fallback", "nodes.capacity"),
        says="Kueue tries queued machines when the first choice's quota is taken. Only a reservation's quota says that "
        f"its machines are there; that of {s.nodes.capacity} is free without any, and a job would wait there.",
        fix="set nodes.capacity to reservation, or to flex-start-queued and remove nodes.fallback",
        source=f"{FLAVORS}; {QUEUED}",
    )


def queued_second_needs_kueue(s: Settings) -> Problem | None:
    """Somebody has to try the reservation first, and to file the ProvisioningRequests."""
    if not _queues_second(s) or s.compute_class or s.nodes.capacity != "reservation" or s.queue == "kueue":
        return None
    return Problem(
        settings=("nodes.fallback", "queue"),
        says="Queued nodes come only for a ProvisioningRequest, and without Kueue nobody files one when the "
        "reservation is taken.",
        fix="set queue to kueue, or remove nodes.fallback",
        source=QUEUED,
    )


def _queues_second(s: Settings) -> bool:
    first, second = s.nodes.capacity, s.nodes.fallback
    return s.target == "gke" and second == "flex-start-queued" and first != "flex-start-queued"


RULES: tuple[Rule, ...] = (
    kueue_wants_a_fixed_size,
    queued_starts_empty,
    queued_needs_kueue,
    queued_with_compute_class,
    queued_has_no_fallback,
    fallback_cannot_queue,
    queued_after_a_guess,
    queued_second_needs_kueue,
)
