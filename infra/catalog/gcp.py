"""Facts about Google Cloud, and the sizes and choices of every stack there: networks, nodes, upgrades, versions.

This module imports no SDK, so validation can use it.
"""

from __future__ import annotations

import re

MTU = 8896
"""Bytes; Google Cloud's maximum, used on all three networks (GKE docs rdma-network-profiles, read 2026-08)."""

NAT_PORTS = 1024, 32768
"""Fewest and most NAT ports of a node. With the default of 64, many parallel downloads from one hub fail; ports are
allocated as connections need them, and both numbers are powers of 2 (Compute Engine API, RouterNat,
enableDynamicPortAllocation, read 2026-11)."""

# Nodes

SYSTEM_POOL = "system"
GPU_POOL = "gpu"
FALLBACK_POOL = "fallback"
"""Names of node pools, unique within their cluster. Machines without GPUs have the same ones: a change of the machine
does not rename a pool."""
POOL_LABEL = "cloud.google.com/gke-nodepool"
"""Label of every node with its pool's name (GKE docs provisioningrequest, Kueue's flavors, 2026-04-08)."""
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
"""Label of every GPU node with `GkeMachine.accelerator` (GKE docs gpus, read 2026-08)."""

TOPOLOGY = (
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "kubernetes.io/hostname",
)
"""Topology labels of nodes, highest level first (GKE docs, topology-aware scheduling, read 2026-08)."""

NODE_ROLES = (
    "roles/container.defaultNodeServiceAccount",
    "roles/artifactregistry.reader",
    "roles/serviceusage.serviceUsageConsumer",
)
"""Minimum roles of a node: write logs, metrics and autoscaling signals, pull images from the project's registries (GKE
docs service-accounts; unverified, 2026-11), and stream them: without the last one, pods fail on nodes with their own
account (GKE docs image-streaming; terraform-google-kubernetes-engine #2251, #2262; 2026-11)."""

NODE_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""Legacy limit of a node, left open: the roles of its service account limit it (GKE docs access-scopes)."""

LOCAL_SSD_GB = 375
"""Size of a local SSD, GB, by which quotas count them (Compute Engine docs disks/local-ssd, read 2026-11). Where a
machine has them, they hold all that pods store on disk."""

# Project

APIS = (
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "serviceusage.googleapis.com",
    "containerfilesystem.googleapis.com",
)
"""APIs of every stack (pulumi-gcp 10.2.0: the resources' APIs; GKE docs image-streaming, requirements, 2026-11)."""
BUCKET_API = "storage.googleapis.com"
BUDGET_API = "billingbudgets.googleapis.com"
REGISTRY_API = "artifactregistry.googleapis.com"
BINARY_AUTHORIZATION_API = "binaryauthorization.googleapis.com"
"""APIs of a stack with a bucket, a budget, an image in Artifact Registry, or hardening."""

OPERATOR_ROLES = (
    "roles/container.admin",
    "roles/compute.admin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountUser",
    "roles/resourcemanager.projectIamAdmin",
)
"""Roles on the project of who runs `make up` (AI Hypercomputer docs, operator roles, 2026-04)."""

# Upgrades

EXCLUSION_START = "2026-11-01T00:00:00Z"
"""Start of the maintenance exclusion: a fixed day before the cluster exists. The current time would change in every
preview."""

MAINTENANCE_HOUR = "09:00"
"""Start of the daily maintenance window, UTC, for control plane patches (as cluster-toolkit, 10470803)."""


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key of a GKE version ("1.34.1-gke.1829001", or only "1.34"); missing parts count as 0."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version))
    return (*numbers, 0, 0, 0, 0)[:4]
