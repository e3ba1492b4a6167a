"""Rules of VPCs, subnets, gateways and routes."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.network import destination_of
from rehearsal.clouds.aws.offerings import quota, zone_id, zones
from rehearsal.clouds.aws.outputs import region_of
from rehearsal.clouds.aws.references import cidr, route_table_of, routes_of
from rehearsal.clouds.aws.refusals import EC2_ERRORS, PROVIDER_OTHERS, QUOTAS, VPC_API, refused, unfit
from rehearsal.clouds.kind import Call, Refusal, on

WIDEST, NARROWEST = 16, 28
"""Prefix lengths of VPCs and subnets (VPC docs, unverified, 2026-11)."""


@on("create")
def vpc_range_invalid(call: Call) -> Refusal | None:
    """A VPC has between 2^4 and 2^16 addresses."""
    text = call.inputs.get("cidrBlock")
    block = cidr(text)
    if not text or (block is not None and WIDEST <= block.prefixlen <= NARROWEST):
        return None
    if block is None:
        return unfit(f'"{text}" is not a valid IPv4 CIDR block', PROVIDER_OTHERS)
    return unfit(
        'expected "cidr_block" to contain a network Value with between 16 and 28 significant bits, '
        f"got: {block.prefixlen}",
        PROVIDER_OTHERS,
    )


@on("create")
def vpc_quota(call: Call) -> Refusal | None:
    """The number of VPCs in a region is within the quota."""
    limit = quota(call.state, "VPC")
    if limit is None or sum(1 for _ in call.state.all(tokens.VPC)) < limit:
        return None
    return refused("VpcLimitExceeded", "The maximum number of VPCs has been reached.", QUOTAS)


@on("delete")
def vpc_in_use(call: Call) -> Refusal | None:
    """A VPC is deleted after subnets, gateways, route tables, endpoints and security groups."""
    kinds = (tokens.SUBNET, tokens.INTERNET_GATEWAY, tokens.ROUTE_TABLE, tokens.ENDPOINT, tokens.SECURITY_GROUP)
    if not any(live.get("vpcId") == call.id for kind in kinds for _, _, live in call.state.all(kind)):
        return None
    words = f"The vpc '{call.id}' has dependencies and cannot be deleted."
    return refused("DependencyViolation", words, EC2_ERRORS)


def _vpc_missing(call: Call) -> Refusal | None:
    vpc = str(call.inputs.get("vpcId") or "")
    if not vpc or call.state.get(tokens.VPC, vpc) is not None:
        return None
    return refused("InvalidVpcID.NotFound", f"The vpc ID '{vpc}' does not exist", EC2_ERRORS)


@on("create")
def vpc_missing(call: Call) -> Refusal | None:
    """The VPC exists."""
    return _vpc_missing(call)


@on("create")
def subnet_range_outside(call: Call) -> Refusal | None:
    """A subnet's range is in the VPC's, with between 2^4 and 2^16 addresses, without host bits."""
    block = cidr(call.inputs.get("cidrBlock"))
    whole = cidr((call.state.get(tokens.VPC, str(call.inputs.get("vpcId"))) or {}).get("cidrBlock"))
    text = call.inputs.get("cidrBlock")
    if block is None:
        return unfit(f'"{text}" is not a valid IPv4 CIDR block', PROVIDER_OTHERS)
    if whole is None or (block.subnet_of(whole) and WIDEST <= block.prefixlen <= NARROWEST):
        return None
    return refused("InvalidSubnet.Range", f"The CIDR '{text}' is invalid.", EC2_ERRORS)


@on("create")
def subnet_overlaps(call: Call) -> Refusal | None:
    """No two subnets of a VPC overlap."""
    block = cidr(call.inputs.get("cidrBlock"))
    for _, _, live in call.state.all(tokens.SUBNET):
        other = cidr(live.get("cidrBlock"))
        if live.get("vpcId") == call.inputs.get("vpcId") and block and other and block.overlaps(other):
            words = f"The CIDR '{block}' conflicts with another subnet"
            return refused("InvalidSubnet.Conflict", words, EC2_ERRORS)
    return None


@on("create")
def zone_unknown(call: Call) -> Refusal | None:
    """A subnet is in a zone of the region."""
    offered = zones(region_of(call.inputs, call.config))
    zone, by_id = call.inputs.get("availabilityZone"), call.inputs.get("availabilityZoneId")
    if (zone is None or zone in offered) and (by_id is None or by_id in [zone_id(one) for one in offered]):
        return None
    words = f"Value ({zone or by_id}) for parameter availabilityZone is invalid. Subnets can currently only be created"
    listed = f"{words} in the following availability zones: {', '.join(offered)}."
    return refused("InvalidParameterValue", listed, EC2_ERRORS)


@on("delete")
def subnet_in_use(call: Call) -> Refusal | None:
    """A subnet is deleted after everything with an interface in it."""
    in_it = (
        *(live.get("subnetId") for _, _, live in call.state.all(tokens.NAT)),
        *(subnet for _, _, live in call.state.all(tokens.ENDPOINT) for subnet in live.get("subnetIds") or []),
        *(live.get("subnetIds") for _, _, live in call.state.all(tokens.FILE_SYSTEM)),
        *(subnet for _, _, live in call.state.all(tokens.NODE_GROUP) for subnet in live.get("subnetIds") or []),
        *(
            subnet
            for _, _, live in call.state.all(tokens.CLUSTER)
            for subnet in (live.get("vpcConfig") or {}).get("subnetIds") or []
        ),
    )
    if call.id not in in_it:
        return None
    words = f"The subnet '{call.id}' has dependencies and cannot be deleted."
    return refused("DependencyViolation", words, EC2_ERRORS)


@on("create")
def second_internet_gateway(call: Call) -> Refusal | None:
    """A VPC has one internet gateway."""
    vpc = call.inputs.get("vpcId")
    for _, other, live in call.state.all(tokens.INTERNET_GATEWAY):
        if vpc and live.get("vpcId") == vpc:
            words = f"Network {vpc} already has an internet gateway attached: {other}"
            return refused("InvalidParameterValue", words, VPC_API)
    return None


@on("create")
def address_quota(call: Call) -> Refusal | None:
    """The number of elastic addresses in a region is within the quota."""
    limit = quota(call.state, "EIP")
    if limit is None or sum(1 for _ in call.state.all(tokens.EIP)) < limit:
        return None
    return refused("AddressLimitExceeded", "The maximum number of addresses has been reached.", QUOTAS)


@on("delete")
def address_in_use(call: Call) -> Refusal | None:
    """An elastic address is released after its NAT gateway is deleted."""
    for _, _, live in call.state.all(tokens.NAT):
        if live.get("allocationId") == call.id:
            words = f"Address {call.live.get('publicIp')} is in use."
            return refused("InvalidIPAddress.InUse", words, EC2_ERRORS)
    return None


def _subnet_of_nat(call: Call) -> str:
    return str(call.inputs.get("subnetId") or "")


@on("create")
def nat_subnet_missing(call: Call) -> Refusal | None:
    """A NAT gateway is in a subnet."""
    subnet = _subnet_of_nat(call)
    if call.inputs.get("availabilityMode") == "regional" or call.state.get(tokens.SUBNET, subnet) is not None:
        return None
    return refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist", EC2_ERRORS)


@on("create")
def nat_without_internet_gateway(call: Call) -> Refusal | None:
    """A public NAT gateway needs an internet gateway on its VPC."""
    vpc = (call.state.get(tokens.SUBNET, _subnet_of_nat(call)) or {}).get("vpcId")
    attached = [live.get("vpcId") for _, _, live in call.state.all(tokens.INTERNET_GATEWAY)]
    if call.inputs.get("connectivityType") == "private" or vpc is None or vpc in attached:
        return None
    return refused("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached", VPC_API)


@on("create")
def nat_without_address(call: Call) -> Refusal | None:
    """A public NAT gateway has an elastic address that is not in use."""
    eip = str(call.inputs.get("allocationId") or "")
    if call.inputs.get("connectivityType") == "private" or call.inputs.get("availabilityMode") == "regional":
        return None
    if not eip:
        return refused("MissingParameter", "The request must contain the parameter AllocationId", EC2_ERRORS)
    if call.state.get(tokens.EIP, eip) is None:
        words = f"The allocation ID '{eip}' does not exist"
        return refused("InvalidAllocationID.NotFound", words, EC2_ERRORS)
    if any(live.get("allocationId") == eip for _, _, live in call.state.all(tokens.NAT)):
        return refused("Resource.AlreadyAssociated", f"Elastic IP address [{eip}] is already associated", EC2_ERRORS)
    return None


@on("create")
def route_table_missing(call: Call) -> Refusal | None:
    """The route table of a route or association exists."""
    table = str(call.inputs.get("routeTableId") or "")
    mains = [live.get("mainRouteTableId") for _, _, live in call.state.all(tokens.VPC)]
    if call.state.get(tokens.ROUTE_TABLE, table) is not None or table in mains:
        return None
    return refused("InvalidRouteTableID.NotFound", f"The routeTable ID '{table}' does not exist", EC2_ERRORS)


@on("create")
def route_exists(call: Call) -> Refusal | None:
    """A table has one route per destination."""
    wanted = destination_of(call.inputs)
    table = str(call.inputs.get("routeTableId"))
    if all(destination_of(route) != wanted for route in routes_of(call.state, table)):
        return None
    return refused("RouteAlreadyExists", f"The route identified by {wanted} already exists.", EC2_ERRORS)


@on("create", "update")
def route_target_missing(call: Call) -> Refusal | None:
    """The gateway of a route exists; an internet gateway is attached to the same VPC."""
    gateway, nat = call.inputs.get("gatewayId"), call.inputs.get("natGatewayId")
    if nat and call.state.get(tokens.NAT, str(nat)) is None:
        words = f"The natGateway ID '{nat}' does not exist"
        return refused("InvalidNatGatewayID.NotFound", words, EC2_ERRORS)
    if not gateway or not str(gateway).startswith("igw-"):
        return None
    live = call.state.get(tokens.INTERNET_GATEWAY, str(gateway))
    if live is None:
        words = f"The internetGateway ID '{gateway}' does not exist"
        return refused("InvalidInternetGatewayID.NotFound", words, EC2_ERRORS)
    table = call.state.get(tokens.ROUTE_TABLE, str(call.inputs.get("routeTableId"))) or {}
    if live.get("vpcId") == table.get("vpcId", live.get("vpcId")):
        return None
    words = f"route table {call.inputs.get('routeTableId')} and network gateway {gateway} belong to different networks"
    return refused("InvalidParameterValue", words, VPC_API)


@on("create", "update")
def route_leads_nowhere(call: Call) -> Refusal | None:
    """A route has a destination and a target."""
    keys = ("gatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcEndpointId")
    others = ("egressOnlyGatewayId", "vpcPeeringConnectionId", "localGatewayId", "carrierGatewayId", "coreNetworkArn")
    if destination_of(call.inputs) and any(call.inputs.get(key) for key in (*keys, *others)):
        return None
    words = "The request must contain exactly one of gatewayId, natGatewayId, networkInterfaceId, vpcEndpointId"
    return refused("InvalidParameterCombination", f"{words}, and a destination", EC2_ERRORS)


@on("create")
def subnet_has_table(call: Call) -> Refusal | None:
    """A subnet has one route table."""
    subnet = str(call.inputs.get("subnetId") or "")
    if subnet and call.state.get(tokens.SUBNET, subnet) is None:
        return refused("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist", EC2_ERRORS)
    for _, _, live in call.state.all(tokens.ASSOCIATION):
        if subnet and live.get("subnetId") == subnet:
            table = route_table_of(call.state, subnet)
            words = f"the specified association for route table {table} conflicts with an existing association"
            return refused("Resource.AlreadyAssociated", words, EC2_ERRORS)
    return None


@on("delete")
def route_table_in_use(call: Call) -> Refusal | None:
    """A route table is deleted after its associations."""
    if all(live.get("routeTableId") != call.id for _, _, live in call.state.all(tokens.ASSOCIATION)):
        return None
    words = f"The routeTable '{call.id}' has dependencies and cannot be deleted."
    return refused("DependencyViolation", words, EC2_ERRORS)
