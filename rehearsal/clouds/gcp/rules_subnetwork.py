"""Rules of subnetworks and their ranges."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from rehearsal.clouds.gcp.network import network_of_live
from rehearsal.clouds.gcp.references import (
    cidr,
    is_zone,
    last,
    network_of,
    pools_of,
    ranges_of,
    region_of,
    region_of_location,
    roce_zone,
    subnetwork_id,
    subnetworks_of,
)
from rehearsal.clouds.gcp.refusals import (
    AUTO_MODE,
    IN_USE,
    NAT_IN_USE,
    NO_NETWORK,
    OVERLAP,
    RDMA_PROFILE,
    UNVERIFIED,
    VPC,
    invalid,
)
from rehearsal.clouds.gcp.tokens import CLUSTER, NAT
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at

SMALLEST = 29
AUTO_RANGE = IPv4Network("10.128.0.0/9")
FORBIDDEN = tuple(
    IPv4Network(text) for text in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32")
)
"""Prohibited ranges (Google Cloud VPC docs, prohibited ranges; unverified, 2026-11). Public ranges may be used
privately, so they are not included."""


@on("create")
def network_missing(call: Call) -> Refusal | None:
    """The network of a subnetwork exists."""
    id_, network = network_of(call)
    if network is not None:
        return None
    return Refusal("404 notFound", f"The resource '{id_}' was not found", f"Compute Engine API, 404; {NO_NETWORK}")


@on("create", "update")
def range_malformed(call: Call) -> Refusal | None:
    """A range is a CIDR block without host bits."""
    for field, text in _texts(call.inputs):
        if cidr(text) is None:
            return invalid(f"resource.{field}", text, "Must be a CIDR address range.", VPC)
    return None


@on("create", "update")
def range_too_small(call: Call) -> Refusal | None:
    """A primary range is at least a /29."""
    network = cidr(call.inputs.get("ipCidrRange"))
    if network is None or network.prefixlen <= SMALLEST:
        return None
    return invalid("resource.ipCidrRange", network, f"The range must be a /{SMALLEST} or larger.", VPC)


@on("create", "update")
def range_forbidden(call: Call) -> Refusal | None:
    """Loopback, link-local, multicast and similar ranges are prohibited."""
    for field, network in ranges_of(call.inputs).items():
        if any(network.overlaps(other) for other in FORBIDDEN):
            return invalid(f"resource.{field}", network, "The range overlaps with a prohibited range.", VPC)
    return None


@on("create", "update")
def ranges_overlap_each_other(call: Call) -> Refusal | None:
    """Primary and secondary ranges of a subnetwork are disjoint."""
    ranges = list(ranges_of(call.inputs).items())
    for index, (field, network) in enumerate(ranges):
        if any(network.overlaps(other) for _, other in ranges[:index]):
            return _conflict(field, network, last(call.id), region_of(call.inputs, call.config))
    return None


@on("create", "update")
def ranges_overlap_others(call: Call) -> Refusal | None:
    """All ranges of all subnetworks of a network are disjoint."""
    network, _ = network_of(call)
    for id_, live in subnetworks_of(call.state, network):
        for other in ranges_of(live).values() if id_ != call.id else ():
            for field, mine in ranges_of(call.inputs).items():
                if mine.overlaps(other):
                    return _conflict(field, mine, str(live["name"]), str(live["region"]))
    return None


@on("create", "update")
def range_overlaps_control_plane(call: Call) -> Refusal | None:
    """The range of a private cluster's control plane is reserved."""
    network, _ = network_of(call)
    for _, id_, cluster in call.state.all(CLUSTER):
        taken = cidr(value_at(cluster, "privateClusterConfig.masterIpv4CidrBlock"))
        for field, mine in ranges_of(call.inputs).items() if taken and network_of_live(cluster) == network else ():
            if taken and mine.overlaps(taken):
                message = f"Invalid IPCidrRange: {mine} conflicts with reserved IP range '{taken}' of '{id_}'."
                return invalid(f"resource.{field}", mine, message, OVERLAP)
    return None


@on("create", "update")
def range_of_auto_network(call: Call) -> Refusal | None:
    """An auto mode network reserves 10.128.0.0/9 for its automatic subnetworks."""
    _, network = network_of(call)
    if not network or network.get("autoCreateSubnetworks") is False:
        return None
    for field, mine in ranges_of(call.inputs).items():
        if mine.overlaps(AUTO_RANGE):
            message = f"Extended subnetworks in auto subnet mode networks cannot overlap with {AUTO_RANGE}"
            return invalid(f"resource.{field}", mine, message, AUTO_MODE)
    return None


@on("create", "update")
def secondary_range_named_twice(call: Call) -> Refusal | None:
    """Secondary ranges of a subnetwork have unique names."""
    names = [secondary.get("rangeName") for secondary in call.inputs.get("secondaryIpRanges") or []]
    for index, name in enumerate(names):
        if name in names[:index]:
            field = f"resource.secondaryIpRanges[{index}].rangeName"
            return invalid(field, name, "Secondary range names must be unique within a subnetwork.", VPC)
    return None


@on("create")
def region_of_roce_network(call: Call) -> Refusal | None:
    """An RDMA network is zonal: its subnetworks are in the region of its zone."""
    _, network = network_of(call)
    zone, region = roce_zone(network), region_of(call.inputs, call.config)
    if zone is None or not is_zone(zone) or region_of_location(zone) == region:
        return None
    return invalid(
        "resource.region",
        region,
        f"The network profile of this network allows subnetworks in the region of zone {zone} only.",
        f"{RDMA_PROFILE}; wording {UNVERIFIED}",
    )


@on("delete")
def in_use_by_nodes(call: Call) -> Refusal | None:
    """A subnetwork is deleted after the clusters and node pools in it."""
    for _, id_, cluster in call.state.all(CLUSTER):
        project, region = str(cluster["project"]), region_of_location(str(cluster["location"]))
        if subnetwork_id(str(cluster.get("subnetwork") or "default"), project, region) == call.id:
            return _in_use(call.id, id_)
        for pool_id, pool in pools_of(call.state, id_):
            for additional in value_at(pool, "networkConfig.additionalNodeNetworkConfigs") or []:
                if subnetwork_id(str(additional.get("subnetwork")), project, region) == call.id:
                    return _in_use(call.id, pool_id)
    return None


@on("delete")
def in_use_by_nat(call: Call) -> Refusal | None:
    """A subnetwork is deleted after the NAT that lists it."""
    for _, id_, nat in call.state.all(NAT):
        for named in nat.get("subnetworks") or []:
            if subnetwork_id(str(named.get("name")), str(nat["project"]), str(nat["region"])) == call.id:
                refusal = _in_use(call.id, id_)
                return Refusal(refusal.status, refusal.message, NAT_IN_USE)
    return None


def _texts(inputs: Json) -> Iterator[tuple[str, object]]:
    yield "ipCidrRange", inputs.get("ipCidrRange")
    for index, secondary in enumerate(inputs.get("secondaryIpRanges") or []):
        yield f"secondaryIpRanges[{index}].ipCidrRange", secondary.get("ipCidrRange")


def _conflict(field: str, network: IPv4Network, other: str, region: str) -> Refusal:
    message = f"Invalid IPCidrRange: {network} conflicts with existing subnetwork '{other}' in region '{region}'."
    return invalid(f"resource.{field}", network, message, OVERLAP)


def _in_use(id_: str, user: str) -> Refusal:
    return Refusal(
        "400 resourceInUseByAnotherResource",
        f"The subnetwork resource '{id_}' is already being used by '{user}'",
        IN_USE,
    )
