"""Provider functions of the simulated AWS: what EC2 states of a VPC that exists, and EKS of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.references import groups_of
from rehearsal.engine.kind import Function, Json, Refusal, RefusedError
from rehearsal.engine.state import View
from rehearsal.engine.values import cidr, listed

AWS_RESERVED = 5
MAPS = ("tags", "labels")
NOT_FOUND, EKS_ERRORS = "404 ResourceNotFoundException", "EKS API reference, common errors; wording unverified, 2026-11"
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


def cluster(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return a cluster by its name. RefusedError if there is none."""
    name = arguments.get("name")
    live = state.get(tokens.CLUSTER, str(name))
    if live is None:
        raise RefusedError(Refusal(NOT_FOUND, f"No cluster found for name: {name}.", EKS_ERRORS))
    return {"tags": {}, **listed(live, (*MAPS, "vpcConfig")), "id": name}


def node_groups(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return the names of a cluster's node groups."""
    name = str(arguments.get("clusterName"))
    return {**arguments, "id": name, "names": sorted(live["nodeGroupName"] for _, live in groups_of(state, name))}


def node_group(arguments: Json, _config: Mapping[str, Any], state: View) -> Json:
    """Return a node group by its names. RefusedError if there is none."""
    id_ = f"{arguments.get('clusterName')}:{arguments.get('nodeGroupName')}"
    live = state.get(tokens.NODE_GROUP, id_)
    if live is None:
        raise RefusedError(Refusal(NOT_FOUND, f"No node group found for name: {id_.partition(':')[2]}.", EKS_ERRORS))
    return {"tags": {}, **listed(live, MAPS), "id": id_, "status": "ACTIVE"}


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
    "aws:eks/getCluster:getCluster": cluster,
    "aws:eks/getNodeGroups:getNodeGroups": node_groups,
    "aws:eks/getNodeGroup:getNodeGroup": node_group,
}
