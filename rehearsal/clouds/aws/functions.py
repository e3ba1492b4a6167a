"""Provider functions of the simulated AWS: what EC2 states of a VPC that exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.engine.kind import Function, Json, Refusal, RefusedError
from rehearsal.engine.state import View
from rehearsal.engine.values import cidr

AWS_RESERVED = 5
NOWHERE = dict.fromkeys(("gatewayId", "natGatewayId", "transitGatewayId", "vpcEndpointId", "networkInterfaceId"), "")


def subnet(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return a subnet by its id. RefusedError if there is none."""
    live = _one(state, tokens.SUBNET, arguments.get("id"), "InvalidSubnetID.NotFound")
    block = cidr(live.get("cidrBlock"))
    free = live.get("availableIpAddressCount", block.num_addresses - AWS_RESERVED if block else 0)
    return {**live, "id": arguments["id"], "availableIpAddressCount": free}


def vpc(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return a VPC by its id. RefusedError if there is none."""
    return {**_one(state, tokens.VPC, arguments.get("id"), "InvalidVpcID.NotFound"), "id": arguments["id"]}


def route_table(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return a table by its id, or by the subnet that is associated with it. RefusedError if there is none."""
    table = arguments.get("routeTableId")
    for _, _, live in state.all(tokens.ASSOCIATION):
        if table is None and live.get("subnetId") == arguments.get("subnetId"):
            table = live["routeTableId"]
    live = _one(state, tokens.ROUTE_TABLE, table, "InvalidRouteTableID.NotFound")
    own = [each for _, _, each in state.all(tokens.ROUTE) if each.get("routeTableId") == table]
    routes = [
        {**NOWHERE, **route, "cidrBlock": route.get("destinationCidrBlock") or route.get("cidrBlock")}
        for route in (*(live.get("routes") or []), *own)
    ]
    return {**live, "id": table, "routeTableId": table, "routes": routes}


def _one(state: View, type_: str, id_: object, status: str) -> Json:
    live = state.get(type_, str(id_))
    if live is None:
        raise RefusedError(
            Refusal(f"400 {status}", f"The ID '{id_}' does not exist", "EC2 API reference, read 2026-11")
        )
    return live


FUNCTIONS: Mapping[str, Function] = {
    "aws:ec2/getSubnet:getSubnet": subnet,
    "aws:ec2/getVpc:getVpc": vpc,
    "aws:ec2/getRouteTable:getRouteTable": route_table,
}
