"""Kinds of the network with their rules: VPCs, subnets, gateways, routes, security groups, endpoints."""

from __future__ import annotations

from rehearsal.clouds.aws import drift, network, tokens
from rehearsal.clouds.aws import rules_network as networks
from rehearsal.clouds.aws import rules_reach as reach
from rehearsal.clouds.aws.outputs import kind_with_generated_id
from rehearsal.clouds.aws.refusals import taken
from rehearsal.clouds.kind import Kind, Rule

VPC = kind_with_generated_id(
    tokens.VPC,
    "vpc",
    compute=network.compute_vpc,
    replace_on=network.VPC_REPLACES,
    rules=(networks.vpc_range_invalid, networks.vpc_quota, networks.vpc_in_use),
)

SUBNET = kind_with_generated_id(
    tokens.SUBNET,
    "subnet",
    "vpcId",
    compute=network.compute_subnet,
    replace_on=network.SUBNET_REPLACES,
    rules=(
        networks.vpc_missing,
        networks.subnet_range_outside,
        networks.subnet_overlaps,
        networks.zone_unknown,
        networks.subnet_in_use,
    ),
)

INTERNET_GATEWAY = kind_with_generated_id(
    tokens.INTERNET_GATEWAY,
    "igw",
    compute=network.compute_internet_gateway,
    replace_on=network.INTERNET_GATEWAY_REPLACES,
    rules=(networks.vpc_missing, networks.second_internet_gateway, reach.addresses_mapped),
)

EIP = kind_with_generated_id(
    tokens.EIP,
    "eipalloc",
    compute=network.compute_eip,
    replace_on=network.EIP_REPLACES,
    rules=(networks.address_quota, networks.address_in_use),
    drift=drift.drift_eip,
)

NAT = kind_with_generated_id(
    tokens.NAT,
    "nat",
    "subnetId",
    compute=network.compute_nat,
    replace_on=network.NAT_REPLACES,
    rules=(networks.nat_subnet_missing, networks.nat_without_internet_gateway, networks.nat_without_address),
    awaited=True,
)

ROUTE_TABLE = kind_with_generated_id(
    tokens.ROUTE_TABLE,
    "rtb",
    "vpcId",
    compute=network.compute_route_table,
    replace_on=network.ROUTE_TABLE_REPLACES,
    rules=(networks.vpc_missing, networks.route_table_in_use),
    drift=drift.drift_route_table,
    cascade=network.goes_with_table,
)

ROUTE = Kind(
    type=tokens.ROUTE,
    identify=network.identify_route,
    compute=network.compute_route,
    replace_on=network.ROUTE_REPLACES,
    rules=(
        networks.route_leads_nowhere,
        networks.route_table_missing,
        networks.route_exists,
        networks.route_target_missing,
    ),
    from_import=network.route_from_import,
    conflict=taken,
)

ASSOCIATION = Kind(
    type=tokens.ASSOCIATION,
    identify=network.identify_association,
    compute=network.compute_association,
    replace_on=network.ASSOCIATION_REPLACES,
    rules=(networks.route_table_missing, networks.subnet_has_table),
    from_import=network.association_from_import,
    conflict=taken,
)

SECURITY_GROUP = kind_with_generated_id(
    tokens.SECURITY_GROUP,
    "sg",
    compute=network.compute_security_group,
    replace_on=network.SECURITY_GROUP_REPLACES,
    rules=(networks.vpc_missing, reach.group_name_invalid, reach.group_name_taken, reach.group_in_use),
    drift=drift.drift_security_group,
    cascade=network.goes_with_group,
)

_RULE_RULES: tuple[Rule, ...] = (
    reach.rule_group_missing,
    reach.rule_source_unclear,
    reach.rule_ports_invalid,
    reach.rule_exists,
    reach.rules_too_many,
)
INGRESS, EGRESS = (
    kind_with_generated_id(
        type_,
        "sgr",
        "securityGroupId",
        "ipProtocol",
        compute=network.compute_rule,
        replace_on=network.RULE_REPLACES,
        rules=_RULE_RULES,
    )
    for type_ in (tokens.INGRESS, tokens.EGRESS)
)

ENDPOINT = kind_with_generated_id(
    tokens.ENDPOINT,
    "vpce",
    "vpcId",
    "serviceName",
    compute=network.compute_endpoint,
    replace_on=network.ENDPOINT_REPLACES,
    rules=(
        networks.vpc_missing,
        reach.endpoint_service_unknown,
        reach.endpoint_type_mixed,
        reach.endpoint_parts_missing,
        reach.private_names_without_dns,
        reach.private_names_taken,
        reach.endpoint_twice_in_zone,
    ),
    awaited=True,
)

KINDS: tuple[Kind, ...] = (
    VPC,
    SUBNET,
    INTERNET_GATEWAY,
    EIP,
    NAT,
    ROUTE_TABLE,
    ROUTE,
    ASSOCIATION,
    SECURITY_GROUP,
    INGRESS,
    EGRESS,
    ENDPOINT,
)
