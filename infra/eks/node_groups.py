"""The managed node groups: one with GPUs, obtained the way that the stack file names, and one without.

The catalog (`infra.catalog.capacity`) lists what each kind of capacity requires. Node groups, not Karpenter: the GPU
nodes start as a gang from one group with one interface layout, and a reservation or a Capacity Block binds to a launch
template.

A Capacity Block is bought before `up`. Its group is empty and stays so until the block is active; then the autoscaler
adds nodes for the pods that wait. Before the block's end they are drained, if the stack file says when that is
(`block_end`). Another launch template, too, is for an empty group: a new node cannot come before an old one has gone.

The number of nodes is the autoscaler's, so `up` never changes it; and EKS refuses a least number above it. Before
`nodes.min` of a living stack is raised, there have to be as many nodes: `aws eks update-nodegroup-config --cluster-name
STACK --nodegroup-name gpu --scaling-config desiredSize=N`, then `pulumi up --refresh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws import eks

from infra.catalog.aws import ACCELERATOR_LABEL, SYSTEM_MACHINE, SYSTEM_MAX_NODES
from infra.catalog.capacity import EKS_CAPACITIES
from infra.catalog.machines import EksMachine
from infra.catalog.pins import EKS_NODE_IMAGE
from infra.eks.block_end import BlockEnd, BlockEndArgs
from infra.eks.fabric import EFA_RESOURCE
from infra.eks.interfaces import interfaces
from infra.eks.launch_template import LaunchTemplateArgs, launch_template, placement_group
from infra.eks.names import GPU_GROUP, SYSTEM_GROUP, EksNames
from infra.eks.user_data import lustre_over_efa, node_config, user_data
from infra.settings import Settings

GPU_LABELS = {
    # The NVIDIA device plugin comes to nodes with this label, or to those that node feature discovery found.
    "nvidia.com/gpu.present": "true",
    "vpc.amazonaws.com/efa.present": "true",
}
"""As aws-ia/terraform-aws-eks-blueprints: nvidia-gpu-efa, 98d0eb4 (read 2026-08)."""

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"
"""What a node of an empty group will offer. The autoscaler reads labels and taints from EKS, but of devices it knows
only what these tags of the Auto Scaling group say, to which EKS copies no tag of a node group (kubernetes/autoscaler:
cloudprovider/aws README; aws/containers-roadmap #608; from memory, 2026-11)."""

# Names of groups and templates are fixed, so a successor can only be made when its predecessor is gone.
_FIXED_NAME = True


@dataclass(frozen=True, kw_only=True)
class NodesArgs:
    """What both groups are made from.

    cluster: its name. role: the nodes' role. needs: what must be there before the first node, and go only after the
    last: the role's rights, the way out of the VPC, and the add-ons without which no node becomes ready.
    """

    names: EksNames
    cluster: pulumi.Input[str]
    role: pulumi.Input[str]
    subnet: pulumi.Input[str]
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class GpuNodesArgs:
    """security_groups: of every interface: the cluster's and that of EFA."""

    nodes: NodesArgs
    settings: Settings
    machine: EksMachine
    security_groups: Sequence[pulumi.Input[str]]


class SystemNodes(pulumi.ComponentResource):
    """The CPU nodes: DNS, operators, the autoscalers and the Ray head."""

    def __init__(self, name: str, args: NodesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:SystemNodes", name, {}, opts)
        template = launch_template(
            name,
            LaunchTemplateArgs(names=args.names, group=SYSTEM_GROUP),
            ResourceOptions(parent=self, delete_before_replace=_FIXED_NAME),
        )
        self.group = eks.NodeGroup(
            name,
            node_group_name=SYSTEM_GROUP,
            cluster_name=args.cluster,
            node_role_arn=args.role,
            subnet_ids=[args.subnet],
            ami_type="AL2023_x86_64_STANDARD",
            release_version=EKS_NODE_IMAGE,
            capacity_type="ON_DEMAND",
            instance_types=[SYSTEM_MACHINE],
            launch_template=_template(template),
            scaling_config=eks.NodeGroupScalingConfigArgs(desired_size=1, min_size=1, max_size=SYSTEM_MAX_NODES),
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            tags=args.names.tags(SYSTEM_GROUP),
            opts=_options(self, args),
        )
        self.register_outputs({"group": self.group.node_group_name})


class GpuNodes(pulumi.ComponentResource):
    """The GPU nodes, all in one zone. The group has no size of its own: pods that wait make nodes come, others go."""

    def __init__(self, name: str, args: GpuNodesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:GpuNodes", name, {}, opts)
        nodes, settings, machine = args.nodes, args.settings, args.machine
        capacity = EKS_CAPACITIES[str(settings.nodes.capacity)]
        block = capacity.capacity_type == "CAPACITY_BLOCK"
        fixed = ResourceOptions(parent=self, delete_before_replace=_FIXED_NAME)
        placement = placement_group(name, nodes.names, fixed) if capacity.placement_group else None
        template = launch_template(
            name,
            LaunchTemplateArgs(
                names=nodes.names,
                group=GPU_GROUP,
                layout=interfaces(machine, bandwidth_optimised=settings.network.interfaces == "bandwidth-optimised"),
                security_groups=args.security_groups,
                user_data=user_data(node_config(), lustre_over_efa() if settings.storage.efa else None),
                capacity=capacity,
                reservation=settings.nodes.reservation,
                placement_group=placement.name if placement else None,
                # A block is for one type, which its template names and its node group must not.
                instance_type=machine.name if block else None,
            ),
            ResourceOptions(parent=self, delete_before_replace=_FIXED_NAME),
        )
        fewest = 0 if capacity.starts_empty else settings.nodes.min
        self.group = eks.NodeGroup(
            name,
            node_group_name=GPU_GROUP,
            cluster_name=nodes.cluster,
            node_role_arn=nodes.role,
            subnet_ids=[nodes.subnet],
            ami_type="AL2023_x86_64_NVIDIA",
            release_version=EKS_NODE_IMAGE,
            capacity_type=capacity.capacity_type,
            instance_types=None if block else [machine.name],
            launch_template=_template(template),
            scaling_config=eks.NodeGroupScalingConfigArgs(
                desired_size=fewest, min_size=fewest, max_size=settings.nodes.max
            ),
            # Old nodes go before new ones come: of these machines there is rarely one to spare.
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1, update_strategy="MINIMAL"),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            labels={**GPU_LABELS, ACCELERATOR_LABEL: f"nvidia-{machine.gpu.lower()}"},
            taints=[eks.NodeGroupTaintArgs(key="nvidia.com/gpu", value="true", effect="NO_SCHEDULE")],
            tags=nodes.names.tags(GPU_GROUP),
            opts=_options(self, nodes),
        )
        scaling_group = self.group.resources.apply(autoscaling_group)
        for resource, count in offered(settings, machine).items():
            aws.autoscaling.Tag(
                f"{name}-{resource.rpartition('/')[2]}",
                autoscaling_group_name=scaling_group,
                tag=aws.autoscaling.TagTagArgs(
                    key=f"{TEMPLATE_TAG}{resource}", value=str(count), propagate_at_launch=False
                ),
                opts=ResourceOptions(parent=self),
            )
        if settings.nodes.block_ends is not None:
            BlockEnd(
                f"{name}-block-end",
                BlockEndArgs(group=scaling_group, most=settings.nodes.max, ends=settings.nodes.block_ends),
                ResourceOptions(parent=self),
            )
        self.register_outputs({"group": self.group.node_group_name})


def offered(settings: Settings, machine: EksMachine) -> dict[str, int]:
    """The devices that a node will offer by count. Claims (DRANET) are not counted, and wake no pool."""
    devices = {"nvidia.com/gpu": machine.gpus}
    if settings.fabric == "efa":
        devices[EFA_RESOURCE] = machine.efa_max
    return devices


def autoscaling_group(resources: Sequence[eks.outputs.NodeGroupResource]) -> str:
    """The name of the Auto Scaling group that EKS made for a node group: there is always one."""
    (made,) = resources[0].autoscaling_groups or ()
    return str(made.name)


def _template(template: aws.ec2.LaunchTemplate) -> eks.NodeGroupLaunchTemplateArgs:
    return eks.NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str))


def _options(parent: pulumi.Resource, args: NodesArgs) -> ResourceOptions:
    return ResourceOptions(
        parent=parent,
        # A node that starts without them never becomes ready, and EKS gives up on the group.
        depends_on=list(args.needs),
        # The autoscaler's business.
        ignore_changes=["scalingConfig.desiredSize"],
        delete_before_replace=_FIXED_NAME,
        # The default is an hour each; a group whose zone has no machine to give would hold `up` as long.
        custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="60m"),
    )
