"""What this cloud changes by itself after a while. A refresh must not show it as a difference.

The counterpart are the `ignore_changes` of the program: above all the desired size of node groups, which is the
autoscaler's. Tags that AWS sets ("aws:…") are not here: the provider hides them (its tags.IgnoreAWS, unverified,
2026-11).
"""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.references import desired, rules_of
from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.state import View


def drift_cluster(_live: Json, _state: View) -> Json:
    """A new platform version is rolled out. The Kubernetes version is upgraded at its end of support only."""
    return {"platformVersion": "eks.14"}


def drift_node_group(live: Json, _state: View) -> Json:
    """The autoscaler adds a node. EKS does not update the image of a group by itself, so its release stays."""
    most = int(value_at(live, "scalingConfig.maxSize") or 0)
    return {"scalingConfig": {"desiredSize": min(desired(live) + 1, most)}}


def drift_schedule(_live: Json, _state: View) -> Json:
    """Its time has come and gone; AWS computes the next. One that does not recur would be gone altogether."""
    return {"startTime": "2027-12-01T00:00:00Z"}


def drift_addon(live: Json, _state: View) -> Json:
    """Something in the cluster touches it; its version is changed by people only."""
    return {"modifiedAt": "2026-11-09T08:00:00Z", "createdAt": live.get("createdAt")}


def drift_launch_template(live: Json, _state: View) -> Json:
    """Somebody makes the newest version the default one in the console."""
    return {"defaultVersion": live.get("latestVersion", 1)}


def drift_security_group(live: Json, state: View) -> Json:
    """What a group says of itself follows its rules, whoever made them: inline rules beside others never settle."""
    changes: Json = {}
    id_ = str(live.get("arn", "")).rpartition("/")[2]
    for type_, key in ((tokens.INGRESS, "ingress"), (tokens.EGRESS, "egress")):
        seen = [
            {
                "protocol": rule.get("ipProtocol"),
                "fromPort": rule.get("fromPort", 0),
                "toPort": rule.get("toPort", 0),
                "cidrBlocks": [rule["cidrIpv4"]] if rule.get("cidrIpv4") else [],
                "self": rule.get("referencedSecurityGroupId") == id_,
            }
            for rule in rules_of(state, id_, type_)
        ]
        known = [dict(rule) for rule in live.get(key) or []]
        more = [rule for rule in seen if rule not in known]
        if more:
            changes[key] = [*known, *more]
    return changes


def drift_route_table(live: Json, state: View) -> Json:
    """What the table says about itself follows its routes, whoever made them."""
    id_ = str(live.get("arn", "")).rpartition("/")[2]
    known = [dict(route) for route in live.get("routes") or []]
    keys = ("gatewayId", "natGatewayId")
    seen = [
        {"cidrBlock": route.get("destinationCidrBlock"), **{key: route[key] for key in keys if route.get(key)}}
        for _, _, route in state.all(tokens.ROUTE)
        if route.get("routeTableId") == id_
    ]
    more = [route for route in seen if route not in known]
    return {"routes": [*known, *more]} if more else {}


def drift_eip(live: Json, state: View) -> Json:
    """An address that a NAT gateway took knows it."""
    for _, _, nat in state.all(tokens.NAT):
        if nat.get("allocationId") == live.get("allocationId"):
            return {
                "associationId": nat.get("associationId", ""),
                "networkInterface": nat.get("networkInterfaceId", ""),
                "privateIp": nat.get("privateIp", ""),
            }
    return {}
