"""References between AWS resources: by id, ARN or name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.kind import Call, Json, value_at
from rehearsal.clouds.state import View

Found = tuple[str, Json]


def cidr(text: object) -> IPv4Network | None:
    """Parse an address range; None if the text is not one."""
    try:
        return IPv4Network(str(text))
    except ValueError:
        return None


def last(reference: object) -> str:
    """Return the last part of an ARN or path: the name."""
    return str(reference).rsplit("/", 1)[-1]


def strings(value: object) -> list[str]:
    """Return a list of strings, from a list or from one string."""
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else []


def role(state: View, reference: object) -> Json | None:
    """Return a role by ARN or name."""
    return state.get(tokens.ROLE, last(reference))


def policies_of(state: View, reference: object) -> set[str]:
    """Return the names of a role's managed policies, attached separately or listed in it."""
    name = last(reference)
    attached = {last(live["policyArn"]) for _, _, live in state.all(tokens.ATTACHMENT) if last(live["role"]) == name}
    listed = (role(state, reference) or {}).get("managedPolicyArns") or []
    return attached | {last(arn) for arn in listed}


def trusts(live: Mapping[str, Any], service: str, action: str = "sts:AssumeRole") -> bool:
    """Return whether a service may assume a role."""
    try:
        document = json.loads(str(live.get("assumeRolePolicy") or "{}"))
    except ValueError:
        return False
    statements = document.get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal") or {}
        services = strings(principal.get("Service")) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow" and service in services and action in strings(statement.get("Action")):
            return True
    return False


def security_group(state: View, id_: str) -> Json | None:
    """Return a security group, or a VPC's default one."""
    live = state.get(tokens.SECURITY_GROUP, id_)
    if live is not None:
        return live
    for _, vpc, its in state.all(tokens.VPC):
        if its.get("defaultSecurityGroupId") == id_:
            return {"name": "default", "vpcId": vpc}
    return None


def rules_of(state: View, group: str, type_: str) -> Iterator[Json]:
    """Return the separate rules of a security group in one direction (`tokens.INGRESS` or `tokens.EGRESS`)."""
    return (live for _, _, live in state.all(type_) if live.get("securityGroupId") == group)


def open_within(state: View, group: str, port: int | None) -> bool:
    """Return whether members of a security group reach each other in both directions: on a TCP port, or on all (None).

    Inline rules of the group count, too.
    """
    for type_, inline in ((tokens.INGRESS, "ingress"), (tokens.EGRESS, "egress")):
        live = state.get(tokens.SECURITY_GROUP, group) or {}
        lets = any(_lets(rule, group, port) for rule in rules_of(state, group, type_))
        if not lets and not any(_lets_inline(rule, port) for rule in live.get(inline) or []):
            return False
    return True


def _lets(rule: Mapping[str, Any], group: str, port: int | None) -> bool:
    protocol = str(rule.get("ipProtocol"))
    own = rule.get("referencedSecurityGroupId") == group
    if protocol == "-1":
        # A rule for all traffic to all addresses covers TCP, but not EFA (awsome-distributed-ai #546).
        return own or (port is not None and bool(rule.get("cidrIpv4")))
    if port is None or protocol not in ("tcp", "6"):
        return False
    inside = int(rule.get("fromPort") or 0) <= port <= int(rule.get("toPort") or 0)
    return inside and (own or bool(rule.get("cidrIpv4")))


def _lets_inline(rule: Mapping[str, Any], port: int | None) -> bool:
    if str(rule.get("protocol")) == "-1":
        return bool(rule.get("self")) or (port is not None and bool(rule.get("cidrBlocks")))
    inside = port is not None and int(rule.get("fromPort") or 0) <= port <= int(rule.get("toPort") or 0)
    return inside and bool(rule.get("self") or rule.get("cidrBlocks"))


def zone_of(state: View, subnet: str) -> str:
    """Return the zone of a subnet."""
    return str((state.get(tokens.SUBNET, subnet) or {}).get("availabilityZone") or "")


def route_table_of(state: View, subnet: str) -> str:
    """Return the route table of a subnet: its own, or the VPC's main one."""
    for _, _, live in state.all(tokens.ASSOCIATION):
        if live.get("subnetId") == subnet:
            return str(live["routeTableId"])
    vpc = (state.get(tokens.SUBNET, subnet) or {}).get("vpcId")
    return str((state.get(tokens.VPC, str(vpc)) or {}).get("mainRouteTableId") or "")


def routes_of(state: View, table: str) -> Iterator[Json]:
    """Return the routes of a table, separate or inline."""
    for _, _, live in state.all(tokens.ROUTE):
        if live.get("routeTableId") == table:
            yield live
    for route in (state.get(tokens.ROUTE_TABLE, table) or {}).get("routes") or []:
        yield {**route, "destinationCidrBlock": route.get("cidrBlock")}


def cluster_of(call: Call) -> Json | None:
    """Return the cluster of a node group, an add-on or an access entry."""
    return call.state.get(tokens.CLUSTER, str(call.inputs.get("clusterName") or ""))


def groups_of(state: View, cluster: str) -> list[Found]:
    """Return the node groups of a cluster, as (id, live)."""
    return [(id_, live) for _, id_, live in state.all(tokens.NODE_GROUP) if live.get("clusterName") == cluster]


def template_of(state: View, group: Mapping[str, Any]) -> Found | None:
    """Return the launch template of a node group, as (id, live)."""
    wanted = group.get("launchTemplate") or {}
    for _, id_, live in state.all(tokens.LAUNCH_TEMPLATE):
        if wanted.get("id") == id_ or (not wanted.get("id") and wanted.get("name") == live.get("name")):
            return id_, live
    return None


def template_data(state: View, group: Mapping[str, Any]) -> Json:
    """Return the launch template data of a node group; empty without one. Only the newest version is stored."""
    found = template_of(state, group)
    return found[1] if found else {}


def types_of(state: View, group: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a node group: of its template, its own, or EKS's default."""
    template = template_data(state, group)
    named = template.get("instanceType")
    return [str(named)] if named else strings(group.get("instanceTypes")) or ["t3.medium"]


def reservation_of(template: Mapping[str, Any]) -> str | None:
    """Return the capacity reservation, or group of reservations, that a launch template targets."""
    target = value_at(template, "capacityReservationSpecification.capacityReservationTarget") or {}
    found = target.get("capacityReservationId") or target.get("capacityReservationResourceGroupArn")
    return str(found) if found else None


def reservation(state: View, id_: str) -> Json | None:
    """Return a reservation: a live one, or one of the setting "reservations"."""
    known: Mapping[str, Json] = state.setting("reservations", {})
    return state.get(tokens.RESERVATION, id_) or known.get(id_)


def desired(group: Mapping[str, Any]) -> int:
    """Return the desired number of nodes of a group."""
    return int(value_at(group, "scalingConfig.desiredSize") or 0)
