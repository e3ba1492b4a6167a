"""Security groups with their rules, and VPC endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, computed, hexadecimal, in_use, kind, name_of, regional, takes
from rehearsal.clouds.aws.references import in_vpc, strings, to
from rehearsal.engine.kind import Call, Json, Reference
from rehearsal.engine.values import kept

PEERS = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


def compute_security_group(call: Call) -> Json:
    """Return the name. The provider removes the default egress rule of a new group."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"security-group/{call.id}"),
        **kept(call, {"name": name_of(call.inputs), "description": "Managed by Pulumi", "vpcId": ""}),
        **kept(call, {"ingress": [], "egress": []}),
    }


def compute_endpoint(call: Call) -> Json:
    """Return one interface per subnet, or the prefix list of a gateway endpoint."""
    kind = str(call.inputs.get("vpcEndpointType") or "Gateway")
    service = str(call.inputs.get("serviceName") or "")
    interfaces = [hexadecimal("eni", f"{call.id} {subnet}") for subnet in strings(call.inputs.get("subnetIds"))]
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"vpc-endpoint/{call.id}"),
        "networkInterfaceIds": interfaces,
        "prefixListId": hexadecimal("pl", service)[:11] if kind == "Gateway" else "",
        **kept(call, {"vpcEndpointType": "Gateway", "privateDnsEnabled": False, "subnetIds": []}),
        **kept(call, {"routeTableIds": [], "securityGroupIds": []}),
    }


def peer(value: Any, inputs: Json, _config: Mapping[str, Any]) -> str | None:
    """Return the group that a rule lets in or out, if it is another one: "ACCOUNT/GROUP", or its id."""
    other = str(value).rpartition("/")[2]
    return None if other == inputs.get("securityGroupId") else other


SECURITY_GROUP = kind(
    tokens.SECURITY_GROUP,
    "sg",
    compute_security_group,
    references=(in_vpc(),),
    unique=("name", "vpcId"),
    conflict=in_use(
        "400 InvalidGroup.Duplicate",
        "The security group already exists for VPC",
        "cyberlabrs/terraform-aws-opensearch#13, 2023-06-15",
    ),
    cascade=takes("securityGroupId", tokens.INGRESS, tokens.EGRESS),
)
INGRESS, EGRESS = (
    kind(
        type_,
        "sgr",
        computed("ec2", "security-group-rule/", "securityGroupRuleId"),
        references=(
            to("securityGroupId", tokens.SECURITY_GROUP),
            Reference(path="referencedSecurityGroupId", types=(tokens.SECURITY_GROUP,), resolve=peer),
        ),
        unique=("securityGroupId", "ipProtocol", "fromPort", "toPort", *PEERS),
        conflict=in_use(
            "400 InvalidPermission.Duplicate",
            "the specified rule already exists",
            "hashicorp/terraform#1874, 2015-05-08",
        ),
    )
    for type_ in (tokens.INGRESS, tokens.EGRESS)
)
ENDPOINT = kind(
    tokens.ENDPOINT,
    "vpce",
    compute_endpoint,
    references=(
        in_vpc(),
        to("subnetIds", tokens.SUBNET, holds=True),
        to("securityGroupIds", tokens.SECURITY_GROUP, holds=True),
        to("routeTableIds", tokens.ROUTE_TABLE),
    ),
    awaited=True,
)
