"""Managed node groups: one of GPU machines, with the capacity of the stack file, and one of CPU machines.

Node groups rather than Karpenter, because the GPU nodes start as a gang with one interface layout, and a reservation or
a Capacity Block is bound to a launch template.

Buy a Capacity Block before `up`. Its node group stays empty until the block is active; then the autoscaler adds nodes
for pending pods. If the stack file has the block's end, the nodes are drained before it.

The autoscaler owns the number of nodes, so `up` never changes it, and EKS rejects a minimum above it. Before raising
`nodes.min` of a running stack, scale up to that number: `aws eks update-nodegroup-config --cluster-name STACK
--nodegroup-name gpu --scaling-config desiredSize=N`, then `pulumi up`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pulumi
from pulumi import ResourceHook, ResourceHookArgs, ResourceHookBinding, ResourceOptions
from pulumi_aws import autoscaling, ec2, eks

from infra.catalog.aws import ACCELERATOR_LABEL, BLOCK_DRAIN_MINUTES
from infra.catalog.capacity import EKS_CAPACITIES
from infra.catalog.machines import EksMachine
from infra.catalog.names import EFA, GPU
from infra.catalog.pins import EKS_RELEASES
from infra.eks.iam import Role
from infra.eks.launch_template import gpu_template, system_template
from infra.eks.names import GPU_GROUP, SYSTEM_GROUP, EksNames
from infra.naming import STACK
from infra.running_nodes import RunningNodesError, keep_running_nodes
from infra.settings import EksSettings

GPU_LABELS = {
    # The NVIDIA device plugin selects nodes with this label, or those that node feature discovery labels.
    f"{GPU}.present": "true",
    f"{EFA}.present": "true",
}
"""As in aws-ia/terraform-aws-eks-blueprints: nvidia-gpu-efa, 98d0eb4 (read 2026-08)."""

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"
"""Prefix of the tags with the devices of an empty group's future nodes. The autoscaler reads labels and taints from
EKS, but devices only from these tags of the Auto Scaling group, to which EKS does not copy the node group's tags
(kubernetes/autoscaler: cloudprovider/aws README; aws/containers-roadmap #608; unverified, 2026-11)."""

UNCHANGED = -1
"""Value of a scheduled action's size that leaves it as it is (pulumi-aws 7.51.1, autoscaling.Schedule)."""


class SystemNodes(pulumi.ComponentResource):
    """Node group of CPU machines: DNS, operators, autoscalers and the Ray head.

    Args:
        depends_on: Requirements for nodes to become ready and to be deleted: the role's policies, the egress of the
            VPC, and the add-ons of the first step.
        security_groups: Those of the nodes; by default the cluster's alone.
    """

    def __init__(
        self,
        name: str,
        settings: EksSettings,
        names: EksNames,
        opts: ResourceOptions,
        *,
        cluster: pulumi.Input[str],
        role: Role,
        subnet: pulumi.Input[str],
        depends_on: Sequence[pulumi.Resource],
        security_groups: Sequence[pulumi.Input[str]] = (),
    ) -> None:
        super().__init__("rdma-ray:eks:SystemNodes", name, {}, opts)
        choices = settings.cluster
        self.group = eks.NodeGroup(
            name,
            node_group_name=SYSTEM_GROUP,
            cluster_name=cluster,
            node_role_arn=role.arn,
            subnet_ids=[subnet],
            ami_type="AL2023_x86_64_STANDARD",
            # EKS takes a release for the version that the group has, unless the request names another one. An update of
            # the release alone would fail after the control plane's upgrade (eksctl-io/eksctl#7976, 2025-01-08).
            version=choices.version,
            release_version=EKS_RELEASES[choices.version]["node image"],
            capacity_type="ON_DEMAND",
            instance_types=[choices.system_machine],
            launch_template=_newest(system_template(name, names, _fixed_name(self), security_groups=security_groups)),
            scaling_config={"desired_size": 1, "min_size": 1, "max_size": choices.system_nodes},
            update_config={"max_unavailable": 1},
            # The head's PodDisruptionBudget allows no eviction, so an update would end in PodEvictionFailure: after 15
            # minutes EKS ends the head's pod anyway (EKS API, UpdateNodegroupVersion, force; AWS re:Post, "Update EKS
            # node groups timeout"; read 2026-11).
            force_update_version=True,
            node_repair_config={"enabled": True},
            tags=names.tags(SYSTEM_GROUP),
            opts=_group_options(self, SYSTEM_GROUP, settings, role, depends_on),
        )
        _tag_of_stack(name, names, self.group, ResourceOptions(parent=self))
        self.register_outputs({"group": self.group.node_group_name})


class GpuNodes(pulumi.ComponentResource):
    """Node group of GPU machines, all in one zone. Its size follows the pending pods."""

    def __init__(
        self,
        name: str,
        settings: EksSettings,
        names: EksNames,
        opts: ResourceOptions,
        *,
        cluster: pulumi.Input[str],
        role: Role,
        subnet: pulumi.Input[str],
        security_groups: Sequence[pulumi.Input[str]],
        depends_on: Sequence[pulumi.Resource],
    ) -> None:
        """Register the node group; every interface of its nodes has all `security_groups`."""
        super().__init__("rdma-ray:eks:GpuNodes", name, {}, opts)
        machine, capacity = settings.machine, EKS_CAPACITIES[settings.nodes.capacity]
        min_nodes = 0 if capacity.starts_empty else settings.nodes.min
        fixed_name = _fixed_name(self)
        placement: pulumi.Input[str] | None = settings.nodes.placement_group
        if capacity.placement_group and placement is None:
            # Places nodes close to each other on the network, if possible.
            tags = names.tags(GPU_GROUP)
            placement = ec2.PlacementGroup(
                name, name=names.named(GPU_GROUP), strategy="cluster", tags=tags, opts=fixed_name
            ).name
        template = gpu_template(
            name, settings, names, fixed_name, security_groups=security_groups, placement_group=placement
        )
        self.group = eks.NodeGroup(
            name,
            node_group_name=GPU_GROUP,
            cluster_name=cluster,
            node_role_arn=role.arn,
            subnet_ids=[subnet],
            ami_type="AL2023_x86_64_NVIDIA",
            version=settings.cluster.version,
            release_version=EKS_RELEASES[settings.cluster.version]["node image"],
            capacity_type=capacity.capacity_type,
            # For a Capacity Block, the launch template sets the type instead.
            instance_types=None if capacity.market_type else [machine.name],
            launch_template=_newest(template),
            scaling_config={"desired_size": min_nodes, "min_size": min_nodes, "max_size": settings.nodes.max},
            # Old nodes end before new ones start: there is rarely a spare machine of these types.
            update_config={"max_unavailable": 1, "update_strategy": "MINIMAL"},
            node_repair_config={"enabled": True},
            labels=gpu_labels(machine),
            taints=[{"key": GPU, "value": "true", "effect": "NO_SCHEDULE"}],
            tags=names.tags(GPU_GROUP),
            opts=_group_options(self, GPU_GROUP, settings, role, depends_on),
        )
        opts = ResourceOptions(parent=self)
        scaling_group = self.group.resources.apply(scaling_group_name)
        for resource, count in node_devices(settings, machine).items():
            autoscaling.Tag(
                f"{name}-{resource.rpartition('/')[2]}",
                autoscaling_group_name=scaling_group,
                tag={"key": f"{TEMPLATE_TAG}{resource}", "value": str(count), "propagate_at_launch": False},
                opts=opts,
            )
        _tag_of_stack(name, names, self.group, opts)
        if settings.nodes.block_ends is not None:
            end = datetime.fromisoformat(settings.nodes.block_ends)
            BlockEnd(f"{name}-block-end", opts, scaling_group=scaling_group, max_nodes=settings.nodes.max, end=end)
        self.register_outputs({"group": self.group.node_group_name})


def gpu_labels(machine: EksMachine) -> dict[str, str]:
    """Return the labels of a GPU node, besides those that EKS sets."""
    return {**GPU_LABELS, ACCELERATOR_LABEL: f"nvidia-{machine.gpu.lower().replace(' ', '-')}"}


def node_devices(settings: EksSettings, machine: EksMachine) -> dict[str, int]:
    """Return the extended resources of a GPU node. With DRANET there are none for EFA, so claims start no node."""
    nics, gpus = settings.fabric_row.resource, {GPU: machine.gpus}
    return {**gpus, nics.name: nics.amount(nics=machine.nics, gpus=machine.gpus)} if nics else gpus


def scaling_group_name(resources: Sequence[eks.outputs.NodeGroupResource]) -> str:
    """Return the name of the Auto Scaling group that EKS created for a node group."""
    (group,) = resources[0].autoscaling_groups or ()
    return str(group.name)


def _tag_of_stack(name: str, names: EksNames, group: eks.NodeGroup, opts: ResourceOptions) -> None:
    """Tag a group in a cluster of the user's, so that the stack's autoscaler tells it from the user's own groups.

    EKS gives every group's Auto Scaling group the tags of the cluster, but not those of the node group.
    """
    if names.existing is not None:
        autoscaling.Tag(
            f"{name}-stack",
            autoscaling_group_name=group.resources.apply(scaling_group_name),
            tag={"key": STACK, "value": names.stack, "propagate_at_launch": False},
            opts=opts,
        )


class BlockEnd(pulumi.ComponentResource):
    """Two scheduled actions at the end of a Capacity Block: one drains the nodes, one allows nodes again.

    EC2 begins to terminate the instances 30 minutes before the end, and EKS recommends scaling to zero before that (EC2
    docs, capacity-blocks-monitor; EKS docs, capacity-blocks; read 2026-11). The first action sets the Auto Scaling
    group's size and maximum to 0: EKS cordons and drains each node, pods get SIGTERM, and the autoscaler, which reads
    the maximum, adds no node for the pods that are pending again. The second, at the end, restores the maximum, so the
    next block needs no manual step (terraform-aws-eks PR #2504, 2023-03, does the same).

    The end comes from the stack file, so a preview needs no call to AWS. Both actions recur yearly: AWS deletes a
    one-time action after it ran, and the next `up` would create it again, which AWS rejects for a time in the past.
    """

    def __init__(
        self, name: str, opts: ResourceOptions, *, scaling_group: pulumi.Input[str], max_nodes: int, end: datetime
    ) -> None:
        super().__init__("rdma-ray:eks:BlockEnd", name, {}, opts)
        drain = end - timedelta(minutes=BLOCK_DRAIN_MINUTES)
        for action, time, max_size, size in (("drain", drain, 0, 0), ("reopen", end, max_nodes, UNCHANGED)):
            autoscaling.Schedule(
                action,
                # The time is part of the name, so another time is another action. An update of the old one would send
                # the start that AWS computed for it, which AWS rejects if it is in the past (terraform-provider-aws
                # #38983).
                scheduled_action_name=f"{action}-{time:%Y%m%d-%H%M}",
                autoscaling_group_name=scaling_group,
                # Cron in UTC: this minute of every year.
                recurrence=f"{time.minute} {time.hour} {time.day} {time.month} *",
                min_size=0,
                max_size=max_size,
                desired_capacity=size,
                opts=ResourceOptions(parent=self),
            )
        self.register_outputs({})


def _desired(outputs: Mapping[str, Any]) -> int:
    return int((outputs.get("scalingConfig") or {}).get("desiredSize") or 0)


def _image(inputs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of UpdateNodegroupVersion, which replaces every node (terraform-provider-aws, 012e0a32). The
    template is not one: another version of it replaces the group."""
    return [inputs.get(name) for name in ("releaseVersion", "version")]


def keep_size_within_limits(args: ResourceHookArgs) -> None:
    """Refuse limits of a group that exclude its running nodes, whose number stays.

    EKS refuses them as well. But the provider sends them after the image (terraform-provider-aws:
    internal/service/eks/node_group.go, resourceNodeGroupUpdate; read 2026-11-26), so an update of both would replace
    every node before it fails.
    """
    scaling = (args.new_inputs or {}).get("scalingConfig") or {}
    least, most = int(scaling.get("minSize") or 0), int(scaling.get("maxSize") or 0)
    running = _desired(args.old_outputs or {})
    if not least <= running <= most:
        raise RunningNodesError(
            f"Node group {args.name} has {running} nodes, and the stack file limits it to {least} to {most} "
            f"({'nodes.min, nodes.max' if args.name == GPU_GROUP else 'cluster.systemNodes'}); up does not change the "
            "number of nodes. Let the autoscaler remove idle nodes, or scale the group with aws eks "
            "update-nodegroup-config, and run up again (docs/eks.md)"
        )


def _newest(template: ec2.LaunchTemplate) -> eks.NodeGroupLaunchTemplateArgsDict:
    return {"id": template.id, "version": template.latest_version.apply(str)}


def _fixed_name(parent: pulumi.Resource) -> ResourceOptions:
    # The name is fixed, so a replacement cannot be created before its predecessor is deleted.
    return ResourceOptions(parent=parent, delete_before_replace=True)


def _group_options(
    parent: pulumi.Resource, name: str, settings: EksSettings, role: Role, depends_on: Sequence[pulumi.Resource]
) -> ResourceOptions:
    keep = keep_running_nodes(name, protect=settings.protect, nodes=_desired, recreates=_image)
    limits = ResourceHook(f"limits-{name}", keep_size_within_limits)
    opts = ResourceOptions(
        hooks=ResourceHookBinding(before_update=[limits, *((keep.before_update or ()) if keep else ())]),
        # A node that starts without them never becomes ready, and the creation of the group fails.
        depends_on=[*role.grants, *depends_on],
        # The autoscaler owns the number of nodes.
        ignore_changes=["scalingConfig.desiredSize"],
        # An update would lose the pinned node image: the provider sends the release only if it changes as well, EKS
        # then installs the newest one, and its documentation allows no way back (terraform-provider-aws 012e0a32,
        # internal/service/eks/node_group.go, resourceNodeGroupUpdate; EKS API, UpdateNodegroupVersion; read 2026-11).
        replace_on_changes=["launchTemplate.version"],
        # The defaults are an hour each. `up` fails sooner in a zone without machines; an update also drains nodes.
        custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="60m"),
    )
    return ResourceOptions.merge(_fixed_name(parent), opts)
