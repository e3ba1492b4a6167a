"""VPCs: subnets, gateways and routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.machines import zone_id, zones
from rehearsal.clouds.aws.outputs import arn, computed, hexadecimal, in_region, kind, region_of, regional, takes
from rehearsal.clouds.aws.references import in_vpc, to, to_named
from rehearsal.clouds.constraints import rule
from rehearsal.engine.kind import Call, Json, Reference
from rehearsal.engine.state import View
from rehearsal.engine.values import cidr, digest, kept, number

TESTED = "hashicorp/terraform-provider-aws, TestAccVPCNATGateway_basic, read 2026-11"


def compute_vpc(call: Call) -> Json:
    """Return the VPC's ids, and create its own route table and security group."""
    group, table = hexadecimal("sg", f"default {call.id}"), hexadecimal("rtb", f"main {call.id}")
    if call.verb == "create":
        made = {"vpcId": call.id, tokens.MADE_BY: f"vpc:{call.id}"}
        call.state.put(tokens.SECURITY_GROUP, group, {"name": "default", **made})
        call.state.put(tokens.ROUTE_TABLE, table, {"routes": [], **made})
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"vpc/{call.id}"),
        "mainRouteTableId": table,
        "defaultRouteTableId": table,
        "defaultSecurityGroupId": group,
        "defaultNetworkAclId": hexadecimal("acl", call.id),
        **kept(call, {"enableDnsSupport": True, "enableDnsHostnames": False, "instanceTenancy": "default"}),
    }


def compute_subnet(call: Call) -> Json:
    """Return the name and id of the zone."""
    names = zones(region_of(call.inputs, call.config))
    by_id = {zone_id(zone): zone for zone in names}
    zone = call.inputs.get("availabilityZone") or by_id.get(str(call.inputs.get("availabilityZoneId")))
    zone = str(zone or call.live.get("availabilityZone") or names[0])
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"subnet/{call.id}"),
        "availabilityZone": zone,
        "availabilityZoneId": zone_id(zone),
        **kept(call, {"mapPublicIpOnLaunch": False}),
    }


def compute_eip(call: Call) -> Json:
    """Return a public address that starts with 203, as TEST-NET-3 (RFC 5737) does."""
    low = int(digest(call.id, 6), 16)
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"elastic-ip/{call.id}"),
        "allocationId": call.id,
        "publicIp": f"203.{low >> 16 & 255}.{low >> 8 & 255}.{low & 255}",
        **kept(call, {"domain": "vpc", "associationId": "", "networkInterface": ""}),
    }


def compute_nat(call: Call) -> Json:
    """Return the private and public address."""
    subnet = call.state.get(tokens.SUBNET, str(call.inputs.get("subnetId"))) or {}
    eip = call.state.get(tokens.EIP, str(call.inputs.get("allocationId"))) or {}
    return {
        **regional(call),
        "publicIp": eip.get("publicIp", ""),
        "associationId": hexadecimal("eipassoc", call.id) if eip else "",
        "networkInterfaceId": hexadecimal("eni", call.id),
        **kept(call, {"connectivityType": "public", "vpcId": subnet.get("vpcId", "")}),
    }


def destination_of(route: Mapping[str, Any]) -> str:
    """Return the destination of a route."""
    keys = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
    return next((str(route[key]) for key in keys if route.get(key)), "")


def identify_route(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return r-rtb-…NUMBER: the table, and a checksum of the destination."""
    return f"r-{inputs.get('routeTableId')}{number(destination_of(inputs), 10)}"


def internet_gateway(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str | None:
    """Return the target of a route, if it is an internet gateway; "local" and other gateways are also targets."""
    return str(value) if str(value).startswith("igw-") else None


def log_group(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str | None:
    """Return the name in the ARN of a log group; None for a bucket or a stream."""
    return str(value).partition(":log-group:")[2].removesuffix(":*") or None


def route_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id TABLE_DESTINATION."""
    table, _, destination = text.partition("_")
    return identify_route({"routeTableId": table, "destinationCidrBlock": destination}, {})


def identify_association(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return a generated id. A subnet has one association, so subnet and table determine it."""
    return association_from_import(f"{inputs.get('subnetId')}/{inputs.get('routeTableId')}", {})


def association_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id SUBNET/TABLE."""
    return hexadecimal("rtbassoc", text)


@rule("create", refused="hashicorp/terraform#33470, 2023-07-03", accepted=TESTED, status="400 InvalidSubnet.Conflict")
def subnets_overlap(call: Call) -> str | None:
    """Subnets of a VPC do not overlap."""
    block = cidr(call.inputs.get("cidrBlock"))
    for _, _, live in call.state.all(tokens.SUBNET):
        other = cidr(live.get("cidrBlock"))
        if live.get("vpcId") == call.inputs.get("vpcId") and block and other and block.overlaps(other):
            return f"The CIDR '{block}' conflicts with another subnet"
    return None


@rule("create", refused="pulumi/pulumi-awsx#111, 2019-01-18", accepted=TESTED, status="400 InvalidSubnet.Range")
def subnet_outside_vpc(call: Call) -> str | None:
    """A subnet's range is in the VPC's."""
    block = cidr(call.inputs.get("cidrBlock"))
    whole = cidr((call.state.get(tokens.VPC, str(call.inputs.get("vpcId"))) or {}).get("cidrBlock"))
    if block is None or whole is None or block.subnet_of(whole):
        return None
    return f"The CIDR '{block}' is invalid."


@rule("delete", refused="hashicorp/terraform#1303, 2015-03-25", accepted=TESTED, status="400 DependencyViolation")
def addresses_mapped(call: Call) -> str | None:
    """An internet gateway is detached after the NAT gateways of its VPC."""
    vpc = call.live.get("vpcId")
    if not vpc or all(live.get("vpcId") != vpc for _, _, live in call.state.all(tokens.NAT)):
        return None
    words = f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching"
    return f"{words} the gateway."


def drift_eip(live: Json, state: View) -> Json:
    """Associate the address with its NAT gateway."""
    for _, _, nat in state.all(tokens.NAT):
        if nat.get("allocationId") == live.get("allocationId"):
            return {"associationId": nat.get("associationId"), "networkInterface": nat.get("networkInterfaceId")}
    return {}


# A VPC's own route table and security group are deleted with it.
VPC = kind(
    tokens.VPC, "vpc", compute_vpc, cascade=lambda call, _type, live: live.get(tokens.MADE_BY) == f"vpc:{call.id}"
)
SUBNET = kind(
    tokens.SUBNET, "subnet", compute_subnet, references=(in_vpc(),), rules=(subnet_outside_vpc, subnets_overlap)
)
INTERNET_GATEWAY = kind(
    tokens.INTERNET_GATEWAY,
    "igw",
    computed("ec2", "internet-gateway/", vpcId=""),
    references=(in_vpc(),),
    rules=(addresses_mapped,),
)
EIP = kind(tokens.EIP, "eipalloc", compute_eip, immutable="domain publicIpv4Pool", drift=drift_eip)
NAT = kind(
    tokens.NAT,
    "nat",
    compute_nat,
    references=(to("subnetId", tokens.SUBNET, holds=True), to("allocationId", tokens.EIP, holds=True)),
    awaited=True,
)
ROUTE_TABLE = kind(
    tokens.ROUTE_TABLE,
    "rtb",
    computed("ec2", "route-table/", routes=[]),
    references=(in_vpc(),),
    cascade=takes("routeTableId", tokens.ROUTE),
)
ROUTE = kind(
    tokens.ROUTE,
    identify_route,
    in_region,
    references=(
        to("routeTableId", tokens.ROUTE_TABLE),
        to("natGatewayId", tokens.NAT),
        Reference(path="gatewayId", types=(tokens.INTERNET_GATEWAY,), resolve=internet_gateway, holds=False),
    ),
    from_import=route_from_import,
)
ASSOCIATION = kind(
    tokens.ASSOCIATION,
    identify_association,
    in_region,
    references=(to("routeTableId", tokens.ROUTE_TABLE, holds=True), to("subnetId", tokens.SUBNET)),
    from_import=association_from_import,
)
# The provider adopts the VPC's own group, and forgets it at a delete.
DEFAULT_GROUP = kind(
    tokens.DEFAULT_GROUP,
    lambda inputs, _config: hexadecimal("sg", f"default {inputs.get('vpcId')}"),
    computed("ec2", "security-group/", name="default", description="default VPC security group"),
    references=(to("vpcId", tokens.VPC, holds=True),),
)
FLOW_LOG = kind(
    tokens.FLOW_LOG,
    "fl",
    computed("ec2", "vpc-flow-log/", logDestinationType="cloud-watch-logs", maxAggregationInterval=600),
    references=(
        to("vpcId", tokens.VPC),
        to_named("iamRoleArn", tokens.ROLE),
        Reference(path="logDestination", types=(tokens.LOG_GROUP,), resolve=log_group, holds=False),
    ),
)
