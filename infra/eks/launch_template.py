"""The launch templates: how an instance of a node group is started. What starts when is `node_groups`.

A template for a managed node group names no subnet and no image: EKS fills in both, and refuses a template with a
subnet. With network interfaces in it, security groups belong to each interface and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws import ec2

from infra.catalog.aws import ROOT_DEVICE, ROOT_GB
from infra.catalog.capacity import EksCapacity
from infra.eks.interfaces import Interface
from infra.eks.names import EksNames

IMDS_HOPS = 1
"""A pod is one hop further away than its node, so it cannot ask for the node's credentials; what shares the host's
network can (terraform-aws-eks v21 chose the same, 2026-08)."""

TAGGED = ("instance", "volume", "network-interface")


@dataclass(frozen=True, kw_only=True)
class LaunchTemplateArgs:
    """What a template is made from.

    group: the node group's name. layout and security_groups: the interfaces, and the groups that each of them has; an
    empty layout leaves the one interface to EKS. user_data: base64. instance_type: where the template has to name it.
    """

    names: EksNames
    group: str
    layout: Sequence[Interface] = ()
    security_groups: Sequence[pulumi.Input[str]] = ()
    user_data: str | None = None
    capacity: EksCapacity | None = None
    reservation: str | None = None
    placement_group: pulumi.Input[str] | None = None
    instance_type: str | None = None


def launch_template(name: str, args: LaunchTemplateArgs, opts: ResourceOptions) -> ec2.LaunchTemplate:
    """The template of a node group."""
    tags = args.names.tags(args.group)
    return ec2.LaunchTemplate(
        name,
        name=args.names.template(args.group),
        description=f"Nodes of group {args.group}",
        # Whoever looks at the template sees the version that the node group uses.
        update_default_version=True,
        instance_type=args.instance_type,
        user_data=args.user_data,
        network_interfaces=network_interfaces(args.layout, args.security_groups) or None,
        placement=ec2.LaunchTemplatePlacementArgs(group_name=args.placement_group) if args.placement_group else None,
        capacity_reservation_specification=_reservation(args),
        instance_market_options=_market(args.capacity),
        block_device_mappings=[
            ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=ROOT_DEVICE,
                ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    volume_size=ROOT_GB, volume_type="gp3", encrypted="true", delete_on_termination="true"
                ),
            )
        ],
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=IMDS_HOPS
        ),
        tag_specifications=[ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in TAGGED],
        tags=tags,
        opts=opts,
    )


def network_interfaces(
    layout: Sequence[Interface], security_groups: Sequence[pulumi.Input[str]]
) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
    """A layout in the SDK's words; every interface has every group."""
    return [
        ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card,
            device_index=one.device,
            interface_type=one.kind,
            security_groups=security_groups,
            delete_on_termination="true",
        )
        for one in layout
    ]


def _reservation(args: LaunchTemplateArgs) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    if args.capacity is None or not args.capacity.targets_reservation:
        return None
    target = ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=args.reservation
    )
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def _market(capacity: EksCapacity | None) -> ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    """Spot has none here: a managed node group says it itself, and refuses a template that does so, too."""
    if capacity is None or capacity.market_type is None:
        return None
    return ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type=capacity.market_type)


def placement_group(name: str, names: EksNames, opts: ResourceOptions) -> aws.ec2.PlacementGroup:
    """A group that puts the nodes close to each other on the network, as far as EC2 can."""
    return aws.ec2.PlacementGroup(
        name, name=names.placement_group, strategy="cluster", tags=names.tags("gpu"), opts=opts
    )
