"""Requests to the network that the simulated AWS refuses."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.aws import tokens as t
from rehearsal.clouds.state import View
from tests.rehearsal import aws_supporting as land
from tests.rehearsal.aws_wrong import Case, Prepare, another, case, existing, gone, quota, without
from tests.rehearsal.supporting import GONE

IN_VPC = (t.SUBNET, t.INTERNET_GATEWAY, t.ROUTE_TABLE, t.SECURITY_GROUP, t.ENDPOINT)

NETWORK = (
    *(case("vpc_missing", kind, {"vpcId": "vpc-1"}, "vpc ID 'vpc-1' does not exist") for kind in IN_VPC),
    *(
        case("route_table_missing", kind, {"routeTableId": "rtb-1"}, "rtb-1' does not")
        for kind in (t.ROUTE, t.ASSOCIATION)
    ),
    case("vpc_range_invalid", t.VPC, {"cidrBlock": "10.0.0.0/8"}, "between 16 and 28 significant bits, got: 8"),
    case("vpc_range_invalid", t.VPC, {"cidrBlock": "10.0.0.1/16"}, "not a valid IPv4 CIDR"),
    case("vpc_quota", t.VPC, {}, "maximum number of VPCs", quota(VPC=1)),
    gone("vpc_in_use", t.VPC, land.VPC_ID, "has dependencies"),
    case("subnet_range_outside", t.SUBNET, {"cidrBlock": "10.1.0.0/24"}, "'10.1.0.0/24' is invalid"),
    case("subnet_range_outside", t.SUBNET, {"cidrBlock": "10.0.48.0/29"}, "is invalid"),
    case("subnet_overlaps", t.SUBNET, {"cidrBlock": "10.0.0.0/24"}, "conflicts with another subnet"),
    case("zone_unknown", t.SUBNET, {"availabilityZone": "us-east-2z"}, r"Value \(us-east-2z\)"),
    gone("subnet_in_use", t.SUBNET, land.OTHER_ID, "has dependencies"),
    case("second_internet_gateway", t.INTERNET_GATEWAY, {"vpcId": land.VPC_ID}, "already has an internet gateway"),
    gone("addresses_mapped", t.INTERNET_GATEWAY, land.GATEWAY_ID, "mapped public address"),
    case("address_quota", t.EIP, {}, "maximum number of addresses", quota(EIP=2)),
    gone("address_in_use", t.EIP, land.ADDRESS_ID, "is in use"),
    case("nat_subnet_missing", t.NAT, {"subnetId": "subnet-1"}, "subnet-1' does not exist"),
    case("nat_without_internet_gateway", t.NAT, {}, "no Internet gateway attached", without(t.INTERNET_GATEWAY)),
    case("nat_without_address", t.NAT, {"allocationId": GONE}, "must contain the parameter AllocationId"),
    case("nat_without_address", t.NAT, {"allocationId": "eipalloc-1"}, "does not exist"),
    case("nat_without_address", t.NAT, {"allocationId": land.ADDRESS_ID}, "already associated"),
    case("route_exists", t.ROUTE, {"destinationCidrBlock": "0.0.0.0/0"}, "0.0.0.0/0 already exists"),
    case("route_leads_nowhere", t.ROUTE, {"natGatewayId": GONE}, "exactly one of"),
    case("route_target_missing", t.ROUTE, {"natGatewayId": "nat-1"}, "nat-1' does not exist"),
    case("route_target_missing", t.ROUTE, {"natGatewayId": GONE, "gatewayId": "igw-1"}, "igw-1' does not exist"),
    case("subnet_has_table", t.ASSOCIATION, {"subnetId": land.PRIVATE_ID}, "conflicts with an existing association"),
    gone("route_table_in_use", t.ROUTE_TABLE, land.TABLE_ID, "has dependencies"),
    case("group_name_invalid", t.SECURITY_GROUP, {"name": "default"}, "reserved security group name"),
    case("group_name_invalid", t.SECURITY_GROUP, {"name": "sg-a"}, "cannot begin with sg-"),
    case("group_name_invalid", t.SECURITY_GROUP, {"description": "ä"}, "Valid descriptions"),
    case("group_name_taken", t.SECURITY_GROUP, {"name": "ray-efa"}, "already exists for VPC"),
    gone("group_in_use", t.SECURITY_GROUP, land.EFA_ID, "has a dependent object"),
    case("endpoint_service_unknown", t.ENDPOINT, {"serviceName": "com.amazonaws.us-east-2.nothing"}, "does not exist"),
    case("endpoint_service_unknown", t.ENDPOINT, {"serviceName": "com.amazonaws.us-west-2.sts"}, "does not exist"),
    case("endpoint_type_mixed", t.ENDPOINT, {"routeTableIds": [land.TABLE_ID]}, "not applicable"),
    case("endpoint_parts_missing", t.ENDPOINT, {"subnetIds": ["subnet-1"]}, "subnet-1' does not exist"),
    case("endpoint_parts_missing", t.ENDPOINT, {"securityGroupIds": ["sg-1"]}, "sg-1' does not exist"),
    case(
        "private_names_without_dns",
        t.ENDPOINT,
        {},
        "requires both",
        another(t.VPC, land.VPC_ID, {"enableDnsHostnames": False}),
    ),
    case("private_names_taken", t.ENDPOINT, {}, "conflicting DNS domain", existing(t.ENDPOINT, land.ENDPOINT)),
    case("endpoint_twice_in_zone", t.ENDPOINT, {"subnetIds": [land.PRIVATE_ID, land.PUBLIC_ID]}, "Found another"),
)


def _rule_cases() -> Iterator[Case]:
    for kind in (t.INGRESS, t.EGRESS):
        peers = {"cidrIpv4": GONE, "ipProtocol": "-1", "fromPort": GONE, "toPort": GONE}
        yield case("rule_group_missing", kind, {"securityGroupId": "sg-1"}, "'sg-1' does not exist")
        yield case("rule_source_unclear", kind, {"cidrIpv4": GONE}, "Exactly one")
        yield case("rule_source_unclear", kind, {"referencedSecurityGroupId": land.EFA_ID}, "Exactly one")
        yield case("rule_ports_invalid", kind, {"ipProtocol": "tcp", "fromPort": GONE}, "both from and to ports")
        yield case("rule_ports_invalid", kind, {"ipProtocol": "-1", "fromPort": 5}, "must not be set")
        yield case("rule_exists", kind, {**peers, "referencedSecurityGroupId": land.EFA_ID}, "ALL, ALLOW.* already")
        yield case("rules_too_many", kind, {}, "maximum number of rules", _sixty(kind))


def _sixty(kind: str) -> Prepare:
    def prepare(state: View) -> None:
        for number in range(60):
            rule = {"securityGroupId": land.EFA_ID, "ipProtocol": "tcp", "fromPort": number, "toPort": number}
            state.put(kind, f"sgr-{number}", {**rule, "cidrIpv4": "10.0.0.0/8"})

    return prepare


CASES = (*NETWORK, *_rule_cases())
