"""VPC of the stack: private subnets for the control plane, the CPU nodes and the GPU nodes.

All GPU nodes are in one subnet of one zone, because EFA traffic is not routed and does not leave its zone. How nodes
reach services outside the VPC is in `egress`.
"""

from __future__ import annotations

from ipaddress import IPv4Network

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.addresses import eks_addresses
from infra.catalog.aws import is_zone_id
from infra.eks.names import EksNames
from infra.settings import EksSettings


class ClusterNetwork(pulumi.ComponentResource):
    """The VPC, its private subnets, and their route table, which has no route to the outside.

    `private` are the control plane's subnets, the one in the nodes' zone first; `gpu` is the GPU nodes' subnet. A node
    depends on its subnet's entry in `associations`: without it the node has no route to the outside.
    """

    vpc: pulumi.Output[str]
    gpu: pulumi.Output[str]
    private: tuple[pulumi.Output[str], pulumi.Output[str]]
    routes: pulumi.Output[str]

    def __init__(self, name: str, settings: EksSettings, names: EksNames, opts: ResourceOptions) -> None:
        super().__init__("rdma-ray:eks:ClusterNetwork", name, {}, opts)
        own = ResourceOptions(parent=self)
        self.addresses = eks_addresses(IPv4Network(settings.network.base_range), settings.nodes.max)
        self.zones = (settings.location, settings.network.second_zone)
        vpc = aws.ec2.Vpc(
            name,
            cidr_block=str(self.addresses.base),
            # Both are required to resolve the names of the cluster's private endpoint and of FSx.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=names.tags(),
            opts=own,
        )
        table = aws.ec2.RouteTable(f"{name}-private", vpc_id=vpc.id, tags=names.tags("private"), opts=own)
        subnets = {"gpu": subnet("gpu", names, own, vpc=vpc.id, cidr=self.addresses.gpu, zone=self.zones[0])}
        for number, (cidr, zone) in enumerate(zip(self.addresses.private, self.zones, strict=True)):
            role = f"private-{number}"
            subnets[role] = subnet(role, names, own, vpc=vpc.id, cidr=cidr, zone=zone, balancers="internal-elb")
        self.associations: dict[str, pulumi.Resource] = {
            role: aws.ec2.RouteTableAssociation(f"{name}-{role}", subnet_id=one.id, route_table_id=table.id, opts=own)
            for role, one in subnets.items()
        }
        self.vpc, self.routes = vpc.id, table.id
        self.gpu, self.private = subnets["gpu"].id, (subnets["private-0"].id, subnets["private-1"].id)
        self.register_outputs({"vpc": self.vpc, "gpu": self.gpu, "private": list(self.private)})


def subnet(
    role: str,
    names: EksNames,
    opts: ResourceOptions,
    *,
    vpc: pulumi.Input[str],
    cidr: IPv4Network,
    zone: str,
    balancers: str | None = None,
) -> aws.ec2.Subnet:
    """Register a subnet that assigns no public addresses.

    Args:
        zone: Availability zone, by name or by id.
        balancers: Load balancers that Kubernetes may place in the subnet: elb, internal-elb, or None for neither.
    """
    return aws.ec2.Subnet(
        role,
        vpc_id=vpc,
        cidr_block=str(cidr),
        availability_zone=None if is_zone_id(zone) else zone,
        availability_zone_id=zone if is_zone_id(zone) else None,
        map_public_ip_on_launch=False,
        tags={**names.tags(role), **({f"kubernetes.io/role/{balancers}": "1"} if balancers else {})},
        opts=opts,
    )
