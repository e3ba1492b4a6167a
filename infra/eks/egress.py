"""How nodes reach what is outside the VPC: through a NAT gateway, or through endpoints of AWS' own services alone.

With endpoints there is no way to the Internet at all, in neither direction. Data in S3 never goes through NAT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.addresses import EksAddresses
from infra.catalog.aws import ENDPOINT_SERVICES
from infra.eks.names import EksNames
from infra.eks.network import subnet

INTERNET = "0.0.0.0/0"


@dataclass(frozen=True, kw_only=True)
class EgressArgs:
    """zones: of the public subnets, the nodes' first. private: the subnets that endpoints have addresses in. routes:
    the private route table."""

    names: EksNames
    addresses: EksAddresses
    zones: tuple[str, str]
    vpc: pulumi.Input[str]
    private: Sequence[pulumi.Input[str]]
    routes: pulumi.Input[str]


class StorageEndpoint(pulumi.ComponentResource):
    """S3 by the private route table: free of charge, and the layers of every image in ECR lie there."""

    def __init__(self, name: str, args: EgressArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:StorageEndpoint", name, {}, opts)
        self.endpoint = aws.ec2.VpcEndpoint(
            name,
            vpc_id=args.vpc,
            service_name=f"com.amazonaws.{args.names.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[args.routes],
            tags=args.names.tags("s3"),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


class Nat(pulumi.ComponentResource):
    """One NAT gateway, in the nodes' zone: without that zone there are no nodes either. `way` is the route to it."""

    def __init__(self, name: str, args: EgressArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:Nat", name, {}, opts)
        names = args.names
        own = ResourceOptions(parent=self)
        gateway = aws.ec2.InternetGateway(name, vpc_id=args.vpc, tags=names.tags(), opts=own)
        table = aws.ec2.RouteTable(f"{name}-public", vpc_id=args.vpc, tags=names.tags("public"), opts=own)
        internet = aws.ec2.Route(
            f"{name}-public",
            route_table_id=table.id,
            destination_cidr_block=INTERNET,
            gateway_id=gateway.id,
            opts=ResourceOptions(parent=self),
        )
        # Two, because a load balancer towards the Internet wants two zones; NAT needs the first alone.
        public = [
            subnet(f"public-{number}", names, args.vpc, cidr, zone, "elb", ResourceOptions(parent=self))
            for number, (cidr, zone) in enumerate(zip(args.addresses.public, args.zones, strict=True))
        ]
        for number, one in enumerate(public):
            aws.ec2.RouteTableAssociation(
                f"{name}-public-{number}",
                subnet_id=one.id,
                route_table_id=table.id,
                opts=ResourceOptions(parent=self),
            )
        address = aws.ec2.Eip(name, domain="vpc", tags=names.tags("nat"), opts=ResourceOptions(parent=self))
        nat = aws.ec2.NatGateway(
            name,
            subnet_id=public[0].id,
            allocation_id=address.id,
            tags=names.tags("nat"),
            # EC2 makes no NAT gateway in a VPC without a way to the Internet, and takes none away from under one.
            opts=ResourceOptions(parent=self, depends_on=[internet]),
        )
        self.way = aws.ec2.Route(
            name,
            route_table_id=args.routes,
            destination_cidr_block=INTERNET,
            nat_gateway_id=nat.id,
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


class Endpoints(pulumi.ComponentResource):
    """An endpoint with addresses in the private subnets for each service; AWS' own names lead to them."""

    def __init__(self, name: str, args: EgressArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:Endpoints", name, {}, opts)
        own = ResourceOptions(parent=self)
        group = aws.ec2.SecurityGroup(
            name,
            name=args.names.security_group("endpoints"),
            description="Endpoints of AWS services, for the nodes of the VPC",
            vpc_id=args.vpc,
            tags=args.names.tags("endpoints"),
            opts=ResourceOptions(parent=self),
        )
        aws.vpc.SecurityGroupIngressRule(
            name,
            security_group_id=group.id,
            description="HTTPS from the VPC",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=str(args.addresses.base),
            tags=args.names.tags("endpoints-in"),
            opts=own,
        )
        self.endpoints: list[pulumi.Resource] = [
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=args.vpc,
                service_name=f"com.amazonaws.{args.names.region}.{service}",
                vpc_endpoint_type="Interface",
                subnet_ids=args.private,
                security_group_ids=[group.id],
                private_dns_enabled=True,
                tags=args.names.tags(service),
                opts=ResourceOptions(parent=self),
            )
            for service in ENDPOINT_SERVICES
        ]
        self.register_outputs({})
