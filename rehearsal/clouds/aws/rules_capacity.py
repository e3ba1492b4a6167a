"""Rules of a node group's capacity: market, reservation, placement, zone, quota, and joining the cluster."""

from __future__ import annotations

import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import instance_type, node_family, offered, quota
from rehearsal.clouds.aws.references import (
    cluster_of,
    desired,
    policies_of,
    reservation,
    reservation_of,
    route_table_of,
    routes_of,
    strings,
    template_data,
    types_of,
    zone_of,
)
from rehearsal.clouds.aws.refusals import (
    AUTO_SCALING,
    BLOCKS,
    EC2_ERRORS,
    NO_JOIN,
    PROVIDER_GROUP,
    QUOTAS,
    RESERVED_GROUP,
    failed,
    invalid,
    refused,
    unfit,
)
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at

_NO_JOIN = "Instances failed to join the kubernetes cluster"
_NEEDED = ("ec2", "ecr.api", "ecr.dkr", "sts")
"""Endpoints that a node in a closed network needs to join (EKS docs, private clusters; unverified, 2026-11)."""


def _asked(call: Call) -> Json:
    return call.now or call.inputs


def _zones(call: Call) -> set[str]:
    return {zone_of(call.state, subnet) for subnet in strings(call.inputs.get("subnetIds"))}


def _market(call: Call) -> str | None:
    found = value_at(template_data(call.state, call.inputs), "instanceMarketOptions.marketType")
    return str(found) if found else None


def _placement(call: Call) -> str | None:
    found = value_at(template_data(call.state, call.inputs), "placement.groupName")
    return str(found) if found else None


@on("create")
def capacity_type_unknown(call: Call) -> Refusal | None:
    """The capacity type is on demand, spot or a capacity block."""
    asked = call.inputs.get("capacityType")
    if asked in (None, "ON_DEMAND", "SPOT", "CAPACITY_BLOCK"):
        return None
    words = 'expected capacity_type to be one of ["ON_DEMAND" "SPOT" "CAPACITY_BLOCK"], got'
    return unfit(f"{words} {asked}", PROVIDER_GROUP)


@on("create", "update")
def block_without_template(call: Call) -> Refusal | None:
    """A group on a capacity block has a launch template with instance type, market type and target."""
    if call.inputs.get("capacityType") != "CAPACITY_BLOCK":
        return None
    template = template_data(call.state, call.inputs)
    lacks = [
        words
        for words, there in (
            ("an instance type", template.get("instanceType")),
            ("the market type capacity-block", _market(call) == "capacity-block"),
            ("a capacity reservation target", reservation_of(template)),
        )
        if not there
    ]
    if not lacks:
        return None
    words = "Node groups with capacity type CAPACITY_BLOCK need a launch template that specifies"
    return invalid(f"{words} {' and '.join(lacks)}.", BLOCKS)


@on("create")
def block_market_elsewhere(call: Call) -> Refusal | None:
    """The market type capacity-block is for node groups of that capacity type."""
    if _market(call) != "capacity-block" or call.inputs.get("capacityType") == "CAPACITY_BLOCK":
        return None
    words = "Instance market type capacity-block requires the node group's capacity type to be CAPACITY_BLOCK."
    return invalid(words, BLOCKS)


@on("create")
def block_of_other_machine(call: Call) -> Refusal | None:
    """Capacity blocks are sold for some instance types."""
    if call.inputs.get("capacityType") != "CAPACITY_BLOCK":
        return None
    for name in types_of(call.state, call.inputs):
        machine = instance_type(name)
        if machine is not None and not machine.capacity_blocks:
            return invalid(f"The instance type '{name}' is not supported for Capacity Blocks.", BLOCKS)
    return None


@on("create")
def reservation_malformed(call: Call) -> Refusal | None:
    """A reservation is named by its id, a group of them by its ARN."""
    target = reservation_of(template_data(call.state, call.inputs))
    if target is None or re.fullmatch(r"cr-[0-9a-f]{8,17}|arn:aws[a-z-]*:resource-groups:\S+", target):
        return None
    words = f"The capacity reservation ID '{target}' is malformed"
    return refused("InvalidCapacityReservationId.Malformed", words, EC2_ERRORS)


@on("create")
def reservation_elsewhere(call: Call) -> Refusal | None:
    """Reserved instances are in the zone of their reservation."""
    target = reservation_of(template_data(call.state, call.inputs))
    known = reservation(call.state, target) if target else None
    zone = (known or {}).get("availabilityZone")
    if zone is None or _zones(call) == {zone}:
        return None
    words = f"The capacity reservation {target} is in {zone}, the subnets of the node group are in"
    return invalid(f"{words} {', '.join(sorted(_zones(call)))}.", BLOCKS)


@on("create", "update")
def reservation_of_other_machine(call: Call) -> Refusal | None:
    """Reserved instances have the instance type of the reservation."""
    target = reservation_of(template_data(call.state, call.inputs))
    reserved = ((reservation(call.state, target) if target else None) or {}).get("instanceType")
    if reserved is None or types_of(call.state, call.inputs) == [reserved]:
        return None
    words = "The attributes of the requested instance do not match those of the capacity reservation"
    return refused("InvalidParameterValue", f"{words} {target}: {reserved}", EC2_ERRORS)


@on("create", "update")
def reservation_not_active(call: Call) -> Refusal | None:
    """Instances start after their reservation is active, not while it is only scheduled."""
    target = reservation_of(template_data(call.state, call.inputs))
    condition = ((reservation(call.state, target) if target else None) or {}).get("state", "active")
    if condition == "active" or not desired(_asked(call)):
        return None
    words = f"Could not launch instances: the capacity reservation {target} is not active, its state is {condition}"
    return failed("AsgInstanceLaunchFailures", words, BLOCKS)


@on("create", "update")
def reservation_outside_placement(call: Call) -> Refusal | None:
    """A placement group uses only a part of a reservation, unless the reservation was created in that group."""
    target, group = reservation_of(template_data(call.state, call.inputs)), _placement(call)
    known = (reservation(call.state, target) if target else None) or {}
    if target is None or group is None or str(known.get("placementGroupArn")).endswith(f"/{group}"):
        return None
    if not desired(_asked(call)):
        return None
    words = "Could not launch On-Demand Instances. ReservationCapacityExceeded - The requested reservation does not"
    return failed(
        "AsgInstanceLaunchFailures",
        f"{words} have sufficient compatible and available capacity for this request in placement group {group}.",
        RESERVED_GROUP,
    )


@on("create")
def spot_with_reservation(call: Call) -> Refusal | None:
    """Spot instances use no reservation."""
    if call.inputs.get("capacityType") != "SPOT" or not reservation_of(template_data(call.state, call.inputs)):
        return None
    words = "Capacity reservations cannot be targeted by Spot Instances."
    return refused("InvalidParameterCombination", words, EC2_ERRORS)


@on("create")
def placement_group_missing(call: Call) -> Refusal | None:
    """A placement group exists before instances start in it."""
    group = _placement(call)
    if group is None or call.state.get(tokens.PLACEMENT_GROUP, group) is not None:
        return None
    return refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.", EC2_ERRORS)


@on("create")
def placement_group_in_several_zones(call: Call) -> Refusal | None:
    """A cluster placement group is in one zone."""
    group = _placement(call)
    strategy = (call.state.get(tokens.PLACEMENT_GROUP, group) or {}).get("strategy") if group else None
    if strategy != "cluster" or len(_zones(call)) < 2:
        return None
    words = f"Cluster placement group {group} cannot span Availability Zones: {', '.join(sorted(_zones(call)))}."
    return refused("ValidationError", words, AUTO_SCALING)


@on("create")
def placement_group_of_other_machine(call: Call) -> Refusal | None:
    """Burstable instances cannot be in a cluster placement group."""
    group = _placement(call)
    strategy = (call.state.get(tokens.PLACEMENT_GROUP, group) or {}).get("strategy") if group else None
    for name in types_of(call.state, call.inputs):
        if strategy == "cluster" and re.match(r"(t\d|a1\.)", name):
            words = f"Cluster placement groups are not supported by the '{name}' instance type. Specify a supported"
            more = "instance type or change the placement group strategy, and try again."
            return refused("InvalidParameterCombination", f"{words} {more}", EC2_ERRORS)
    return None


@on("create", "update")
def type_not_in_zone(call: Call) -> Refusal | None:
    """The zones of the group offer its instance type."""
    for name in types_of(call.state, call.inputs):
        for zone in sorted(_zones(call)):
            if instance_type(name) is not None and not offered(name, zone, call.state):
                words = f"Your requested instance type ({name}) is not supported in your requested Availability Zone"
                more = (
                    f"({zone}). Please retry your request by not specifying an Availability Zone or choosing another."
                )
                return refused("Unsupported", f"{words} {more}", EC2_ERRORS)
    return None


@on("create", "update")
def vcpu_quota(call: Call) -> Refusal | None:
    """On-demand instances stay within the account's vCPU quota; an empty group counts nothing."""
    if call.inputs.get("capacityType") not in (None, "ON_DEMAND"):
        return None
    if reservation_of(template_data(call.state, call.inputs)):
        return None
    name = types_of(call.state, call.inputs)[0]
    machine, limit = instance_type(name), quota(call.state, node_family(name))
    others = 0
    for _, id_, live in call.state.all(tokens.NODE_GROUP):
        used = types_of(call.state, live)[0]
        if id_ != call.id and node_family(used) == node_family(name) and live.get("capacityType") == "ON_DEMAND":
            others += desired(live) * getattr(instance_type(used), "vcpus", 0)
    if machine is None or limit is None or others + desired(_asked(call)) * machine.vcpus <= limit:
        return None
    words = f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance"
    more = (
        "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request"
    )
    return failed("VcpuLimitExceeded", f"{words} {more} to request an adjustment to this limit.", QUOTAS)


@on("create")
def nodes_without_policies(call: Call) -> Refusal | None:
    """Nodes need the policies of a worker to join; an empty group has no node to join."""
    found = policies_of(call.state, call.inputs.get("nodeRoleArn"))
    worker = found & {"AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"}
    images = {name for name in found if name.startswith("AmazonEC2ContainerRegistry")}
    if not desired(call.inputs) or (worker and images):
        return None
    lacks = "AmazonEKSWorkerNodePolicy" if not worker else "AmazonEC2ContainerRegistryPullOnly"
    return failed("NodeCreationFailure", f"{_NO_JOIN} (the node role has no {lacks})", NO_JOIN)


@on("create")
def nodes_without_pod_network(call: Call) -> Refusal | None:
    """Nodes become ready when vpc-cni runs on them, self-managed or as an add-on."""
    cluster = cluster_of(call) or {}
    name = str(call.inputs.get("clusterName"))
    addon = call.state.get(tokens.ADDON, f"{name}:vpc-cni")
    if not desired(call.inputs) or addon is not None or cluster.get("bootstrapSelfManagedAddons") is not False:
        return None
    words = (
        "Unhealthy nodes in the kubernetes cluster (container runtime network not ready: cni plugin not initialized)"
    )
    return failed("NodeCreationFailure", words, NO_JOIN)


@on("create")
def nodes_without_way_out(call: Call) -> Refusal | None:
    """Nodes reach EC2, ECR and STS: through NAT, or through endpoints in their VPC."""
    if not desired(call.inputs):
        return None
    for subnet in strings(call.inputs.get("subnetIds")):
        vpc = (call.state.get(tokens.SUBNET, subnet) or {}).get("vpcId")
        routes = list(routes_of(call.state, route_table_of(call.state, subnet)))
        out = any(
            route.get("destinationCidrBlock") == "0.0.0.0/0" and (route.get("natGatewayId") or route.get("gatewayId"))
            for route in routes
        )
        services = {
            str(live.get("serviceName")).split(".", 3)[-1]
            for _, _, live in call.state.all(tokens.ENDPOINT)
            if live.get("vpcId") == vpc
        }
        lacks = [service for service in (*_NEEDED, "s3") if service not in services]
        if not out and lacks:
            words = f"{subnet} has no route out, and its VPC no endpoint of {', '.join(lacks)}"
            return failed("NodeCreationFailure", f"{_NO_JOIN} ({words})", NO_JOIN)
    return None
