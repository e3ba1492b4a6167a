"""What is fixed about every stack on Google Cloud: frame size, node identity, upgrades, the system pool, images.

Facts and choices only, so that those who check a stack need not import what makes it.
"""

from __future__ import annotations

MTU = 8896
"""Bytes; the most that Google Cloud carries, on all three networks (GKE docs rdma-network-profiles, read 2026-08)."""

SYSTEM_POOL = "system"
GPU_POOL = "gpu"
FALLBACK_POOL = "fallback"
"""Node pools, named within their cluster."""
POOL_LABEL = "cloud.google.com/gke-nodepool"
"""GKE labels every node with its pool's name (GKE docs provisioningrequest, Kueue's flavors, 2026-04-08)."""

TOPOLOGY = (
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "kubernetes.io/hostname",
)
"""Labels of nodes, from far to near (GKE docs on topology-aware scheduling, read 2026-08)."""

SYSTEM_MACHINE = "e2-standard-8"
"""Fits the Ray head (4 CPUs, 16 GiB), its autoscaler, KubeRay and GKE's own pods, with room: our choice, 2026-11."""

SYSTEM_MAX_NODES = 3

NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""What a node needs and no more: logs, metrics, autoscaling signals; images of the project's registries
(GKE docs service-accounts, read through third-party audit guides, 2026-11)."""

NODE_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""Scopes are the old way to limit a node; with an account of its own the roles do it (GKE docs access-scopes)."""

EXCLUSION_START = "2026-11-01T00:00:00Z"
"""Any day before the cluster exists. A fixed one, because "now" would show as a change in every preview."""

MAINTENANCE_HOUR = "09:00"
"""UTC. What the exclusion leaves, patches of the control plane, happens then (as cluster-toolkit, 10470803)."""
