"""Rules of the interfaces in a launch template, checked when a node group uses it.

EC2 accepts any launch template; an Auto Scaling group validates it against the instance type, even without an instance
(`refusals.ASG_TEMPLATE`). Attribute names are those of `networkInterfaces` on the wire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rehearsal.clouds.aws.offerings import InstanceType, instance_type
from rehearsal.clouds.aws.references import security_group, strings, template_data, types_of
from rehearsal.clouds.aws.refusals import (
    ASG_TEMPLATE,
    EC2_EFA,
    EC2_ERRORS,
    EC2_LAYOUT,
    EC2_TYPES,
    GROUPS_IN_TEMPLATE,
    SUBNET_IN_TEMPLATE,
    invalid,
    refused,
)
from rehearsal.clouds.aws.tokens import SUBNET
from rehearsal.clouds.kind import Call, Json, Refusal, on

EFA = ("efa", "efa-only")
_UNFORMED = "You must use a valid fully-formed launch template."


def interfaces(call: Call) -> list[Json]:
    """The interfaces of the group's launch template."""
    return [dict(one) for one in template_data(call.state, call.inputs).get("networkInterfaces") or []]


def place(interface: Mapping[str, Any]) -> tuple[int, int]:
    """Return the network card and device index of an interface; both default to 0."""
    return int(interface.get("networkCardIndex") or 0), int(interface.get("deviceIndex") or 0)


def _types(call: Call) -> Iterator[InstanceType]:
    if interfaces(call):
        yield from (found for name in types_of(call.state, call.inputs) if (found := instance_type(name)))


def _efas(call: Call) -> list[Json]:
    return [one for one in interfaces(call) if one.get("interfaceType") in EFA]


def _unformed(message: str, source: str) -> Refusal:
    return refused("ValidationError", f"{_UNFORMED} {message}", f"{source}; {ASG_TEMPLATE}")


@on("create", "update")
def card_missing(call: Call) -> Refusal | None:
    """An interface is on an existing network card."""
    for machine in _types(call):
        for card, _ in map(place, interfaces(call)):
            if card >= machine.cards:
                words = f"Network card index {card} is not valid for instance type '{machine.name}'"
                return _unformed(f"{words}, which has {machine.cards} network cards.", EC2_TYPES)
    return None


@on("create", "update")
def device_index_too_high(call: Call) -> Refusal | None:
    """A network card has a maximum number of interfaces."""
    for machine in _types(call):
        for card, device in map(place, interfaces(call)):
            if device >= machine.per_card:
                words = f"Device index {device} is not valid on network card {card} of instance type '{machine.name}'"
                return _unformed(f"{words}: the card takes {machine.per_card} interfaces.", EC2_LAYOUT)
    return None


@on("create", "update")
def place_taken(call: Call) -> Refusal | None:
    """No two interfaces have the same network card and device index."""
    for (card, device), count in Counter(map(place, interfaces(call))).items():
        if count > 1:
            words = f"Each network interface requires a unique device index: {device} on network card {card} is used"
            return _unformed(f"{words} {count} times.", EC2_ERRORS)
    return None


@on("create", "update")
def no_primary_interface(call: Call) -> Refusal | None:
    """One interface is the primary one: device 0 of network card 0."""
    asked = interfaces(call)
    if not asked or (0, 0) in map(place, asked):
        return None
    return _unformed("A primary network interface (device index 0, network card index 0) is required.", EC2_ERRORS)


@on("create", "update")
def primary_without_address(call: Call) -> Refusal | None:
    """The primary interface has an address, so it is not efa-only."""
    for interface in interfaces(call):
        if place(interface) == (0, 0) and interface.get("interfaceType") == "efa-only":
            words = "An EFA-only network interface cannot be attached as the primary network interface."
            return _unformed(words, EC2_EFA)
    return None


@on("create", "update")
def efa_unsupported(call: Call) -> Refusal | None:
    """EFA interfaces need an instance type with EFA."""
    for machine in _types(call):
        if _efas(call) and not machine.efa_max:
            words = f"EFA interfaces are not supported on {machine.name}."
            return _unformed(words, EC2_EFA)
    return None


@on("create", "update")
def efa_on_card_without(call: Call) -> Refusal | None:
    """Card 0 of some instance types supports only the standard interface."""
    for machine in _types(call):
        for card, _ in map(place, _efas(call)):
            if card == 0 and machine.efa_max and not machine.card_zero_efa:
                words = f"Network card 0 of instance type '{machine.name}' does not support EFA interfaces."
                return _unformed(words, EC2_LAYOUT)
    return None


@on("create", "update")
def two_efas_on_card(call: Call) -> Refusal | None:
    """A network card has at most one EFA."""
    for card, count in Counter(card for card, _ in map(place, _efas(call))).items():
        if count > 1:
            words = f"Only one EFA interface is supported per network card; network card {card} has {count}."
            return _unformed(words, EC2_EFA)
    return None


@on("create", "update")
def too_many_efas(call: Call) -> Refusal | None:
    """An instance type has a maximum number of EFAs, which may be less than its network cards."""
    for machine in _types(call):
        count = len(_efas(call))
        if machine.efa_max and count > machine.efa_max:
            words = (
                f"The maximum number of EFA interfaces for '{machine.name}' is {machine.efa_max}; {count} are given."
            )
            return _unformed(words, EC2_LAYOUT)
    return None


@on("create", "update")
def interface_type_unknown(call: Call) -> Refusal | None:
    """An interface is a standard one, an EFA with an address, or an EFA without."""
    for interface in interfaces(call):
        kind = interface.get("interfaceType")
        if kind not in (None, "interface", *EFA):
            return _unformed(f"Value ({kind}) for parameter interfaceType is invalid.", EC2_ERRORS)
    return None


@on("create", "update")
def public_address_with_several_interfaces(call: Call) -> Refusal | None:
    """Only an instance with one interface gets a public address automatically."""
    asked = interfaces(call)
    public = any(str(one.get("associatePublicIpAddress")).lower() == "true" for one in asked)
    if len(asked) < 2 or not public:
        return None
    words = (
        "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces."
    )
    return _unformed(words, EC2_ERRORS)


@on("create", "update")
def address_on_efa_only(call: Call) -> Refusal | None:
    """An interface that is efa-only has no address."""
    keys = ("privateIpAddress", "ipv4AddressCount", "ipv4Addresses", "ipv4PrefixCount", "ipv4Prefixes")
    for interface in interfaces(call):
        if interface.get("interfaceType") == "efa-only" and any(interface.get(key) for key in keys):
            words = "IP addresses and prefixes cannot be assigned to an EFA-only network interface."
            return _unformed(words, EC2_EFA)
    return None


@on("create", "update")
def groups_outside_interfaces(call: Call) -> Refusal | None:
    """With interfaces, security groups are set on them."""
    template = template_data(call.state, call.inputs)
    if not template.get("networkInterfaces") or not template.get("vpcSecurityGroupIds"):
        return None
    words = "Invalid launch template: When a network interface is provided, the security groups must be a part of it."
    return refused("InvalidQueryParameter", words, GROUPS_IN_TEMPLATE)


@on("create", "update")
def groups_of_other_network(call: Call) -> Refusal | None:
    """Security groups of interfaces exist, in the VPC of the subnets."""
    subnets = [call.state.get(SUBNET, subnet) or {} for subnet in strings(call.inputs.get("subnetIds"))]
    for group in {one for interface in interfaces(call) for one in strings(interface.get("securityGroups"))}:
        live = security_group(call.state, group)
        if live is None:
            return _unformed(f"The security group '{group}' does not exist", EC2_ERRORS)
        if any(subnet.get("vpcId") != live.get("vpcId") for subnet in subnets):
            words = f"Security group {group} and subnet {call.inputs['subnetIds'][0]} belong to different networks."
            return _unformed(words, EC2_ERRORS)
    return None


@on("create", "update")
def subnet_in_template(call: Call) -> Refusal | None:
    """The node group sets the subnets of its nodes, not the launch template."""
    if not any(one.get("subnetId") for one in interfaces(call)):
        return None
    return invalid("Launch template must not specify a subnet in its network interfaces.", SUBNET_IN_TEMPLATE)
