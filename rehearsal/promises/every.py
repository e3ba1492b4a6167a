"""The promises of each target."""

from __future__ import annotations

from rehearsal.promises import (
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
from rehearsal.promises.promise import Promise

_RAY = (*ray.PROMISES, *ray_job.PROMISES, *indexed_job.PROMISES)

PROMISES: dict[str, tuple[Promise, ...]] = {
    "gke": (
        *gke_networks.PROMISES,
        *gke_nodes.PROMISES,
        *kubernetes.PROMISES,
        *_RAY,
        *queues.PROMISES,
        *queued_capacity.PROMISES,
    ),
    "eks": (
        *eks_network.PROMISES,
        *eks_nodes.PROMISES,
        *eks_storage.PROMISES,
        *eks_cluster.PROMISES,
        *kubernetes.PROMISES,
        *_RAY,
        *queues.PROMISES,
    ),
}
"""A target that is not here makes nothing that a simulated cloud knows."""
