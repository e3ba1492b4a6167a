"""The user's VPC: two private subnets for the control plane, of which the first has all nodes. In a cluster of the
user's: the one of the nodes.

The setting is `network.subnets`. They are read and checked in a preview, and never changed. The security groups of EFA,
of the cluster and of a file system are the stack's, in that VPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi_aws as aws
from pulumi_aws.eks import GetNodeGroupResult

from infra.addresses import ADDRESSES_PER_CPU_NODE, ADDRESSES_PER_GPU_NODE, CONTROL_PLANE_ADDRESSES
from infra.catalog.aws import ANYWHERE
from infra.eks.names import GPU_GROUP, SYSTEM_GROUP
from infra.eks.network import VpcPlace
from infra.settings import EksSettings, SettingsError
from infra.settings.problems import Finding, Problem

DOCS = "EKS docs network-reqs and efa; EC2 docs efa-acc-inst-types; read 2026-11"
SUBNETS = "network.subnets"
ORIGIN = "The stack's network"

Way = Literal["nat", "internet", "none"]
"""Where the default route of a subnet leads: to NAT or another network, to an Internet gateway, or nowhere."""


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """What EC2 states of a subnet; `free` is its number of free addresses."""

    id: str
    vpc: str
    zones: tuple[str, str]
    free: int
    public_addresses: bool
    way_out: Way


def existing_place(settings: EksSettings, cluster: str) -> VpcPlace:
    """Return the place of a cluster in the user's VPC. Raises `SettingsError` with everything that it lacks."""
    try:
        subnets = [read_subnet(each) for each in settings.network.subnets]
        vpc = aws.ec2.get_vpc(id=subnets[0].vpc)
    except Exception as error:
        finding = Finding(f"AWS does not show them: {error}", "check the ids, the region and your permissions", DOCS)
        values = ", ".join(settings.network.subnets)
        raise SettingsError([finding.problem((SUBNETS,), (values,))], origin=ORIGIN) from error
    names = vpc.enable_dns_hostnames and vpc.enable_dns_support
    if lacks := list(problems(subnets[0], subnets[1], settings, dns=names, running=_running(cluster))):
        raise SettingsError(lacks, origin=ORIGIN)
    first, second = subnets
    return VpcPlace(vpc=first.vpc, gpu=first.id, private=(first.id, second.id))


def groups_of(cluster: str) -> dict[str, GetNodeGroupResult]:
    """Return the node groups of a cluster that have a name of the stack's. Raises the provider's error without it."""
    return {
        each: aws.eks.get_node_group(cluster_name=cluster, node_group_name=each)
        for each in aws.eks.get_node_groups(cluster_name=cluster).names
        if each in (GPU_GROUP, SYSTEM_GROUP)
    }


def _running(cluster: str) -> dict[str, int] | None:
    """Return the sizes of the stack's groups; None if its cluster does not exist yet."""
    try:
        return sizes(groups_of(cluster))
    except Exception:
        return None


def sizes(groups: Mapping[str, GetNodeGroupResult]) -> dict[str, int]:
    """Return the numbers of nodes of node groups."""
    return {name: its.scaling_configs[0].desired_size for name, its in groups.items() if its.scaling_configs}


def read_subnet(id_: str) -> Subnet:
    """Return what EC2 states of a subnet. Raises the provider's error if there is none."""
    found = aws.ec2.get_subnet(id=id_)
    try:
        table = aws.ec2.get_route_table(subnet_id=id_)
    except Exception:
        # A subnet without an association has the main table, which this call does not find.
        table = aws.ec2.get_route_table(route_table_id=aws.ec2.get_vpc(id=found.vpc_id).main_route_table_id)
    way: Way = "none"
    for route in table.routes:
        if route.cidr_block == ANYWHERE:
            way = "internet" if route.gateway_id.startswith("igw-") else "nat"
    return Subnet(
        id=id_,
        vpc=found.vpc_id,
        zones=(found.availability_zone, found.availability_zone_id),
        free=found.available_ip_address_count,
        public_addresses=found.map_public_ip_on_launch,
        way_out=way,
    )


def addresses_of_nodes(settings: EksSettings, running: Mapping[str, int]) -> int:
    """Return the addresses that the stack's nodes may still take, beyond those of nodes that run, by their group."""
    nodes = settings.nodes.max - running.get(GPU_GROUP, 0)
    cpu_nodes = settings.cluster.system_nodes - running.get(SYSTEM_GROUP, 0)
    return max(nodes, 0) * ADDRESSES_PER_GPU_NODE + max(cpu_nodes, 0) * ADDRESSES_PER_CPU_NODE


def problems(
    first: Subnet, second: Subnet, settings: EksSettings, *, dns: bool, running: Mapping[str, int] | None = None
) -> Iterator[Problem]:
    """Yield what the subnets of nodes and of the control plane lack, each with what adds it.

    Args:
        dns: Whether the VPC resolves names, and gives its hosts names.
        running: Sizes of the stack's node groups, whose addresses are not free; None before the first `up`.
    """
    control_plane = CONTROL_PLANE_ADDRESSES if running is None else 0
    if first.vpc != second.vpc:
        message = f"They are in two VPCs, {first.vpc} and {second.vpc}, but a cluster is in one."
        yield _problem(f"{first.id}, {second.id}", message, "name two subnets of one VPC")
    if first.zones == second.zones:
        message = f"Both are in {first.zones[0]}: EKS rejects a control plane with subnets in one zone."
        yield _problem(second.id, message, "name a second subnet in another zone; no node runs there")
    yield from _too_full(second, control_plane)
    needs = addresses_of_nodes(settings, running or {}) + control_plane
    yield from node_subnet_problems(first, settings, needs=needs, dns=dns)


def node_subnet_problems(subnet: Subnet, settings: EksSettings, *, needs: int, dns: bool) -> Iterator[Problem]:
    """Yield what the subnet of the nodes lacks, each with what adds it.

    Args:
        needs: Addresses that the stack may take there.
        dns: Whether the VPC resolves names, and gives its hosts names.
    """
    if settings.location not in subnet.zones:
        message = f"The nodes are in {settings.location}, and this subnet is in {subnet.zones[0]} ({subnet.zones[1]})."
        yield _problem(subnet.id, message, f"name a subnet in {settings.location} for the nodes")
    yield from _too_full(subnet, needs)
    if subnet.public_addresses:
        message = "The subnet gives nodes a public address, which EC2 rejects for nodes with several interfaces."
        fix = f"aws ec2 modify-subnet-attribute --subnet-id {subnet.id} --no-map-public-ip-on-launch"
        yield _problem(subnet.id, message, fix)
    if subnet.way_out == "internet":
        message = (
            "Its default route is an Internet gateway, but nodes have no public address: no image could be pulled."
        )
        yield _problem(subnet.id, message, "name a private subnet, whose default route is a NAT gateway")
    elif subnet.way_out == "none":
        message = "It has no default route, so nodes cannot pull the images of KubeRay and of the device plugins."
        yield _problem(subnet.id, message, "add a route for 0.0.0.0/0 to a NAT gateway, or name another subnet")
    if not dns:
        message = f"{subnet.vpc} does not resolve the names of the control plane's private endpoint and of FSx."
        fix = f"aws ec2 modify-vpc-attribute --vpc-id {subnet.vpc} --enable-dns-hostnames, and --enable-dns-support"
        yield _problem(subnet.vpc, message, fix)


def _too_full(subnet: Subnet, needs: int) -> Iterator[Problem]:
    if subnet.free < needs:
        message = f"The subnet has {subnet.free} free addresses, and the stack needs up to {needs} there."
        yield _problem(subnet.id, message, "name a larger subnet, or lower nodes.max")


def _problem(value: str, message: str, fix: str) -> Problem:
    return Finding(message, fix, DOCS).problem((SUBNETS,), (value,))
