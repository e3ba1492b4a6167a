"""Invariants of an AWS stack's network: zones, egress, and access."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.catalog.aws import ENDPOINT_SERVICES
from rehearsal.graph import Node
from rehearsal.invariants.eks_resources import (
    ASSOCIATION,
    CLUSTER,
    EGRESS,
    ENDPOINT,
    INGRESS,
    NAT,
    NODE_GROUP,
    ROUTE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
    behind,
    efa_group,
    zone_of,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect

ANYWHERE = "0.0.0.0/0"


def names_are_found(stack: Stack) -> Iterator[str]:
    """The VPC resolves DNS names and assigns them, which private endpoints and file systems need."""
    for vpc in stack.of(VPC):
        yield from expect(vpc, enableDnsSupport=True, enableDnsHostnames=True)


def control_plane_stands_in_two_zones(stack: Stack) -> Iterator[str]:
    """The control plane has a subnet in the nodes' zone and one in another; the stack file names both."""
    for cluster in stack.of(CLUSTER):
        used = behind(stack, cluster, "vpcConfig.subnetIds")
        found = sorted(zone_of(subnet) for subnet in used)
        if found != sorted((str(stack.eks.location), str(stack.eks.network.second_zone))):
            yield f"{cluster.name}: {', '.join(found)}"


def all_nodes_are_in_one_zone(stack: Stack) -> Iterator[str]:
    """Every node is in the zone of the stack file: EFA does not cross zones."""
    for group in stack.of(NODE_GROUP):
        found = {zone_of(subnet) for subnet in behind(stack, group, "subnetIds")}
        if found != {stack.eks.location}:
            yield f"{group.name}: {', '.join(sorted(found))}"


def nodes_have_no_public_address(stack: Stack) -> Iterator[str]:
    """No subnet assigns public addresses, and no node is in a subnet with a route to the internet gateway."""
    for subnet in stack.of(SUBNET):
        yield from expect(subnet, mapPublicIpOnLaunch=False)
    public = {at(route, "routeTableId") for route in stack.of(ROUTE) if at(route, "gatewayId")}
    for association in stack.of(ASSOCIATION):
        inside = {at(group, "subnetIds.0") for group in stack.of(NODE_GROUP)}
        if at(association, "routeTableId") in public and at(association, "subnetId") in inside:
            yield f"{association.name} is one"


def nodes_have_their_way_out(stack: Stack) -> Iterator[str]:
    """Nodes reach AWS through NAT or endpoints, by access.egress, and S3 through a gateway endpoint."""
    services = {str(at(node, "serviceName")).split(".", 3)[-1] for node in stack.of(ENDPOINT)}
    if "s3" not in services:
        yield "no endpoint for S3"
    private = {
        at(node, "routeTableId") for node in stack.of(ASSOCIATION) if at(node, "subnetId") in _node_subnets(stack)
    }
    for endpoint in stack.of(ENDPOINT):
        if str(at(endpoint, "serviceName")).endswith(".s3"):
            yield from expect(endpoint, vpcEndpointType="Gateway")
            if set(at(endpoint, "routeTableIds") or []) != private:
                yield f"{endpoint.name}: nodes do not use it"
    if stack.eks.access.egress == "endpoints":
        if stack.of(NAT):
            yield "NAT exists in addition to endpoints"
        if missing := set(ENDPOINT_SERVICES) - services:
            yield f"no endpoint for {', '.join(sorted(missing))}"
        for endpoint in stack.of(ENDPOINT):
            if at(endpoint, "vpcEndpointType") == "Interface":
                yield from expect(endpoint, privateDnsEnabled=True)
    elif not any(
        at(route, "natGatewayId") and at(route, "destinationCidrBlock") == ANYWHERE for route in stack.of(ROUTE)
    ):
        yield "no route leads to NAT"


def balancers_find_their_subnets(stack: Stack) -> Iterator[str]:
    """Subnets are in zones of the stack file, and all but the GPU subnet have load balancer tags."""
    zones = (stack.eks.location, stack.eks.network.second_zone)
    gpu = [at(group, "subnetIds.0") for group in stack.of(NODE_GROUP) if at(group, "taints")]
    for subnet in stack.of(SUBNET):
        if zone_of(subnet) not in zones:
            yield f"{subnet.name} is in {zone_of(subnet)}"
        if subnet.id not in gpu and not any("kubernetes.io/role/" in key for key in at(subnet, "tags") or {}):
            yield f"{subnet.name} has no load balancer tag"


def subnets_are_disjoint(stack: Stack) -> Iterator[str]:
    """No two subnets overlap, and each has a route table of the stack."""
    subnets = [(node, IPv4Network(str(at(node, "cidrBlock")))) for node in stack.of(SUBNET)]
    for number, (one, block) in enumerate(subnets):
        for other, its in subnets[number + 1 :]:
            if block.overlaps(its):
                yield f"{one.name} and {other.name} do"
    for subnet, _ in subnets:
        if not any(subnet.urn in stack.graph.needs(node.urn) for node in stack.of(ASSOCIATION)):
            yield f"{subnet.name} has none"


def efa_is_open_both_ways(stack: Stack) -> Iterator[str]:
    """The security group of EFA allows all traffic from itself and to itself, by reference and not by range."""
    group = efa_group(stack)
    if group is None:
        yield "there is no security group of EFA"
        return
    for type_ in (INGRESS, EGRESS):
        mine = [node for node in stack.of(type_) if _between(node, group)]
        if not any(at(node, "ipProtocol") == "-1" for node in mine):
            yield f"{group.name}: no rule allows {'ingress' if type_ == INGRESS else 'egress'}"


def nothing_comes_in_from_outside(stack: Stack) -> Iterator[str]:
    """No rule allows the internet; ranges belong to the stack or are authorized in the stack file."""
    own = [IPv4Network(str(at(vpc, "cidrBlock"))) for vpc in stack.of(VPC)]
    for rule in stack.of(INGRESS):
        text = at(rule, "cidrIpv4")
        named = text in stack.eks.access.authorized_networks
        if text is not None and not named and not any(IPv4Network(text).subnet_of(vpc) for vpc in own):
            yield f"{rule.name}: {text}"


def rules_stand_alone(stack: Stack) -> Iterator[str]:
    """Security groups have no inline rules: inline and separate rules overwrite each other."""
    for group in stack.of(SECURITY_GROUP):
        if "ingress" in group.inputs or "egress" in group.inputs:
            yield f"{group.name} has"


def _node_subnets(stack: Stack) -> list[str]:
    return [str(at(group, "subnetIds.0")) for group in stack.of(NODE_GROUP)]


def _between(rule: Node, group: Node) -> bool:
    return bool(at(rule, "securityGroupId") == group.id == at(rule, "referencedSecurityGroupId"))


INVARIANTS: tuple[Invariant, ...] = (
    names_are_found,
    control_plane_stands_in_two_zones,
    all_nodes_are_in_one_zone,
    nodes_have_no_public_address,
    nodes_have_their_way_out,
    balancers_find_their_subnets,
    subnets_are_disjoint,
    efa_is_open_both_ways,
    nothing_comes_in_from_outside,
    rules_stand_alone,
)
