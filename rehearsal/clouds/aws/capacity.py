"""Rules of a node group's capacity: market, reservation, placement and zone."""

from __future__ import annotations

from functools import partial

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.machines import offers
from rehearsal.clouds.aws.references import desired, reservation_of, strings, template_of, types_of, zone_of
from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.engine.kind import Call, value_at

BLUEPRINT = "aws-ia/terraform-aws-eks-blueprints 0426f2b9, patterns/nvidia-gpu-efa"
BLOCKS = "aws-ia/terraform-aws-eks-blueprints 18ef2eca, patterns/ml-capacity-block"
invalid = partial(rule, "create", accepted=BLUEPRINT, status="400 InvalidParameterException")
not_launched = partial(rule, accepted=BLOCKS, status="failed AsgInstanceLaunchFailures")


@not_launched("create", refused="eksctl-io/eksctl#6461, 2023-03-28")
def type_not_in_zone(call: Call) -> str | None:
    """The zones of the group offer its instance type."""
    zones = sorted({zone_of(call.state, subnet) for subnet in strings(call.inputs.get("subnetIds"))})
    for name in types_of(call.state, call.inputs):
        for zone in zones:
            if not offers(zone, name):
                words = f"Your requested instance type ({name}) is not supported in your requested Availability Zone"
                return f"{words} ({zone}). Please retry your request by not specifying an Availability Zone."
    return None


@invalid(refused="EKS docs, capacity-blocks, in hashicorp/terraform-provider-aws#40876, 2025-01-10", accepted=BLOCKS)
def block_without_template(call: Call) -> str | None:
    """A group on a capacity block has a launch template with instance type, market type and target."""
    if call.inputs.get("capacityType") != "CAPACITY_BLOCK":
        return None
    template = template_of(call.state, call.inputs)
    market = value_at(template, "instanceMarketOptions.marketType")
    given = {
        "an instance type": template.get("instanceType"),
        "the market type capacity-block": market == "capacity-block",
        "a capacity reservation target": reservation_of(template),
    }
    lacks = " and ".join(words for words, there in given.items() if not there)
    return f"Node groups of capacity type CAPACITY_BLOCK need a launch template with {lacks}." if lacks else None


@not_launched(refused="terraform-aws-modules/terraform-aws-eks#3730, 2026-07-03")
def reservation_outside_placement(call: Call) -> str | None:
    """A placement group uses only a part of a reservation, unless the reservation was created in that group."""
    template = template_of(call.state, call.inputs)
    target, group = reservation_of(template), value_at(template, "placement.groupName")
    live = call.state.get(tokens.RESERVATION, target) or {}
    if not target or not group or str(live.get("placementGroupArn")).endswith(f"/{group}"):
        return None
    if not desired(call.now or call.inputs):
        return None
    if not live and call.state.get(tokens.PLACEMENT_GROUP, str(group)) is None:
        # Both are of others, and nothing says that the one is not in the other.
        return None
    words = "Could not launch On-Demand Instances. InsufficientInstanceCapacity"
    return f"{words} - reservation {target} was not created in placement group {group}."


RULES = rules_of(globals())
