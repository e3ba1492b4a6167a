"""Invariants of an AWS stack's node groups and their interfaces."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from infra.catalog.aws import ACCELERATOR_LABEL, ROOT_DEVICE, ROOT_GB, SYSTEM_MACHINE
from infra.catalog.pins import EKS_NODE_IMAGE
from infra.eks.interfaces import interfaces
from infra.eks.pod import HEAD_ENVIRONMENT
from rehearsal.invariants.eks_resources import (
    CLUSTER,
    GROUP_TAG,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    PLACEMENT_GROUP,
    POD_IDENTITY,
    SCHEDULE,
    capacity_of,
    efa_group,
    gpu_groups,
    gpu_templates,
    machine_of,
    system_groups,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import ray_clusters

EFA = ("efa", "efa-only")
HEAD = "spec.headGroupSpec.template.spec"


def interfaces_are_the_machines(stack: Stack) -> Iterator[str]:
    """A GPU node has the interfaces of its machine: as many EFAs as possible, the first one standard."""
    machine = machine_of(stack)
    wide = stack.eks.network.interfaces == "bandwidth-optimised"
    wanted = [(one.card, one.device, one.kind) for one in interfaces(machine, bandwidth_optimized=wide)]
    for template in gpu_templates(stack):
        asked = at(template, "networkInterfaces") or []
        found = [(one.get("networkCardIndex"), one.get("deviceIndex"), one.get("interfaceType")) for one in asked]
        if found != wanted:
            yield f"{template.name}: {found}"
        efas = Counter(card for card, _, kind in found if kind in EFA)
        if len(efas) != machine.nics or set(efas.values()) != {1}:
            yield f"{template.name}: {sum(efas.values())} EFAs on {len(efas)} cards"


def every_interface_has_both_groups(stack: Stack) -> Iterator[str]:
    """Every interface of a GPU node has the cluster's security group and that of EFA."""
    efa = efa_group(stack)
    for template in gpu_templates(stack):
        for one in at(template, "networkInterfaces") or []:
            groups = one.get("securityGroups") or []
            own = {cluster.outputs["vpcConfig"]["clusterSecurityGroupId"] for cluster in stack.of(CLUSTER)}
            if efa is None or set(groups) != own | {efa.id}:
                yield f"{template.name}: card {one.get('networkCardIndex')} has {groups}"


def interfaces_are_open_in_time(stack: Stack) -> Iterator[str]:
    """GPU nodes wait for the rules of EFA: an interface that starts before them stays closed."""
    for group in gpu_groups(stack):
        rules = [
            node
            for node in stack.graph.managed
            if node.type.startswith("aws:vpc/") and efa_group(stack) and at(node, "securityGroupId") == _efa_id(stack)
        ]
        for rule in rules:
            if rule.urn not in stack.graph.needs(group.urn) and at(rule, "referencedSecurityGroupId") == _efa_id(stack):
                yield f"{group.name} does not wait for {rule.name}"


def templates_leave_subnet_and_image_to_eks(stack: Stack) -> Iterator[str]:
    """A launch template sets no subnet, image or instance profile, and security groups only on its interfaces."""
    for template in stack.of(LAUNCH_TEMPLATE):
        for key in ("imageId", "iamInstanceProfile", "keyName"):
            if key in template.inputs:
                yield f"{template.name}: {key}"
        if any(one.get("subnetId") for one in at(template, "networkInterfaces") or []):
            yield f"{template.name}: a subnet"
        if at(template, "networkInterfaces") and at(template, "vpcSecurityGroupIds"):
            yield f"{template.name}: groups outside of interfaces"


def pods_get_no_credentials_of_the_node(stack: Stack) -> Iterator[str]:
    """The metadata service requires a token and answers within one hop, which excludes pods."""
    for template in stack.of(LAUNCH_TEMPLATE):
        yield from expect(
            template,
            metadataOptions__httpTokens="required",
            metadataOptions__httpPutResponseHopLimit=1,
            metadataOptions__httpEndpoint="enabled",
        )


def disks_are_encrypted(stack: Stack) -> Iterator[str]:
    """Volumes are encrypted and deleted with their node."""
    for template in stack.of(LAUNCH_TEMPLATE):
        if not at(template, "blockDeviceMappings"):
            yield f"{template.name}: no volume"
        for mapping in at(template, "blockDeviceMappings") or []:
            ebs = mapping.get("ebs") or {}
            if ebs.get("encrypted") != "true" or ebs.get("deleteOnTermination") != "true":
                yield f"{template.name}: {ebs}"


def nodes_use_their_fast_disks(stack: Stack) -> Iterator[str]:
    """The user data of a GPU node combines its NVMe disks and lifts the limit of locked memory for RDMA."""
    for template in gpu_templates(stack):
        text = base64.b64decode(str(at(template, "userData") or "")).decode()
        for word in ("application/node.eks.aws", "RAID0", "RLIMIT_MEMLOCK"):
            if word not in text:
                yield f"{template.name}: no {word}"


def groups_are_as_their_capacity_demands(stack: Stack) -> Iterator[str]:
    """A GPU group matches its capacity: type, market, target, size."""
    capacity, nodes = capacity_of(stack), stack.eks.nodes
    for group in gpu_groups(stack):
        fewest = 0 if capacity.starts_empty else nodes.min
        yield from expect(
            group,
            capacityType=capacity.capacity_type,
            scalingConfig__minSize=fewest,
            scalingConfig__desiredSize=fewest,
            scalingConfig__maxSize=nodes.max,
        )
    for template in gpu_templates(stack):
        target = "capacityReservationSpecification.capacityReservationTarget.capacityReservationId"
        if at(template, target) != (nodes.reservation if capacity.targets_reservation else None):
            yield f"{template.name}: it targets {at(template, target)}"
        yield from expect(template, instanceMarketOptions__marketType=capacity.market_type)


def groups_are_as_their_machine_demands(stack: Stack) -> Iterator[str]:
    """A GPU group has one instance type, the pinned image release with the driver, labels, and the taint."""
    machine, block = machine_of(stack), capacity_of(stack).market_type is not None
    for group in gpu_groups(stack):
        yield from expect(group, amiType="AL2023_x86_64_NVIDIA", releaseVersion=EKS_NODE_IMAGE)
        yield from expect(group, instanceTypes=None if block else [machine.name])
        labels = at(group, "labels") or {}
        for key in ("nvidia.com/gpu.present", "vpc.amazonaws.com/efa.present"):
            if labels.get(key) != "true":
                yield f"{group.name}: no label {key}"
        taints = [(one.get("key"), one.get("value"), one.get("effect")) for one in at(group, "taints") or []]
        if taints != [("nvidia.com/gpu", "true", "NO_SCHEDULE")]:
            yield f"{group.name}: pods without a GPU may run on it"
    for template in gpu_templates(stack):
        yield from expect(template, instanceType=machine.name if block else None)


def nodes_are_drained_before_their_block_ends(stack: Stack) -> Iterator[str]:
    """Nodes of a block with a known end drain for 15 minutes before EC2 reclaims them, and the group stays empty until
    the end.

    EC2 reclaims the nodes in the last half hour. After the end, the group has its initial size.
    """
    ends = stack.eks.nodes.block_ends
    groups = [at(tag, "autoscalingGroupName") for tag in stack.of(GROUP_TAG)]
    wanted: list[tuple[Any, ...]] = []
    if ends is not None:
        end = datetime.fromisoformat(ends)
        early = end - timedelta(minutes=45)
        wanted = [
            (f"{early.minute} {early.hour} {early.day} {early.month} *", 0, 0, 0),
            (f"{end.minute} {end.hour} {end.day} {end.month} *", 0, stack.eks.nodes.max, -1),
        ]
    actions = stack.of(SCHEDULE)
    found = [tuple(at(one, key) for key in ("recurrence", "minSize", "maxSize", "desiredCapacity")) for one in actions]
    if found != wanted:
        yield f"the actions are {found}"
    for one in actions:
        if at(one, "autoscalingGroupName") not in groups:
            yield f"{one.name}: it is of {at(one, 'autoscalingGroupName')}"
        when = at(one, "recurrence").split()
        stamp = f"{when[3]:0>2}{when[2]:0>2}-{when[1]:0>2}{when[0]:0>2}"
        if not str(at(one, "scheduledActionName")).endswith(stamp):
            yield f"{one.name}: a new time would change it, and with it the start of this one"


def nodes_are_packed_only_where_it_costs_nothing(stack: Stack) -> Iterator[str]:
    """On-demand and spot GPU nodes are in a cluster placement group; reserved ones are not."""
    packed = capacity_of(stack).placement_group
    if len(stack.of(PLACEMENT_GROUP)) != packed:
        yield f"there are {len(stack.of(PLACEMENT_GROUP))} placement groups"
    for group in stack.of(PLACEMENT_GROUP):
        yield from expect(group, strategy="cluster")
    for template in gpu_templates(stack):
        names = [at(group, "name") for group in stack.of(PLACEMENT_GROUP)]
        yield from expect(template, placement__groupName=names[0] if packed and names else None)


def nodes_are_repaired_and_updated_one_by_one(stack: Stack) -> Iterator[str]:
    """EKS repairs nodes, and an update replaces one at a time."""
    for group in stack.of(NODE_GROUP):
        yield from expect(group, nodeRepairConfig__enabled=True, updateConfig__maxUnavailable=1)


def a_group_without_gpus(stack: Stack) -> Iterator[str]:
    """A small group without GPUs, taints and extra interfaces runs the head and the system's pods."""
    others = system_groups(stack)
    if len(others) != 1:
        yield f"there are {len(others)}"
    for group in others:
        yield from expect(group, taints=None, releaseVersion=EKS_NODE_IMAGE, amiType="AL2023_x86_64_STANDARD")
        if not (at(group, "scalingConfig.minSize") or 0) >= 1:
            yield f"{group.name} may be empty"


def groups_start_from_their_templates(stack: Stack) -> Iterator[str]:
    """Every group uses the newest version of a launch template with a fixed name, which is the default version."""
    templates = {node.id: node for node in stack.of(LAUNCH_TEMPLATE)}
    for group in stack.of(NODE_GROUP):
        template = templates.get(str(at(group, "launchTemplate.id")))
        if template is None:
            yield f"{group.name} has none"
            continue
        yield from expect(template, updateDefaultVersion=True)
        if not str(at(template, "name") or "").endswith(f"-{at(group, 'nodeGroupName')}"):
            yield f"{template.name}: its name is {at(template, 'name')}"
        if at(group, "launchTemplate.version") != str(template.outputs.get("latestVersion")):
            yield f"{group.name}: version {at(group, 'launchTemplate.version')}"
        for mapping in at(template, "blockDeviceMappings") or []:
            ebs = mapping.get("ebs") or {}
            found = (mapping.get("deviceName"), ebs.get("volumeSize"), ebs.get("volumeType"))
            if found != (ROOT_DEVICE, ROOT_GB, "gp3"):
                yield f"{template.name}: {found}"
        for one in at(template, "networkInterfaces") or []:
            if one.get("deleteOnTermination") != "true":
                yield f"{template.name}: an interface outlives its node"


def groups_say_what_they_are(stack: Stack) -> Iterator[str]:
    """The CPU group is on demand and has our machine; a GPU group removes old nodes before it adds new ones."""
    for group in system_groups(stack):
        yield from expect(group, capacityType="ON_DEMAND", instanceTypes=[SYSTEM_MACHINE])
    for group in gpu_groups(stack):
        yield from expect(group, updateConfig__updateStrategy="MINIMAL")
        if (at(group, "labels") or {}).get(ACCELERATOR_LABEL) != f"nvidia-{machine_of(stack).gpu.lower()}":
            yield f"{group.name}: the autoscaler takes a node without GPUs for a ready one"


def the_head_has_its_environment(stack: Stack) -> Iterator[str]:
    """The head, which requests no GPU, has the variables that hide GPUs from it."""
    for ray in ray_clusters(stack):
        found = {one["name"]: one.get("value") for one in at(ray, f"{HEAD}.containers.0.env") or []}
        for variable in HEAD_ENVIRONMENT:
            if found.get(variable.name) != variable.value:
                yield f"{ray.name}: {variable.name} is {found.get(variable.name)}"


def empty_groups_wake(stack: Stack) -> Iterator[str]:
    """Tags tell the autoscaler what a node of an empty group offers, and it has its own role."""
    machine = machine_of(stack)
    wanted = {"nvidia.com/gpu": machine.gpus}
    if stack.eks.fabric == "efa":
        wanted["vpc.amazonaws.com/efa"] = machine.nics
    prefix = "k8s.io/cluster-autoscaler/node-template/resources/"
    found = {str(at(tag, "tag.key")).removeprefix(prefix): at(tag, "tag.value") for tag in stack.of(GROUP_TAG)}
    if found != {key: str(value) for key, value in wanted.items()}:
        yield f"the tags are {found}"
    if "cluster-autoscaler" not in [at(node, "serviceAccount") for node in stack.of(POD_IDENTITY)]:
        yield "no association of its ServiceAccount with a role"


def _efa_id(stack: Stack) -> str | None:
    group = efa_group(stack)
    return group.id if group is not None else None


INVARIANTS: tuple[Invariant, ...] = (
    interfaces_are_the_machines,
    every_interface_has_both_groups,
    interfaces_are_open_in_time,
    templates_leave_subnet_and_image_to_eks,
    pods_get_no_credentials_of_the_node,
    disks_are_encrypted,
    nodes_use_their_fast_disks,
    groups_are_as_their_capacity_demands,
    groups_are_as_their_machine_demands,
    nodes_are_drained_before_their_block_ends,
    nodes_are_packed_only_where_it_costs_nothing,
    nodes_are_repaired_and_updated_one_by_one,
    a_group_without_gpus,
    groups_start_from_their_templates,
    groups_say_what_they_are,
    the_head_has_its_environment,
    empty_groups_wake,
)
