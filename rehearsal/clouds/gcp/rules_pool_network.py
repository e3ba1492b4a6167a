"""Rules of a node pool's additional networks, created by the program or by GKE (managed DRANET)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.gcp.network import network_of_live
from rehearsal.clouds.gcp.node_config import machine
from rehearsal.clouds.gcp.offerings import key
from rehearsal.clouds.gcp.references import (
    cidr,
    cluster_of,
    find_network,
    location_of,
    network_id,
    pool_zones,
    project_of,
    ranges_of,
    region_of_location,
    roce_zone,
    subnetwork_id,
)
from rehearsal.clouds.gcp.refusals import (
    DRANET,
    MACHINES,
    MULTI_NETWORK,
    NO_NETWORK,
    NOT_VALID_SUBNET,
    RDMA_PROFILE,
    TOOLKIT,
    UNVERIFIED,
    bad,
)
from rehearsal.clouds.gcp.tokens import SUBNETWORK
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at


@on("create", "update")
def network_missing(call: Call) -> Refusal | None:
    """Additional networks exist."""
    for network, _ in _additional(call):
        if find_network(call.state, network) is None:
            return bad(f'network "{network}" does not exist.', NO_NETWORK)
    return None


@on("create", "update")
def subnetwork_missing(call: Call) -> Refusal | None:
    """Additional subnetworks exist in the cluster's region, each in its network."""
    for network, subnetwork in _additional(call):
        live = call.state.get(SUBNETWORK, subnetwork)
        if live is None or network_of_live(live) != network:
            return bad(f'Subnetwork "{subnetwork}" is not valid for Network "{network}".', NOT_VALID_SUBNET)
    return None


@on("create", "update")
def subnetwork_named_twice(call: Call) -> Refusal | None:
    """Every interface has a subnetwork of its own."""
    seen: set[str] = set()
    for _, subnetwork in _additional(call):
        if subnetwork in seen:
            return bad(
                f'Subnetwork "{subnetwork}" is used by more than one additional node network.',
                f"{MULTI_NETWORK}; wording {UNVERIFIED}",
            )
        seen.add(subnetwork)
    return None


@on("create", "update")
def cluster_network_again(call: Call) -> Refusal | None:
    """The cluster's own network is already on the first NIC."""
    cluster = cluster_of(call) or {}
    for network, _ in _additional(call):
        if cluster and network == network_id(str(cluster.get("network")), str(cluster["project"])):
            return bad(
                f'Additional node network "{network}" must differ from the network of the cluster.',
                f"{MACHINES}: the second host NIC needs its own VPC; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def multi_networking_off(call: Call) -> Refusal | None:
    """Additional networks need a cluster with multi-networking."""
    cluster = cluster_of(call)
    if cluster is None or not list(_additional(call)) or cluster.get("enableMultiNetworking") is True:
        return None
    return bad(
        "Additional node networks require a cluster with multi-networking enabled.",
        f"{MULTI_NETWORK}; wording {UNVERIFIED}",
    )


@on("create", "update")
def too_few_interfaces(call: Call) -> Refusal | None:
    """A machine with RDMA networks has all of its interfaces: the second host NIC and every RDMA NIC."""
    row, networks = GKE_CATALOG.get(machine(call.inputs)), [network for network, _ in _additional(call)]
    if row is None or not networks:
        return None
    rdma = sum(1 for network in networks if roce_zone(find_network(call.state, network)))
    others = len(networks) - rdma
    if rdma == row.nics and others == row.host_nics - 1:
        return None
    return bad(
        f"Machine type {row.name} requires {row.host_nics - 1} additional gVNIC network and {row.nics} RDMA "
        f"subnetworks ({row.host_nics - 1 + row.nics} in all), got {others} and {rdma}.",
        f"{row.sources['nics']}; wording {UNVERIFIED}",
    )


@on("create", "update")
def rdma_network_of_other_zone(call: Call) -> Refusal | None:
    """Every machine on an RDMA network is in the network's zone."""
    for network, _ in _additional(call):
        zone = roce_zone(find_network(call.state, network))
        if zone is not None and set(pool_zones(call)) != {zone}:
            return bad(
                f'Network "{network}" has a network profile of zone {zone}; the node pool is in '
                f"{', '.join(pool_zones(call)) or 'no zone'}.",
                f"{RDMA_PROFILE}; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def rdma_network_on_other_machine(call: Call) -> Refusal | None:
    """Only RDMA NICs attach to an RDMA network."""
    if machine(call.inputs) in GKE_CATALOG:
        return None
    for network, _ in _additional(call):
        if roce_zone(find_network(call.state, network)):
            return bad(
                f'Machine type {machine(call.inputs)} has no RDMA interface for network "{network}".',
                f"{RDMA_PROFILE}; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def ranges_overlap(call: Call) -> Refusal | None:
    """The ranges of a node's interfaces are disjoint, including the cluster's nodes, pods and Services."""
    seen = list(_cluster_ranges(call))
    for _, subnetwork in _additional(call):
        ranges = ranges_of(call.state.get(SUBNETWORK, subnetwork) or {}).values()
        for mine in ranges:
            for name, other in seen:
                if name != subnetwork and mine.overlaps(other):
                    return bad(
                        f"Range {mine} of {subnetwork} overlaps with range {other} of {name}.",
                        f"{MULTI_NETWORK}; wording {UNVERIFIED}",
                    )
        seen += [(subnetwork, mine) for mine in ranges]
    return None


@on("create", "update")
def profile_with_own_networks(call: Call) -> Refusal | None:
    """Either GKE or the program creates the networks."""
    if not _automatic(call) or not list(_additional(call)):
        return None
    return bad(
        "accelerator_network_profile cannot be combined with additional_node_network_configs.",
        f"{TOOLKIT}; wording {UNVERIFIED}",
    )


@on("create", "update")
def profile_on_old_version(call: Call) -> Refusal | None:
    """Managed networks need a minimum version."""
    row = GKE_CATALOG.get(machine(call.inputs))
    version = str(call.inputs.get("version") or (cluster_of(call) or {}).get("masterVersion") or "")
    minimum = row.min_versions.get("managed-dranet") if row else None
    if not _automatic(call) or minimum is None or not version or key(version) >= key(minimum):
        return None
    return bad(
        f"accelerator_network_profile requires GKE version {minimum} or later, got {version}.",
        f"{DRANET}; wording {UNVERIFIED}",
    )


@on("create", "update")
def profile_in_several_zones(call: Call) -> Refusal | None:
    """A managed network is zonal."""
    if not _automatic(call) or len(pool_zones(call)) == 1:
        return None
    return bad("accelerator_network_profile requires a node pool in a single zone.", f"{DRANET}; wording {UNVERIFIED}")


@on("create", "update")
def profile_without_dataplane_v2(call: Call) -> Refusal | None:
    """DRANET needs Dataplane V2."""
    cluster = cluster_of(call)
    if not _automatic(call) or cluster is None or cluster.get("datapathProvider") == "ADVANCED_DATAPATH":
        return None
    return bad(
        "accelerator_network_profile requires a cluster with DatapathProvider=ADVANCED_DATAPATH.",
        f"{DRANET}; wording {UNVERIFIED}",
    )


@on("create", "update")
def profile_on_other_machine(call: Call) -> Refusal | None:
    """GKE creates networks for machines with RDMA NICs only."""
    row = GKE_CATALOG.get(machine(call.inputs))
    if not _automatic(call) or (row is not None and "managed-dranet" in row.fabrics):
        return None
    return bad(
        f"accelerator_network_profile is not supported for machine type {machine(call.inputs)}.",
        f"{DRANET}; wording {UNVERIFIED}",
    )


def _automatic(call: Call) -> bool:
    return bool(value_at(call.inputs, "networkConfig.acceleratorNetworkProfile"))


def _additional(call: Call) -> Iterator[tuple[str, str]]:
    """Return the additional networks and subnetworks, as ids."""
    project = project_of(call.inputs, call.config)
    region = region_of_location(location_of(call.inputs, call.config))
    for asked in value_at(call.inputs, "networkConfig.additionalNodeNetworkConfigs") or []:
        network = network_id(str(asked.get("network")), project)
        yield network, subnetwork_id(str(asked.get("subnetwork")), project, region)


def _cluster_ranges(call: Call) -> Iterator[tuple[str, IPv4Network]]:
    cluster: Json = cluster_of(call) or {}
    if not cluster:
        return
    region = region_of_location(str(cluster["location"]))
    own = subnetwork_id(str(cluster.get("subnetwork") or "default"), str(cluster["project"]), region)
    for network in ranges_of(call.state.get(SUBNETWORK, own) or {}).values():
        yield own, network
    for field in ("clusterIpv4Cidr", "servicesIpv4Cidr"):
        taken = cidr(cluster.get(field))
        if taken is not None:
            yield own, taken
