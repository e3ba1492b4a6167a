"""Invariants of each target."""

from __future__ import annotations

from rehearsal.invariants import (
    eks_cluster,
    eks_network,
    eks_nodes,
    eks_storage,
    gke_networks,
    gke_nodes,
    indexed_job,
    kubernetes,
    queued_capacity,
    queues,
    ray,
    ray_job,
)
from rehearsal.invariants.invariant import Invariant

_RAY = (*ray.INVARIANTS, *ray_job.INVARIANTS, *indexed_job.INVARIANTS)

INVARIANTS: dict[str, tuple[Invariant, ...]] = {
    "gke": (
        *gke_networks.INVARIANTS,
        *gke_nodes.INVARIANTS,
        *kubernetes.INVARIANTS,
        *_RAY,
        *queues.INVARIANTS,
        *queued_capacity.INVARIANTS,
    ),
    "eks": (
        *eks_network.INVARIANTS,
        *eks_nodes.INVARIANTS,
        *eks_storage.INVARIANTS,
        *eks_cluster.INVARIANTS,
        *kubernetes.INVARIANTS,
        *_RAY,
        *queues.INVARIANTS,
    ),
}
"""A target without an entry has no simulated cloud."""
