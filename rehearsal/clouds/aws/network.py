"""VPCs, subnets, gateways, routes, endpoints and security groups: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import zone_id, zones
from rehearsal.clouds.aws.outputs import ACCOUNT, arn, dotted, hexadecimal, name_of, region_of, regional
from rehearsal.clouds.aws.references import cidr, strings
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import digest, kept, number

# Replacement: ForceNew of the provider, unverified, 2026-11 (`refusals.PROVIDER_OTHERS`).
_EVERY = frozenset({"region"})
VPC_REPLACES = _EVERY | {"cidrBlock", "ipv4IpamPoolId", "ipv4NetmaskLength"}
SUBNET_REPLACES = _EVERY | {"vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "ipv6Native", "outpostArn"}
INTERNET_GATEWAY_REPLACES = _EVERY
EIP_REPLACES = _EVERY | {"domain", "address", "publicIpv4Pool", "networkBorderGroup", "ipamPoolId"}
NAT_REPLACES = _EVERY | {"subnetId", "allocationId", "connectivityType", "privateIp", "vpcId", "availabilityMode"}
ROUTE_TABLE_REPLACES = _EVERY | {"vpcId"}
ROUTE_REPLACES = _EVERY | {
    *("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
}
ASSOCIATION_REPLACES = _EVERY | {"subnetId", "gatewayId"}
SECURITY_GROUP_REPLACES = _EVERY | {"name", "namePrefix", "vpcId", "description"}
RULE_REPLACES = _EVERY | {"securityGroupId"}
ENDPOINT_REPLACES = _EVERY | {
    *("vpcId", "serviceName", "vpcEndpointType", "serviceNetworkArn", "resourceConfigurationArn", "serviceRegion")
}


def compute_vpc(call: Call) -> Json:
    """Return the defaults of every VPC: its own route table, network ACL and security group."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"vpc/{call.id}"),
        "ownerId": ACCOUNT,
        "mainRouteTableId": hexadecimal("rtb", f"main {call.id}"),
        "defaultRouteTableId": hexadecimal("rtb", f"main {call.id}"),
        "defaultNetworkAclId": hexadecimal("acl", call.id),
        "defaultSecurityGroupId": hexadecimal("sg", f"default {call.id}"),
        "dhcpOptionsId": hexadecimal("dopt", "default"),
        **kept(
            call,
            {
                "enableDnsSupport": True,
                "enableDnsHostnames": False,
                "enableNetworkAddressUsageMetrics": False,
                "instanceTenancy": "default",
                "ipv6AssociationId": "",
                "ipv6CidrBlock": "",
            },
        ),
    }


def compute_subnet(call: Call) -> Json:
    """Return the name and id of the zone."""
    region = region_of(call.inputs, call.config)
    by_id = {zone_id(zone): zone for zone in zones(region)}
    zone = call.inputs.get("availabilityZone") or by_id.get(str(call.inputs.get("availabilityZoneId")))
    zone = str(zone or call.live.get("availabilityZone") or zones(region)[0])
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"subnet/{call.id}"),
        "ownerId": ACCOUNT,
        "availabilityZone": zone,
        "availabilityZoneId": zone_id(zone),
        **kept(
            call,
            {
                "mapPublicIpOnLaunch": False,
                "assignIpv6AddressOnCreation": False,
                "privateDnsHostnameTypeOnLaunch": "ip-name",
                "ipv6CidrBlock": "",
                "ipv6CidrBlockAssociationId": "",
            },
        ),
    }


def compute_internet_gateway(call: Call) -> Json:
    """Return the owner."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"internet-gateway/{call.id}"),
        "ownerId": ACCOUNT,
        **kept(call, {"vpcId": ""}),
    }


def compute_eip(call: Call) -> Json:
    """Return a public address that starts with 203, as TEST-NET-3 (RFC 5737) does."""
    address = dotted(call.id, 203)
    region = region_of(call.inputs, call.config)
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"elastic-ip/{call.id}"),
        "allocationId": call.id,
        "publicIp": address,
        "publicDns": f"ec2-{address.replace('.', '-')}.{region}.compute.amazonaws.com",
        **kept(
            call,
            {"domain": "vpc", "associationId": "", "networkInterface": "", "privateIp": "", "instance": ""},
        ),
        **kept(call, {"networkBorderGroup": region, "publicIpv4Pool": "amazon"}),
    }


def compute_nat(call: Call) -> Json:
    """Return the private and public address."""
    subnet = call.state.get(tokens.SUBNET, str(call.inputs.get("subnetId"))) or {}
    eip = call.state.get(tokens.EIP, str(call.inputs.get("allocationId"))) or {}
    block = cidr(subnet.get("cidrBlock"))
    return {
        **regional(call),
        "publicIp": eip.get("publicIp", ""),
        "associationId": hexadecimal("eipassoc", call.id) if eip else "",
        "networkInterfaceId": hexadecimal("eni", call.id),
        **kept(
            call,
            {
                "connectivityType": "public",
                "privateIp": str(block[10]) if block and block.num_addresses > 10 else "",
                "secondaryPrivateIpAddresses": [],
                "secondaryAllocationIds": [],
                "secondaryPrivateIpAddressCount": 0,
                "vpcId": subnet.get("vpcId", ""),
            },
        ),
    }


def compute_route_table(call: Call) -> Json:
    """Return the owner; inline routes stay as requested."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"route-table/{call.id}"),
        "ownerId": ACCOUNT,
        **kept(call, {"routes": [], "propagatingVgws": []}),
    }


def destination_of(route: Mapping[str, Any]) -> str:
    """Return the destination of a route."""
    keys = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
    return next((str(route[key]) for key in keys if route.get(key)), "")


def identify_route(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return r-rtb-…NUMBER: the table, and a checksum of the destination."""
    return f"r-{inputs['routeTableId']}{number(destination_of(inputs), 10)}"


def compute_route(call: Call) -> Json:
    """Return the state "active"."""
    region = region_of(call.inputs, call.config)
    return {"region": region, "origin": "CreateRoute", "state": "active", "instanceId": "", "instanceOwnerId": ""}


def route_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id TABLE_DESTINATION."""
    table, _, destination = text.partition("_")
    return identify_route({"routeTableId": table, "destinationCidrBlock": destination}, {})


def identify_association(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return a generated id. A subnet has one association, so subnet and table determine it."""
    return association_from_import(f"{inputs['subnetId']}/{inputs['routeTableId']}", {})


def association_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id SUBNET/TABLE."""
    return hexadecimal("rtbassoc", text)


def compute_association(call: Call) -> Json:
    """Return the region."""
    return {"region": region_of(call.inputs, call.config)}


def compute_security_group(call: Call) -> Json:
    """Return the name. The provider removes the default egress rule of a new group."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"security-group/{call.id}"),
        "ownerId": ACCOUNT,
        **kept(
            call,
            {
                "name": name_of(call.inputs),
                "namePrefix": "",
                "description": "Managed by Pulumi",
                "ingress": [],
                "egress": [],
                "revokeRulesOnDelete": False,
                "vpcId": "",
            },
        ),
    }


def compute_rule(call: Call) -> Json:
    """Return the id as an output."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"security-group-rule/{call.id}"),
        "securityGroupRuleId": call.id,
    }


def compute_endpoint(call: Call) -> Json:
    """Return one interface per subnet, or the prefix list of a gateway endpoint."""
    kind = str(call.inputs.get("vpcEndpointType") or "Gateway")
    subnets = strings(call.inputs.get("subnetIds"))
    service = str(call.inputs.get("serviceName") or "")
    region = region_of(call.inputs, call.config)
    dns = f"{call.id}-{digest(call.id)}.{service.rpartition('.')[2]}.{region}.vpce.amazonaws.com"
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"vpc-endpoint/{call.id}"),
        "ownerId": ACCOUNT,
        "state": "available",
        "requesterManaged": False,
        "networkInterfaceIds": [hexadecimal("eni", f"{call.id} {subnet}") for subnet in subnets],
        "dnsEntries": [{"dnsName": dns, "hostedZoneId": "Z1HUB23UULQXV"}] if kind == "Interface" else [],
        "prefixListId": hexadecimal("pl", service)[:11] if kind == "Gateway" else "",
        "cidrBlocks": [],
        **kept(
            call,
            {
                "vpcEndpointType": "Gateway",
                "privateDnsEnabled": False,
                "ipAddressType": "ipv4",
                "subnetIds": [],
                "routeTableIds": [],
                "securityGroupIds": [],
                "policy": '{"Statement":[{"Action":"*","Effect":"Allow","Principal":"*","Resource":"*"}]}',
            },
        ),
    }


def goes_with_group(call: Call, type_: str, live: Json) -> bool:
    """Return whether a rule is deleted with its security group."""
    return type_ in (tokens.INGRESS, tokens.EGRESS) and live.get("securityGroupId") == call.id


def goes_with_table(call: Call, type_: str, live: Json) -> bool:
    """Return whether a route is deleted with its table."""
    return type_ == tokens.ROUTE and live.get("routeTableId") == call.id
