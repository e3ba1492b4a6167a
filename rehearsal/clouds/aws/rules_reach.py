"""Rules of reachability: security groups and their rules, VPC endpoints, mapped public addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import GATEWAY_SERVICES, INTERFACE_SERVICES
from rehearsal.clouds.aws.outputs import name_of, region_of
from rehearsal.clouds.aws.references import desired, rules_of, security_group, strings, template_data, zone_of
from rehearsal.clouds.aws.refusals import EC2_ERRORS, MAPPED_ADDRESS, PROVIDER_OTHERS, QUOTAS, VPC_API, refused, unfit
from rehearsal.clouds.kind import Call, Refusal, on, value_at

MOST_RULES = 60
"""Rules of a security group in one direction (VPC quotas; aws/aws-parallelcluster #7193, 2026-01-13)."""
_SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


@on("delete")
def addresses_mapped(call: Call) -> Refusal | None:
    """An internet gateway is detached after the NAT gateways of its VPC."""
    vpc = call.live.get("vpcId")
    if not vpc or all(live.get("vpcId") != vpc for _, _, live in call.state.all(tokens.NAT)):
        return None
    words = f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching"
    return refused("DependencyViolation", f"{words} the gateway.", MAPPED_ADDRESS)


@on("create")
def group_name_invalid(call: Call) -> Refusal | None:
    """A security group's name is not "default" or "sg-…", and name and description have plain characters."""
    name = name_of(call.inputs)
    if name == "default":
        return refused("InvalidParameterValue", "Cannot use reserved security group name: default", EC2_ERRORS)
    if name.startswith("sg-") or len(name) > 255:
        words = f'invalid value for name (cannot begin with sg-): "{name}"'
        return unfit(words, PROVIDER_OTHERS)
    description = str(call.inputs.get("description") or "")
    if re.fullmatch(r"[0-9A-Za-z_ .:/()#,@\[\]+=&;{}!$*-]{0,255}", description):
        return None
    words = f"Invalid security group description: '{description}'. Valid descriptions are strings less than 256"
    charset = r"characters from the following set: a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
    return refused("InvalidParameterValue", f"{words} {charset}", EC2_ERRORS)


@on("create")
def group_name_taken(call: Call) -> Refusal | None:
    """Names of security groups are unique in their VPC."""
    name, vpc = name_of(call.inputs), call.inputs.get("vpcId")
    for _, _, live in call.state.all(tokens.SECURITY_GROUP):
        if (live.get("name"), live.get("vpcId")) == (name, vpc):
            words = f"The security group '{name}' already exists for VPC '{vpc}'"
            return refused("InvalidGroup.Duplicate", words, EC2_ERRORS)
    return None


@on("delete")
def group_in_use(call: Call) -> Refusal | None:
    """A security group is deleted after its interfaces and the rules that refer to it."""
    if call.id not in set(_groups_on_interfaces(call)) and not _named_by_others(call):
        return None
    return refused("DependencyViolation", f"resource {call.id} has a dependent object", EC2_ERRORS)


def _groups_on_interfaces(call: Call) -> Iterator[str]:
    for kind in (tokens.ENDPOINT, tokens.FILE_SYSTEM):
        for _, _, live in call.state.all(kind):
            yield from strings(live.get("securityGroupIds"))
    for _, _, live in call.state.all(tokens.CLUSTER):
        yield from strings(value_at(live, "vpcConfig.securityGroupIds"))
    for _, _, live in call.state.all(tokens.NODE_GROUP):
        template = template_data(call.state, live) if desired(live) else {}
        yield from strings(template.get("vpcSecurityGroupIds"))
        for interface in template.get("networkInterfaces") or []:
            yield from strings(interface.get("securityGroups"))


def _named_by_others(call: Call) -> bool:
    return any(
        live.get("referencedSecurityGroupId") == call.id and live.get("securityGroupId") != call.id
        for kind in (tokens.INGRESS, tokens.EGRESS)
        for _, _, live in call.state.all(kind)
    )


@on("create", "update")
def rule_group_missing(call: Call) -> Refusal | None:
    """The groups of a rule exist."""
    for key in ("securityGroupId", "referencedSecurityGroupId"):
        group = str(call.inputs.get(key) or "").rpartition("/")[2]
        if group and security_group(call.state, group) is None:
            return refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist", EC2_ERRORS)
    return None


@on("create", "update")
def rule_source_unclear(call: Call) -> Refusal | None:
    """A rule has one range, list or group."""
    given = [key for key in _SOURCES if call.inputs.get(key)]
    if len(given) == 1:
        return None
    words = "Exactly one of these attributes must be configured: [cidr_ipv4,cidr_ipv6,prefix_list_id,"
    return unfit(f"{words}referenced_security_group_id]; there are {len(given)}", PROVIDER_OTHERS)


@on("create", "update")
def rule_ports_invalid(call: Call) -> Refusal | None:
    """A rule for TCP or UDP has ports, one for all protocols has none."""
    protocol = str(call.inputs.get("ipProtocol"))
    ports = [call.inputs.get(key) for key in ("fromPort", "toPort")]
    if protocol in ("tcp", "udp", "6", "17") and None in ports:
        words = "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange."
        return refused("InvalidParameterValue", words, EC2_ERRORS)
    if protocol == "-1" and any(port not in (None, -1, 0) for port in ports):
        # AWS ignores the ports; the provider then sees a difference in every plan.
        return unfit("from_port and to_port must not be set if ip_protocol is -1", PROVIDER_OTHERS)
    return None


@on("create")
def rule_exists(call: Call) -> Refusal | None:
    """A security group has each rule once."""
    keys = ("ipProtocol", "fromPort", "toPort", *_SOURCES)
    wanted = [call.inputs.get(key) for key in keys]
    for live in rules_of(call.state, str(call.inputs.get("securityGroupId")), call.type):
        if [live.get(key) for key in keys] == wanted:
            peer = next((str(call.inputs[key]) for key in _SOURCES if call.inputs.get(key)), "")
            protocol = "ALL" if str(call.inputs.get("ipProtocol")) == "-1" else str(call.inputs["ipProtocol"]).upper()
            words = f'the specified rule "peer: {peer}, {protocol}, ALLOW" already exists'
            return refused("InvalidPermission.Duplicate", words, EC2_ERRORS)
    return None


@on("create")
def rules_too_many(call: Call) -> Refusal | None:
    """A security group has at most 60 rules per direction."""
    if sum(1 for _ in rules_of(call.state, str(call.inputs.get("securityGroupId")), call.type)) < MOST_RULES:
        return None
    words = "The maximum number of rules per security group has been reached."
    return refused("RulesPerSecurityGroupLimitExceeded", words, QUOTAS)


@on("create")
def endpoint_service_unknown(call: Call) -> Refusal | None:
    """The service of an endpoint exists in its region, with endpoints of its type."""
    region = region_of(call.inputs, call.config)
    service = str(call.inputs.get("serviceName") or "")
    gateway = call.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    short = service.removeprefix(f"com.amazonaws.{region}.")
    if not service.startswith("com.amazonaws.") or short in (GATEWAY_SERVICES if gateway else INTERFACE_SERVICES):
        return None
    words = f"The Vpc Endpoint Service '{service}' does not exist"
    return refused("InvalidServiceName", words, EC2_ERRORS)


@on("create", "update")
def endpoint_type_mixed(call: Call) -> Refusal | None:
    """A gateway endpoint has route tables, an interface endpoint has subnets and security groups."""
    gateway = call.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    wrong = ("subnetIds", "securityGroupIds") if gateway else ("routeTableIds",)
    for key in wrong:
        if call.inputs.get(key):
            kind = "Gateway" if gateway else "Interface"
            words = f"Parameter {key} is not applicable to VPC endpoints of type {kind}."
            return refused("InvalidParameter", words, VPC_API)
    return None


@on("create", "update")
def private_names_without_dns(call: Call) -> Refusal | None:
    """Private names of an endpoint need both DNS attributes of the VPC."""
    vpc = str(call.inputs.get("vpcId"))
    live = call.state.get(tokens.VPC, vpc) or {}
    if not call.inputs.get("privateDnsEnabled") or (live.get("enableDnsSupport") and live.get("enableDnsHostnames")):
        return None
    words = "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true for"
    return refused("InvalidParameter", f"{words} {vpc}", VPC_API)


@on("create")
def private_names_taken(call: Call) -> Refusal | None:
    """One endpoint of a service in a VPC has private DNS names."""
    keys = ("vpcId", "serviceName", "privateDnsEnabled")
    wanted = [call.inputs.get(key) for key in keys]
    if not call.inputs.get("privateDnsEnabled"):
        return None
    for _, _, live in call.state.all(tokens.ENDPOINT):
        if [live.get(key) for key in keys] == wanted:
            service = str(call.inputs.get("serviceName"))
            words = "private-dns-enabled cannot be set because there is already a conflicting DNS domain for"
            return refused("InvalidParameter", f"{words} {service} in the VPC {call.inputs.get('vpcId')}", VPC_API)
    return None


@on("create", "update")
def endpoint_twice_in_zone(call: Call) -> Refusal | None:
    """An interface endpoint has one subnet per zone."""
    seen: dict[str, str] = {}
    for subnet in strings(call.inputs.get("subnetIds")):
        zone = zone_of(call.state, subnet)
        if zone in seen:
            words = f"Found another VPC endpoint subnet in the availability zone of {subnet}."
            return refused("DuplicateSubnetsInSameZone", words, EC2_ERRORS)
        seen[zone] = subnet
    return None


@on("create", "update")
def endpoint_parts_missing(call: Call) -> Refusal | None:
    """Subnets, security groups and route tables of an endpoint exist."""
    mains = {live.get("mainRouteTableId") for _, _, live in call.state.all(tokens.VPC)}
    for subnet in strings(call.inputs.get("subnetIds")):
        if call.state.get(tokens.SUBNET, subnet) is None:
            return refused("InvalidSubnetId.NotFound", f"The subnet ID '{subnet}' does not exist", EC2_ERRORS)
    for group in strings(call.inputs.get("securityGroupIds")):
        if security_group(call.state, group) is None:
            return refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist", EC2_ERRORS)
    for table in strings(call.inputs.get("routeTableIds")):
        if call.state.get(tokens.ROUTE_TABLE, table) is None and table not in mains:
            words = f"The routeTable ID '{table}' does not exist"
            return refused("InvalidRouteTableId.NotFound", words, EC2_ERRORS)
    return None
