"""The VPC of a stack: private subnets for the control plane and the CPU nodes, one for the GPUs, public ones for NAT.

All GPU nodes are in one subnet of one zone: EFA traffic is not routed and leaves no zone. How nodes reach what is
outside is `egress`; who may talk to whom `security_groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.addresses import EksAddresses
from infra.catalog.aws import is_zone_id
from infra.eks.names import EksNames


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """zone: the one of every node; second_zone: where the control plane has its other foot."""

    names: EksNames
    addresses: EksAddresses
    zone: str
    second_zone: str


class ClusterNetwork(pulumi.ComponentResource):
    """The VPC and its private subnets, with a route table of their own that leads nowhere yet.

    private: the control plane's two, that of the nodes' zone first. gpu: the GPU nodes'. `associations` tie the subnets
    to the route table, by the subnets' names; a node without its own has no way out.
    """

    vpc: pulumi.Output[str]
    gpu: pulumi.Output[str]
    private: tuple[pulumi.Output[str], pulumi.Output[str]]
    routes: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:ClusterNetwork", name, {}, opts)
        self._args = args
        own = ResourceOptions(parent=self)
        vpc = aws.ec2.Vpc(
            name,
            cidr_block=str(args.addresses.base),
            # The private endpoint of the cluster and FSx are found by names that only these two together resolve.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=args.names.tags(),
            opts=own,
        )
        self.vpc = vpc.id
        table = aws.ec2.RouteTable(
            f"{name}-private", vpc_id=self.vpc, tags=args.names.tags("private"), opts=ResourceOptions(parent=self)
        )
        self.routes = table.id
        gpu = self._subnet("gpu", args.addresses.gpu, args.zone)
        first, second = (
            self._subnet(f"private-{number}", cidr, zone, "internal-elb")
            for number, (cidr, zone) in enumerate(
                zip(args.addresses.private, (args.zone, args.second_zone), strict=True)
            )
        )
        self.gpu = gpu.id
        self.private = (first.id, second.id)
        self.associations: dict[str, pulumi.Resource] = {
            role: aws.ec2.RouteTableAssociation(
                f"{name}-{role}", subnet_id=subnet.id, route_table_id=table.id, opts=ResourceOptions(parent=self)
            )
            for role, subnet in (("gpu", gpu), ("private-0", first), ("private-1", second))
        }
        self.register_outputs({"vpc": self.vpc, "gpu": self.gpu, "private": list(self.private)})

    def _subnet(self, role: str, cidr: IPv4Network, zone: str, balancer: str | None = None) -> aws.ec2.Subnet:
        return subnet(role, self._args.names, self.vpc, cidr, zone, balancer, ResourceOptions(parent=self))


def subnet(
    role: str,
    names: EksNames,
    vpc: pulumi.Input[str],
    cidr: IPv4Network,
    zone: str,
    balancer: str | None,
    opts: ResourceOptions,
) -> aws.ec2.Subnet:
    """A subnet in a zone, which is given by name or by id. balancer: elb or internal-elb, the kind of load balancers
    that Kubernetes may put there. Nothing in it gets a public address by itself."""
    tags = names.tags(role)
    if balancer is not None:
        tags[f"kubernetes.io/role/{balancer}"] = "1"
    return aws.ec2.Subnet(
        role,
        vpc_id=vpc,
        cidr_block=str(cidr),
        availability_zone=None if is_zone_id(zone) else zone,
        availability_zone_id=zone if is_zone_id(zone) else None,
        map_public_ip_on_launch=False,
        tags=tags,
        opts=opts,
    )
