"""Node configuration of clusters and node pools: replacement and GKE's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.kind import Json

# ForceNew in services/container/node_config.go (`refusals.PROVIDER_NODE`), relative to nodeConfig. Machine type, disk,
# image, labels, taints, tags and gvnic are updated in place.
NODE_CONFIG_REPLACES = frozenset(
    {
        *("advancedMachineFeatures", "bootDiskKmsKey", "confidentialNodes.confidentialInstanceType"),
        *("enableConfidentialStorage", "ephemeralStorageConfig", "ephemeralStorageLocalSsdConfig", "flexStart"),
        *("guestAccelerators", "hostMaintenancePolicy", "localNvmeSsdBlockConfig", "localSsdCount"),
        *("localSsdEncryptionMode", "maxRunDuration", "metadata", "minCpuPlatform", "nodeGroup", "oauthScopes"),
        *("preemptible", "reservationAffinity", "sandboxConfig", "secondaryBootDisks", "serviceAccount"),
        *("shieldedInstanceConfig", "soleTenantConfig", "spot"),
    }
)
NODE_MAPS = frozenset({"nodeConfig.labels", "nodeConfig.metadata"})
"""Without nodeConfig.resourceLabels: the provider hides GKE's additions (`refusals.PROVIDER_NODE`)."""

GPU_TAINT: Json = {"effect": "NO_SCHEDULE", "key": "nvidia.com/gpu", "value": "present"}
"""On every GPU node (GKE docs gpus; observed in the reference's seeds, read 2026-08)."""
QUEUED_TAINT: Json = {"effect": "NO_SCHEDULE", "key": "cloud.google.com/gke-queued", "value": "true"}
"""On every node of a queued pool (GKE docs provisioningrequest, 2026-04-08)."""


def node(inputs: Mapping[str, Any]) -> Json:
    """Return the requested node configuration, or an empty one."""
    return inputs.get("nodeConfig") or {}


def machine(inputs: Mapping[str, Any]) -> str:
    """Return the machine type; the default is e2-medium (GKE docs, node pools; unverified, 2026-11)."""
    return str(node(inputs).get("machineType") or "e2-medium")


def affinity(inputs: Mapping[str, Any]) -> str | None:
    """Return nodeConfig.reservationAffinity.consumeReservationType, if set."""
    kind = (node(inputs).get("reservationAffinity") or {}).get("consumeReservationType")
    return None if kind is None else str(kind)


def is_flex(inputs: Mapping[str, Any]) -> bool:
    """Return whether the nodes are flex-start nodes."""
    return node(inputs).get("flexStart") is True


def is_queued(inputs: Mapping[str, Any]) -> bool:
    """Return whether the nodes need ProvisioningRequests."""
    return (inputs.get("queuedProvisioning") or {}).get("enabled") is True


def is_spot(inputs: Mapping[str, Any]) -> bool:
    """Return whether the nodes may be preempted."""
    return node(inputs).get("spot") is True or node(inputs).get("preemptible") is True


def filled_in(inputs: Mapping[str, Any]) -> Json:
    """Return GKE's additions to a node configuration at creation."""
    asked = node(inputs)
    accelerated = bool(asked.get("guestAccelerators"))
    row = GKE_CATALOG.get(machine(inputs))
    model = "flex-start" if is_flex(inputs) else "spot" if is_spot(inputs) else "on-demand"
    added: Json = {
        "machineType": machine(inputs),
        "imageType": "COS_CONTAINERD",
        "diskSizeGb": 100,
        "diskType": row.boot_disk if row else "pd-balanced",
        "serviceAccount": "default",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "metadata": {"disable-legacy-endpoints": "true"},
        "loggingVariant": "DEFAULT",
        "resourceLabels": {"goog-gke-node-pool-provisioning-model": model},
        "effectiveTaints": [
            *(asked.get("taints") or []),
            *([GPU_TAINT] if accelerated else []),
            *([QUEUED_TAINT] if is_queued(inputs) else []),
        ],
        "shieldedInstanceConfig": {"enableIntegrityMonitoring": True, "enableSecureBoot": False},
    }
    if row and row.local_ssds and not asked.get("localNvmeSsdBlockConfig"):
        added["ephemeralStorageLocalSsdConfig"] = {"localSsdCount": row.local_ssds, "dataCacheCount": 0}
    if row:
        added["gvnic"] = {"enabled": True}
    return added
