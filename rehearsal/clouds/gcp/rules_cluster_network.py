"""Rules of the networks and ranges of clusters."""

from __future__ import annotations

from rehearsal.clouds.gcp.network import network_of_live
from rehearsal.clouds.gcp.references import (
    cidr,
    location_of,
    network_of,
    project_of,
    ranges_of,
    region_of_location,
    roce_zone,
    secondary_range,
    subnetwork_id,
    subnetworks_of,
)
from rehearsal.clouds.gcp.refusals import (
    NO_NETWORK,
    NO_RANGE,
    NOT_VALID_SUBNET,
    OVERLAP,
    PROVIDER_CLUSTER,
    RDMA_PROFILE,
    SAME_RANGE,
    UNVERIFIED,
    bad,
)
from rehearsal.clouds.gcp.tokens import CLUSTER, SUBNETWORK
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at

CONTROL_PLANE = 28


@on("create")
def network_missing(call: Call) -> Refusal | None:
    """The network of a cluster exists."""
    id_, network = network_of(call)
    return None if network is not None else bad(f'network "{id_}" does not exist.', NO_NETWORK)


@on("create")
def network_is_roce(call: Call) -> Refusal | None:
    """A cluster is not in an RDMA network: only RDMA NICs attach to one."""
    id_, network = network_of(call)
    if roce_zone(network) is None:
        return None
    return bad(
        f'Network "{id_}" has a network profile that supports RDMA interfaces only and cannot be used for a cluster.',
        f"{RDMA_PROFILE}; wording {UNVERIFIED}",
    )


@on("create")
def subnetwork_not_in_network(call: Call) -> Refusal | None:
    """A cluster's subnetwork exists, in its network and region."""
    id_, _ = network_of(call)
    if not call.inputs.get("subnetwork"):
        return None
    subnetwork = _subnetwork_id(call)
    live = call.state.get(SUBNETWORK, subnetwork)
    if live is not None and network_of_live(live) == id_:
        return None
    return bad(f'Subnetwork "{subnetwork}" is not valid for Network "{id_}".', NOT_VALID_SUBNET)


@on("create")
def pod_range_missing(call: Call) -> Refusal | None:
    """The secondary range of the pods is one of the subnetwork's."""
    return _range_missing(call, "clusterSecondaryRangeName", "Pod")


@on("create")
def services_range_missing(call: Call) -> Refusal | None:
    """The secondary range of the Services is one of the subnetwork's."""
    return _range_missing(call, "servicesSecondaryRangeName", "Service")


def _range_missing(call: Call, field: str, what: str) -> Refusal | None:
    name = value_at(call.inputs, f"ipAllocationPolicy.{field}")
    if not name or secondary_range(_subnetwork(call), str(name)) is not None:
        return None
    network, _ = network_of(call)
    return bad(
        f'{what} secondary range "{name}" not found in network "{network}", subnetwork "{_subnetwork_id(call)}".',
        NO_RANGE,
    )


@on("create")
def pods_and_services_share_range(call: Call) -> Refusal | None:
    """Pods and Services have separate ranges."""
    policy = call.inputs.get("ipAllocationPolicy") or {}
    name = policy.get("clusterSecondaryRangeName")
    if not name or name != policy.get("servicesSecondaryRangeName"):
        return None
    return bad(f"Pod secondary range name ({name}) should not be the same as service secondary range name.", SAME_RANGE)


@on("create")
def range_named_and_numbered(call: Call) -> Refusal | None:
    """A range is given by name or by block."""
    policy = call.inputs.get("ipAllocationPolicy") or {}
    blocks = {"clusterIpv4CidrBlock": "cluster_ipv4_cidr_block", "servicesIpv4CidrBlock": "services_ipv4_cidr_block"}
    names = {
        "clusterSecondaryRangeName": "cluster_secondary_range_name",
        "servicesSecondaryRangeName": "services_secondary_range_name",
    }
    for block, block_name in blocks.items():
        for name, range_name in names.items():
            if policy.get(block) and policy.get(name):
                at = "ip_allocation_policy.0."
                return bad(f'"{at}{block_name}": conflicts with {at}{range_name}', PROVIDER_CLUSTER)
    return None


@on("create")
def pod_range_twice(call: Call) -> Refusal | None:
    """A VPC-native cluster sets its ranges in the allocation policy only."""
    if not call.inputs.get("clusterIpv4Cidr") or not call.inputs.get("ipAllocationPolicy"):
        return None
    return bad('"cluster_ipv4_cidr": conflicts with ip_allocation_policy', PROVIDER_CLUSTER)


@on("create")
def range_overlaps(call: Call) -> Refusal | None:
    """A requested block is free in the network."""
    network, _ = network_of(call)
    for field in ("clusterIpv4CidrBlock", "servicesIpv4CidrBlock"):
        # "/14" leaves the choice to GKE, which finds a free one.
        mine = cidr(value_at(call.inputs, f"ipAllocationPolicy.{field}"))
        for _, live in subnetworks_of(call.state, network) if mine else ():
            if mine and any(mine.overlaps(other) for other in ranges_of(live).values()):
                return bad(
                    f"Invalid IPCidrRange: {mine} conflicts with existing subnetwork '{live['name']}' in region "
                    f"'{live['region']}'.",
                    OVERLAP,
                )
    return None


@on("create")
def control_plane_range_malformed(call: Call) -> Refusal | None:
    """The control plane's range is a /28, if set."""
    text = value_at(call.inputs, "privateClusterConfig.masterIpv4CidrBlock")
    network = cidr(text)
    if not text or (network and network.prefixlen == CONTROL_PLANE):
        return None
    return bad(
        f'Invalid master authorized CIDR "{text}": the control plane range must be a /{CONTROL_PLANE} block.',
        f"GKE docs private-clusters; wording {UNVERIFIED}",
    )


@on("create")
def control_plane_range_overlaps(call: Call) -> Refusal | None:
    """The control plane's range is disjoint from the network's subnetworks and other control planes."""
    id_, _ = network_of(call)
    mine = cidr(value_at(call.inputs, "privateClusterConfig.masterIpv4CidrBlock"))
    if mine is None:
        return None
    for subnetwork, live in subnetworks_of(call.state, id_):
        if any(mine.overlaps(other) for other in ranges_of(live).values()):
            return _conflict(str(mine), subnetwork)
    for _, other_id, cluster in call.state.all(CLUSTER):
        other = cidr(value_at(cluster, "privateClusterConfig.masterIpv4CidrBlock"))
        if other and network_of_live(cluster) == id_ and mine.overlaps(other):
            return _conflict(str(mine), other_id)
    return None


def _conflict(block: str, other: str) -> Refusal:
    return bad(
        f"The given master_ipv4_cidr {block} overlaps with an existing network {other}.",
        f"GKE docs private-clusters; wording {UNVERIFIED}",
    )


@on("create", "update")
def authorized_network_malformed(call: Call) -> Refusal | None:
    """Authorized networks are ranges without host bits."""
    for block in value_at(call.inputs, "masterAuthorizedNetworksConfig.cidrBlocks") or []:
        text = block.get("cidrBlock")
        if ":" not in str(text) and cidr(text) is None:
            return bad(
                f'Invalid master authorized networks: network "{text}" is not a valid CIDR block.',
                f"GKE docs authorized-networks; wording {UNVERIFIED}",
            )
    return None


def _subnetwork_id(call: Call) -> str:
    region = region_of_location(location_of(call.inputs, call.config))
    return subnetwork_id(str(call.inputs.get("subnetwork") or "default"), project_of(call.inputs, call.config), region)


def _subnetwork(call: Call) -> Json:
    return call.state.get(SUBNETWORK, _subnetwork_id(call)) or {}
