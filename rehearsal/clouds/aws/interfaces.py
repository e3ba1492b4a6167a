"""Rules of the interfaces in a node group's launch template.

EC2 accepts any launch template; an Auto Scaling group validates it against the instance type, even without an instance
(eksctl-io/eksctl#1293, 2019-09).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.machines import machine
from rehearsal.clouds.aws.references import strings, template_of, types_of, vpc_of
from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.engine.kind import Call, Json

P5 = "aws-ia/terraform-aws-eks-blueprints 0426f2b9, patterns/nvidia-gpu-efa"
EFA = ("efa", "efa-only")
unformed = partial(rule, accepted=P5, status="400 ValidationError")


def interfaces(call: Call) -> list[Json]:
    """Return the interfaces of the group's launch template."""
    return template_of(call.state, call.inputs).get("networkInterfaces") or []


def place(interface: Mapping[str, Any]) -> tuple[int, int]:
    """Return the network card and device index of an interface; both default to 0."""
    return int(interface.get("networkCardIndex") or 0), int(interface.get("deviceIndex") or 0)


def _machines(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((name, facts) for name in types_of(call.state, call.inputs) if (facts := machine(name)))


def _efas(call: Call) -> list[Json]:
    return [one for one in interfaces(call) if one.get("interfaceType") in EFA]


@unformed(refused="cloudacademy/terraform-aws#1, 2021-09-28")
def groups_outside_interfaces(call: Call) -> str | None:
    """With interfaces, security groups are set on them."""
    if not interfaces(call) or not template_of(call.state, call.inputs).get("vpcSecurityGroupIds"):
        return None
    return "When a network interface is provided, the security groups must be a part of it."


@unformed(refused="aws/karpenter-provider-aws#3390, 2023-02-13")
def groups_of_other_network(call: Call) -> str | None:
    """The security groups of a template exist, in the VPC of the subnets."""
    template = template_of(call.state, call.inputs)
    subnets = strings(call.inputs.get("subnetIds"))
    groups = [group for interface in interfaces(call) for group in strings(interface.get("securityGroups"))]
    for group in (*groups, *strings(template.get("vpcSecurityGroupIds"))):
        live = call.state.get(tokens.SECURITY_GROUP, group)
        if live is None:
            return f"The security group '{group}' does not exist"
        if any(vpc_of(call.state, subnet) != live.get("vpcId") for subnet in subnets):
            return f"Security group {group} and subnet {subnets[0]} belong to different networks."
    return None


@unformed(refused="aws/aws-k8s-tester#531, 2024-12-24")
def card_missing(call: Call) -> str | None:
    """An interface is on an existing network card, and on a free device index of it."""
    for name, facts in _machines(call):
        for card, device in map(place, interfaces(call)):
            if card >= len(facts["cards"]):
                return f"Network card index {card} is not valid for instance type '{name}'."
            if device >= facts["cards"][card]:
                return f"Device index {device} is not valid on network card {card} of instance type '{name}'."
    return None


@unformed(refused="Young-ook/terraform-aws-eks#148, 2022-03-20")
def place_taken(call: Call) -> str | None:
    """No two interfaces have the same network card and device index."""
    for (card, device), count in Counter(map(place, interfaces(call))).items():
        if count > 1:
            return f"Each network interface requires a unique device index: {device} on network card {card}."
    return None


@unformed(refused="aws/aws-parallelcluster#7143, 2025-12-06")
def efa_unsupported(call: Call) -> str | None:
    """EFA interfaces need an instance type with EFA, and a card with EFA."""
    for name, facts in _machines(call):
        for card, _ in map(place, _efas(call)):
            if card not in facts.get("efaCards", ()):
                return f"EFA interfaces are not supported on network card {card} of {name}."
    return None


@unformed(refused="hashicorp/terraform-provider-aws#24043, 2022-04-06")
def two_efas_on_card(call: Call) -> str | None:
    """A network card has at most one EFA."""
    for card, count in Counter(card for card, _ in map(place, _efas(call))).items():
        if count > 1:
            return f"Only one EFA interface is supported per network card; network card {card} has {count}."
    return None


@unformed(refused="aws/karpenter-provider-aws#5666, 2024-02-15")
def public_address_with_several_interfaces(call: Call) -> str | None:
    """Only an instance with one interface gets a public address automatically."""
    asked = interfaces(call)
    public = any(str(one.get("associatePublicIpAddress")).lower() == "true" for one in asked)
    if len(asked) < 2 or not public:
        return None
    return "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces."


RULES = rules_of(globals())
