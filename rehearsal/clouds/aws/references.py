"""Relations between AWS resources that rules follow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.engine.kind import Call, Json, Reference, value_at, values_at
from rehearsal.engine.state import View
from rehearsal.engine.values import last


def in_vpc() -> Reference:
    """Return the reference of a resource to its VPC. A VPC's own route table and security group do not hold it."""

    def resolve(value: Any, inputs: Json, _config: Mapping[str, Any]) -> str | None:
        return None if str(inputs.get(tokens.MADE_BY)).startswith("vpc:") else str(value)

    return Reference(path="vpcId", types=(tokens.VPC,), resolve=resolve)


def to(path: str, type_: str, *, holds: bool = False) -> Reference:
    """Return a reference by id; most named objects can be deleted first."""
    return Reference(path=path, types=(type_,), holds=holds)


def to_named(path: str, type_: str, *, holds: bool = False) -> Reference:
    """Return a reference by name, or by an ARN that ends with it."""
    return Reference(path=path, types=(type_,), resolve=lambda value, _inputs, _config: last(value), holds=holds)


def strings(value: object) -> list[str]:
    """Return a list of strings, from a list or from one string."""
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else []


def policies_of(state: View, role: object) -> set[str]:
    """Return the names of a role's attached policies."""
    name = last(role)
    return {last(live["policyArn"]) for _, _, live in state.all(tokens.ATTACHMENT) if last(live["role"]) == name}


def trusts(state: View, role: object, service: str, action: str = "sts:AssumeRole") -> bool:
    """Return whether a service may assume a role of this cloud; true for other roles."""
    live = state.get(tokens.ROLE, last(role))
    if live is None:
        return True
    try:
        statements = json.loads(str(live.get("assumeRolePolicy")))["Statement"]
    except (ValueError, KeyError, TypeError):
        return False
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal") or {}
        services = strings(principal.get("Service")) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow" and service in services and action in strings(statement.get("Action")):
            return True
    return False


def open_within(state: View, group: str, port: int) -> bool:
    """Return whether members of a security group reach each other on a TCP port. Inline rules also count."""
    live = state.get(tokens.SECURITY_GROUP, group) or {}

    def lets(rule: Mapping[str, Any]) -> bool:
        own = rule.get("referencedSecurityGroupId") == group or rule.get("self")
        every = str(rule.get("ipProtocol") or rule.get("protocol")) == "-1"
        inside = int(rule.get("fromPort") or 0) <= port <= int(rule.get("toPort") or 0)
        return bool(own or rule.get("cidrIpv4") or rule.get("cidrBlocks")) and (every or inside)

    directions = ((tokens.INGRESS, "ingress"), (tokens.EGRESS, "egress"))
    for type_, inline in directions:
        separate = [rule for _, _, rule in state.all(type_) if rule.get("securityGroupId") == group]
        if not any(lets(rule) for rule in (*separate, *(live.get(inline) or ()))):
            return False
    return True


def vpc_of(state: View, subnet: object) -> str:
    """Return the VPC of a subnet."""
    return str((state.get(tokens.SUBNET, str(subnet)) or {}).get("vpcId") or "")


def zone_of(state: View, subnet: str) -> str:
    """Return the zone of a subnet."""
    return str((state.get(tokens.SUBNET, subnet) or {}).get("availabilityZone") or "")


def route_table_of(state: View, subnet: str) -> str:
    """Return the route table of a subnet: its own, or the VPC's main one."""
    for _, _, live in state.all(tokens.ASSOCIATION):
        if live.get("subnetId") == subnet:
            return str(live["routeTableId"])
    return str((state.get(tokens.VPC, vpc_of(state, subnet)) or {}).get("mainRouteTableId") or "")


def routes_of(state: View, table: str) -> Iterator[Json]:
    """Return the routes of a table, separate or inline."""
    for _, _, live in state.all(tokens.ROUTE):
        if live.get("routeTableId") == table:
            yield live
    for route in (state.get(tokens.ROUTE_TABLE, table) or {}).get("routes") or []:
        yield {**route, "destinationCidrBlock": route.get("cidrBlock")}


def way_out(state: View, subnet: str) -> Json:
    """Return the default route of a subnet; empty without one."""
    routes = routes_of(state, route_table_of(state, subnet))
    return next((route for route in routes if route.get("destinationCidrBlock") == "0.0.0.0/0"), {})


def cluster_of(call: Call) -> Json:
    """Return the cluster of a node group, an add-on or an access entry; empty without one."""
    return call.state.get(tokens.CLUSTER, str(call.inputs.get("clusterName") or "")) or {}


def groups_of(state: View, cluster: str) -> list[tuple[str, Json]]:
    """Return the node groups of a cluster, as (id, live)."""
    return [(id_, live) for _, id_, live in state.all(tokens.NODE_GROUP) if live.get("clusterName") == cluster]


def template_of(state: View, group: Mapping[str, Any]) -> Json:
    """Return the launch template of a node group with its id; empty without one. Only the newest version is stored."""
    wanted = group.get("launchTemplate") or {}
    for _, id_, live in state.all(tokens.LAUNCH_TEMPLATE):
        if wanted.get("id") == id_ or (not wanted.get("id") and wanted.get("name") == live.get("name")):
            return {**live, "id": id_}
    return {}


def types_of(state: View, group: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a node group: of its template, its own, or EKS's default."""
    named = template_of(state, group).get("instanceType")
    return [str(named)] if named else strings(group.get("instanceTypes")) or ["t3.medium"]


def reservation_of(template: Mapping[str, Any]) -> str:
    """Return the capacity reservation, or group of reservations, that a launch template targets, or ""."""
    targets = values_at(template, "capacityReservationSpecification.capacityReservationTarget")
    keys = ("capacityReservationId", "capacityReservationResourceGroupArn")
    return next((str(target[key]) for target in targets for key in keys if target.get(key)), "")


def desired(group: Mapping[str, Any]) -> int:
    """Return the desired number of nodes of a group."""
    return int(value_at(group, "scalingConfig.desiredSize") or 0)


def open_groups(state: View, cluster: str) -> list[Json]:
    """Return the node groups of a cluster that have nodes for pods without tolerations."""
    soft = "PREFER_NO_SCHEDULE"
    groups = [live for _, live in groups_of(state, cluster) if desired(live)]
    return [live for live in groups if all(taint.get("effect") == soft for taint in live.get("taints") or ())]


def scaling_group_of(group: Mapping[str, Any]) -> str:
    """Return the name of the Auto Scaling group of a live node group."""
    return str(value_at(group, SCALING_GROUP) or "")


SCALING_GROUP = "resources.0.autoscalingGroups.0.name"
"""Path of the name of a live node group's Auto Scaling group."""
