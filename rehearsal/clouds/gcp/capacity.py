"""Capacity and machines of node pools: node configuration with GKE's additions, and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.gcp.offerings import MACHINES, has_machine
from rehearsal.clouds.gcp.references import TOOLKIT, TPG, pool_zones, tested
from rehearsal.engine.kind import Call, Json, value_at
from rehearsal.engine.values import last

_QUEUED = tested("ContainerNodePool_enableQueuedProvisioning")
_RDMA = f"{TOOLKIT}: examples/gke-a3-ultragpu"

GPU_TAINT: Json = {"effect": "NO_SCHEDULE", "key": "nvidia.com/gpu", "value": "present"}
"""On every GPU node (GKE docs gpus; observed in the reference's seeds, read 2026-08)."""
QUEUED_TAINT: Json = {"effect": "NO_SCHEDULE", "key": "cloud.google.com/gke-queued", "value": "true"}
"""On every node of a queued pool (GKE docs provisioningrequest, 2026-04-08)."""


def node(inputs: Mapping[str, Any]) -> Json:
    """Return the requested node configuration, or an empty one."""
    return inputs.get("nodeConfig") or {}


def machine(inputs: Mapping[str, Any]) -> str:
    """Return the machine type; the default is e2-medium (hashicorp/terraform-provider-google#8387, 2021-02-04)."""
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
    asked, row = node(inputs), MACHINES.get(machine(inputs), {})
    model = "flex-start" if is_flex(inputs) else "spot" if is_spot(inputs) else "on-demand"
    taints = asked.get("taints") or []
    forced = [*([GPU_TAINT] if asked.get("guestAccelerators") else []), *([QUEUED_TAINT] if is_queued(inputs) else [])]
    added: Json = {
        "machineType": machine(inputs),
        "imageType": "COS_CONTAINERD",
        "diskSizeGb": 100,
        "diskType": row.get("bootDisks", ["pd-balanced"])[0],
        "serviceAccount": "default",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "metadata": {"disable-legacy-endpoints": "true"},
        "resourceLabels": {"goog-gke-node-pool-provisioning-model": model},
        "effectiveTaints": [*taints, *(taint for taint in forced if taint not in taints)],
        "shieldedInstanceConfig": {"enableIntegrityMonitoring": True, "enableSecureBoot": False},
    }
    if row.get("localSsds"):
        added["ephemeralStorageLocalSsdConfig"] = {"localSsdCount": row["localSsds"], "dataCacheCount": 0}
    return added


@rule(refused=f"{TPG}#18341, 2024-06-06", accepted=_QUEUED)
def queued_needs_no_reservation(call: Call) -> str | None:
    """Queued nodes explicitly use no reservation."""
    wrong = is_queued(call.inputs) and affinity(call.inputs) != "NO_RESERVATION"
    return "Queued_provisioning requires reservation affinity to be set to none" if wrong else None


@rule(refused="GoogleCloudPlatform/kubernetes-engine-samples#1738, 2025-07-16", accepted=_RDMA)
def machine_type_is_in_zone(call: Call) -> str | None:
    """Every zone of the pool has the machine type."""
    missing = [zone for zone in pool_zones(call) if not has_machine(zone, machine(call.inputs))]
    return f'Machine type "{machine(call.inputs)}" does not exist in zone "{missing[0]}".' if missing else None


@rule(refused=f"{TPG}#8387, 2021-02-04; skypilot-org/skypilot#212, 2022-01-18", accepted=_QUEUED)
def gpus_match_machine_type(call: Call) -> str | None:
    """The default machine type takes no GPUs; a machine type that has GPUs takes all of its own."""
    row = MACHINES.get(machine(call.inputs), {})
    for asked in node(call.inputs).get("guestAccelerators") or []:
        if machine(call.inputs) == "e2-medium":
            return "Cannot use default machine type (e2-medium) with GPUs; choose a different machine type."
        its = (last(str(asked.get("type"))), asked.get("count"))
        if "accelerator" in row and its != (row["accelerator"], row["gpus"]):
            return f"[{asked.get('type')}, {machine(call.inputs)}] features are not compatible for creating instance."
    return None


@rule(refused="NVIDIA/aicr#2338, 2026-08-25", accepted=_RDMA)
def boot_disk_fits_machine_type(call: Call) -> str | None:
    """Newer machines boot from Hyperdisk only."""
    disks = MACHINES.get(machine(call.inputs), {}).get("bootDisks")
    asked = node(call.inputs).get("diskType") or value_at(call.inputs, "nodeConfig.bootDisk.diskType")
    wrong = disks and asked and asked not in disks
    return f"{asked} disk type cannot be used by {machine(call.inputs)} machine type." if wrong else None


RULES = rules_of(globals())
