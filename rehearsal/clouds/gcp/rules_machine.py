"""Rules of a node pool's machines: zone, accelerators, version, disks, NIC driver, image."""

from __future__ import annotations

from infra.catalog.machines import GKE_CATALOG, GkeMachine
from rehearsal.clouds.gcp.node_config import machine, node
from rehearsal.clouds.gcp.offerings import ZONES_SOURCE, has_machine, key
from rehearsal.clouds.gcp.references import cluster_of, last, pool_zones, project_of
from rehearsal.clouds.gcp.refusals import MACHINES, TOOLKIT, UNVERIFIED, bad
from rehearsal.clouds.kind import Call, Refusal, on, value_at


def _row(call: Call) -> GkeMachine | None:
    return GKE_CATALOG.get(machine(call.inputs))


@on("create", "update")
def machine_not_in_zone(call: Call) -> Refusal | None:
    """Every zone of the pool has the machine type."""
    for zone in pool_zones(call):
        if not has_machine(zone, machine(call.inputs)):
            name = f"projects/{project_of(call.inputs, call.config)}/zones/{zone}/machineTypes/{machine(call.inputs)}"
            return bad(
                f"Invalid value for field 'resource.machineType': '{name}'. Machine type '{machine(call.inputs)}' does "
                f"not exist in zone '{zone}'.",
                f"{ZONES_SOURCE}; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def accelerator_differs(call: Call) -> Refusal | None:
    """A machine type has one type of GPU."""
    row = _row(call)
    for accelerator in node(call.inputs).get("guestAccelerators") or []:
        if row and last(str(accelerator.get("type"))) != row.accelerator:
            return bad(
                f"Accelerator type {accelerator.get('type')} is not compatible with machine type {row.name}, which has "
                f"{row.accelerator}.",
                f"{row.sources['accelerator']}; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def accelerator_count_differs(call: Call) -> Refusal | None:
    """A machine type has a fixed number of GPUs."""
    row = _row(call)
    for accelerator in node(call.inputs).get("guestAccelerators") or []:
        if row and int(accelerator.get("count") or 0) != row.gpus:
            return bad(
                f"Machine type {row.name} requires {row.gpus} accelerators, got {accelerator.get('count')}.",
                f"{row.sources['gpus']}; wording {UNVERIFIED}",
            )
    return None


@on("create")
def accelerators_missing(call: Call) -> Refusal | None:
    """A machine type with GPUs needs an accelerator block."""
    row = _row(call)
    if row is None or node(call.inputs).get("guestAccelerators"):
        return None
    return bad(
        f"Machine type {row.name} requires accelerators to be specified: {row.gpus} of {row.accelerator}.",
        f"{row.sources['accelerator']}; wording {UNVERIFIED}",
    )


@on("create", "update")
def version_too_old(call: Call) -> Refusal | None:
    """A machine type needs a minimum version of GKE."""
    row = _row(call)
    version = str(call.inputs.get("version") or (cluster_of(call) or {}).get("masterVersion") or "")
    if row is None or not version or key(version) >= key(row.min_versions["nodes"]):
        return None
    return bad(
        f"Machine type {row.name} requires GKE version {row.min_versions['nodes']} or later, got {version}.",
        f"{row.sources['min_versions']}; wording {UNVERIFIED}",
    )


@on("create")
def local_ssd_count_differs(call: Call) -> Refusal | None:
    """The local SSDs of these machines are fixed; a pool takes all."""
    row = _row(call)
    count = value_at(call.inputs, "nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount")
    if row is None or row.local_ssds is None or count is None or int(count) == row.local_ssds:
        return None
    return bad(
        f"Machine type {row.name} has {row.local_ssds} local SSDs, got {count} in ephemeral_storage_local_ssd_config.",
        f"{row.sources['local_ssds']}; wording {UNVERIFIED}",
    )


@on("create")
def local_ssds_twice(call: Call) -> Refusal | None:
    """Local SSDs hold ephemeral storage, or are raw block devices."""
    ephemeral = value_at(call.inputs, "nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount")
    raw = value_at(call.inputs, "nodeConfig.localNvmeSsdBlockConfig.localSsdCount")
    if not ephemeral or not raw:
        return None
    return bad(
        "ephemeral_storage_local_ssd_config and local_nvme_ssd_block_config cannot both have local SSDs.",
        f"{TOOLKIT}; wording {UNVERIFIED}",
    )


@on("create", "update")
def boot_disk_differs(call: Call) -> Refusal | None:
    """These machines boot from Hyperdisk only."""
    row = _row(call)
    for path in ("nodeConfig.diskType", "nodeConfig.bootDisk.diskType"):
        asked = value_at(call.inputs, path)
        if row and asked and asked != row.boot_disk:
            return bad(
                f"Disk type {asked} is not supported for machine type {row.name}; use {row.boot_disk}.",
                f"{row.sources['boot_disk']}; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def gvnic_off(call: Call) -> Refusal | None:
    """The host NICs of these machines are gVNICs."""
    row = _row(call)
    if row is None or value_at(call.inputs, "nodeConfig.gvnic.enabled") is not False:
        return None
    return bad(f"Machine type {row.name} requires gVNIC to be enabled.", f"{MACHINES}; wording {UNVERIFIED}")


@on("create", "update")
def image_not_cos(call: Call) -> Refusal | None:
    """GPUDirect RDMA on these machines needs Container-Optimized OS."""
    row = _row(call)
    image = node(call.inputs).get("imageType")
    networks = value_at(call.inputs, "networkConfig.additionalNodeNetworkConfigs")
    if row is None or not networks or not image or str(image).upper() == "COS_CONTAINERD":
        return None
    return bad(
        f"Image type {image} is not supported with RDMA interfaces on machine type {row.name}; use COS_CONTAINERD.",
        f"{MACHINES}; wording {UNVERIFIED}",
    )


@on("create", "update")
def fast_socket(call: Call) -> Refusal | None:
    """NCCL Fast Socket and GPUDirect RDMA exclude each other."""
    row = _row(call)
    if row is None or value_at(call.inputs, "nodeConfig.fastSocket.enabled") is not True:
        return None
    return bad(f"NCCL Fast Socket is not supported on machine type {row.name}.", f"{MACHINES}; wording {UNVERIFIED}")
