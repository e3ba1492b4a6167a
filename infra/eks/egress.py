"""Egress of the VPC: a NAT gateway to the Internet, or VPC endpoints of AWS services only.

With endpoints, no route leads to or from the Internet. Traffic to S3 uses its own endpoint in both cases.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.catalog.aws import ANYWHERE, ENDPOINT_SERVICES
from infra.eks.names import EksNames
from infra.eks.network import ClusterNetwork, subnet
from infra.eks.security_groups import https_rule, security_group
from infra.settings.eks import EksAccess


def egress(
    access: EksAccess, names: EksNames, opts: ResourceOptions, *, network: ClusterNetwork
) -> list[pulumi.Resource]:
    """Register the egress that the settings select; return the resources that nodes depend on."""
    storage = StorageEndpoint("s3", names, opts, network=network)
    if access.egress == "endpoints":
        return [storage.endpoint, *Endpoints("endpoints", names, opts, network=network).endpoints]
    return [storage.endpoint, Nat("nat", names, opts, network=network).route]


class StorageEndpoint(pulumi.ComponentResource):
    """Gateway endpoint of S3 in the private route table. It is free, and ECR keeps the layers of images in S3."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterNetwork) -> None:
        super().__init__("rdma-ray:eks:StorageEndpoint", name, {}, opts)
        self.endpoint = aws.ec2.VpcEndpoint(
            name,
            vpc_id=network.vpc,
            service_name=names.service("s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=[network.routes],
            tags=names.tags("s3"),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


class Nat(pulumi.ComponentResource):
    """One NAT gateway, in the zone of the nodes: if that zone fails, there are no nodes either."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterNetwork) -> None:
        super().__init__("rdma-ray:eks:Nat", name, {}, opts)
        own = ResourceOptions(parent=self)
        gateway = aws.ec2.InternetGateway(name, vpc_id=network.vpc, tags=names.tags(), opts=own)
        table = aws.ec2.RouteTable(f"{name}-public", vpc_id=network.vpc, tags=names.tags("public"), opts=own)
        internet = aws.ec2.Route(
            f"{name}-public", route_table_id=table.id, destination_cidr_block=ANYWHERE, gateway_id=gateway.id, opts=own
        )
        # A load balancer with a public address needs subnets in two zones; NAT uses the first.
        public = [
            subnet(f"public-{number}", names, own, vpc=network.vpc, cidr=cidr, zone=zone, balancers="elb")
            for number, (cidr, zone) in enumerate(zip(network.addresses.public, network.zones, strict=True))
        ]
        for number, one in enumerate(public):
            aws.ec2.RouteTableAssociation(
                f"{name}-public-{number}", subnet_id=one.id, route_table_id=table.id, opts=own
            )
        address = aws.ec2.Eip(name, domain="vpc", tags=names.tags("nat"), opts=own)
        nat = aws.ec2.NatGateway(
            name,
            subnet_id=public[0].id,
            allocation_id=address.id,
            tags=names.tags("nat"),
            # EC2 requires a route to the Internet to create a NAT gateway, and keeps that route while it exists.
            opts=ResourceOptions(parent=self, depends_on=[internet]),
        )
        self.route = aws.ec2.Route(
            name, route_table_id=network.routes, destination_cidr_block=ANYWHERE, nat_gateway_id=nat.id, opts=own
        )
        self.register_outputs({})


class Endpoints(pulumi.ComponentResource):
    """Interface endpoints of the AWS services that nodes call, with private DNS names in the private subnets."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterNetwork) -> None:
        super().__init__("rdma-ray:eks:Endpoints", name, {}, opts)
        own = ResourceOptions(parent=self)
        description = "Endpoints of AWS services, for the nodes of the VPC"
        group = security_group(name, "endpoints", description, names, own, vpc=network.vpc)
        vpc = str(network.addresses.base)
        https_rule(name, names.tags("endpoints-in"), "HTTPS from the VPC", own, group=group.id, cidr=vpc)
        self.endpoints: list[pulumi.Resource] = [
            aws.ec2.VpcEndpoint(
                f"{name}-{service}",
                vpc_id=network.vpc,
                service_name=names.service(service),
                vpc_endpoint_type="Interface",
                subnet_ids=network.private,
                security_group_ids=[group.id],
                private_dns_enabled=True,
                tags=names.tags(service),
                opts=own,
            )
            for service in ENDPOINT_SERVICES
        ]
        self.register_outputs({})
