"""Changes that AWS makes over time. A refresh must not show them as differences.

The program ignores them by `ignore_changes`, such as the desired size of node groups, which the autoscaler sets. Tags
that AWS sets ("aws:…") are not included: the provider hides them (its tags.IgnoreAWS, unverified, 2026-11).
"""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.references import desired, rules_of
from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.state import View


def drift_cluster(_live: Json, _state: View) -> Json:
    """Roll out a platform version. EKS upgrades the Kubernetes version only at its end of support."""
    return {"platformVersion": "eks.14"}


def drift_node_group(live: Json, _state: View) -> Json:
    """Add a node, as the autoscaler does. EKS does not update the image of a group automatically."""
    most = int(value_at(live, "scalingConfig.maxSize") or 0)
    return {"scalingConfig": {"desiredSize": min(desired(live) + 1, most)}}


def drift_schedule(_live: Json, _state: View) -> Json:
    """Run the scheduled action; AWS computes the next time. An action without a recurrence would be deleted."""
    return {"startTime": "2027-12-01T00:00:00Z"}


def drift_addon(live: Json, _state: View) -> Json:
    """Update the modification time; only users change the version."""
    return {"modifiedAt": "2026-11-09T08:00:00Z", "createdAt": live.get("createdAt")}


def drift_launch_template(live: Json, _state: View) -> Json:
    """Make the newest version the default, as a user does in the console."""
    return {"defaultVersion": live.get("latestVersion", 1)}


def drift_security_group(live: Json, state: View) -> Json:
    """Return the group's rules, including separate ones: inline rules next to separate ones never converge."""
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
    """Return the table's routes, including separate ones."""
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
    """Associate the address with its NAT gateway."""
    for _, _, nat in state.all(tokens.NAT):
        if nat.get("allocationId") == live.get("allocationId"):
            return {
                "associationId": nat.get("associationId", ""),
                "networkInterface": nat.get("networkInterfaceId", ""),
                "privateIp": nat.get("privateIp", ""),
            }
    return {}
