"""VPC of the stack: private subnets for the control plane, the CPU nodes and the GPU nodes, and its egress.

All GPU nodes are in one subnet of one zone, because EFA traffic is not routed and does not leave its zone. Egress is
either a NAT gateway to the Internet, or VPC endpoints of AWS services only; then no route leads to or from the
Internet. Traffic to S3 uses its own endpoint in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.catalog.aws import ANYWHERE, ENDPOINT_SERVICES, LOG_DAYS, is_zone_id
from infra.eks.iam import Role
from infra.eks.names import EksNames
from infra.eks.security_groups import https_rule, security_group
from infra.settings import EksSettings
from infra.settings.eks_sections import EksAccess

FLOW_LOGS = "flow-logs"
"""Suffix of the names of the flow logs' role and log group."""


@dataclass(frozen=True, kw_only=True)
class VpcPlace:
    """Where a cluster is: ids of the VPC, the GPU nodes' subnet, and the control plane's, the nodes' zone first.

    In a cluster of the user's, `private` has only the subnet of the nodes.

    `before_gpu` and `before_system` are what the nodes in `gpu` and in the first of `private` depend on.
    """

    vpc: pulumi.Input[str]
    gpu: pulumi.Input[str]
    private: Sequence[pulumi.Input[str]]
    before_gpu: Sequence[pulumi.Resource] = ()
    before_system: Sequence[pulumi.Resource] = ()


class ClusterVpc(pulumi.ComponentResource):
    """The VPC, its private subnets, and their route table, which has no route to the outside.

    `place` is where a cluster is in it: a node depends on the association of its subnet with the route table, without
    which it has no route to the outside.
    """

    place: VpcPlace
    vpc: pulumi.Output[str]
    private: tuple[pulumi.Output[str], pulumi.Output[str]]
    routes: pulumi.Output[str]

    def __init__(self, name: str, settings: EksSettings, names: EksNames, opts: ResourceOptions) -> None:
        # The type is that of existing stacks.
        super().__init__("rdma-ray:eks:ClusterNetwork", name, {}, opts)
        opts = ResourceOptions(parent=self)
        self.addresses = settings.addresses
        self.zones = (settings.location, settings.network.second_zone)
        vpc = aws.ec2.Vpc(
            name,
            cidr_block=str(self.addresses.base),
            # Both are required to resolve the names of the cluster's private endpoint and of FSx.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=names.tags(),
            opts=opts,
        )
        table = aws.ec2.RouteTable(f"{name}-private", vpc_id=vpc.id, tags=names.tags("private"), opts=opts)
        subnets = {"gpu": subnet("gpu", names, opts, vpc=vpc.id, cidr=self.addresses.gpu, zone=self.zones[0])}
        for number, (cidr, zone) in enumerate(zip(self.addresses.private, self.zones, strict=True)):
            role = f"private-{number}"
            subnets[role] = subnet(role, names, opts, vpc=vpc.id, cidr=cidr, zone=zone, balancers="internal-elb")
        associations = {
            role: aws.ec2.RouteTableAssociation(f"{name}-{role}", subnet_id=one.id, route_table_id=table.id, opts=opts)
            for role, one in subnets.items()
        }
        self.vpc, self.routes = vpc.id, table.id
        gpu, self.private = subnets["gpu"].id, (subnets["private-0"].id, subnets["private-1"].id)
        self.place = VpcPlace(
            vpc=self.vpc,
            gpu=gpu,
            private=self.private,
            before_gpu=[associations["gpu"]],
            before_system=[associations["private-0"]],
        )
        self.register_outputs({"vpc": self.vpc, "gpu": gpu, "private": list(self.private)})


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


def egress(access: EksAccess, names: EksNames, opts: ResourceOptions, *, network: ClusterVpc) -> list[pulumi.Resource]:
    """Register the egress that the settings select; return the resources that nodes depend on."""
    storage = StorageEndpoint("s3", names, opts, network=network)
    if access.egress == "endpoints":
        return [storage.endpoint, *Endpoints("endpoints", names, opts, network=network).endpoints]
    return [storage.endpoint, Nat("nat", names, opts, network=network).route]


class StorageEndpoint(pulumi.ComponentResource):
    """Gateway endpoint of S3 in the private route table. It is free, and ECR keeps the layers of images in S3."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterVpc) -> None:
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

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterVpc) -> None:
        super().__init__("rdma-ray:eks:Nat", name, {}, opts)
        opts = ResourceOptions(parent=self)
        gateway = aws.ec2.InternetGateway(name, vpc_id=network.vpc, tags=names.tags(), opts=opts)
        table = aws.ec2.RouteTable(f"{name}-public", vpc_id=network.vpc, tags=names.tags("public"), opts=opts)
        internet = aws.ec2.Route(
            f"{name}-public", route_table_id=table.id, destination_cidr_block=ANYWHERE, gateway_id=gateway.id, opts=opts
        )
        # A load balancer with a public address needs subnets in two zones; NAT uses the first.
        public = [
            subnet(f"public-{number}", names, opts, vpc=network.vpc, cidr=cidr, zone=zone, balancers="elb")
            for number, (cidr, zone) in enumerate(zip(network.addresses.public, network.zones, strict=True))
        ]
        for number, one in enumerate(public):
            aws.ec2.RouteTableAssociation(
                f"{name}-public-{number}", subnet_id=one.id, route_table_id=table.id, opts=opts
            )
        address = aws.ec2.Eip(name, domain="vpc", tags=names.tags("nat"), opts=opts)
        nat = aws.ec2.NatGateway(
            name,
            subnet_id=public[0].id,
            allocation_id=address.id,
            tags=names.tags("nat"),
            # EC2 requires a route to the Internet to create a NAT gateway, and keeps that route while it exists.
            opts=ResourceOptions(parent=self, depends_on=[internet]),
        )
        self.route = aws.ec2.Route(
            name, route_table_id=network.routes, destination_cidr_block=ANYWHERE, nat_gateway_id=nat.id, opts=opts
        )
        self.register_outputs({})


class AuditedNetwork(pulumi.ComponentResource):
    """Additions of `hardening` to the VPC: flow logs in CloudWatch, and its default security group without rules."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, vpc: pulumi.Input[str]) -> None:
        super().__init__("rdma-ray:eks:AuditedNetwork", name, {}, opts)
        opts, logs = ResourceOptions(parent=self), names.named(FLOW_LOGS)
        # The provider adopts the group that EC2 made, and does not restore its rules.
        aws.ec2.DefaultSecurityGroup(name, vpc_id=vpc, ingress=[], egress=[], tags=names.tags("default"), opts=opts)
        group = aws.cloudwatch.LogGroup(
            name, name=logs, retention_in_days=LOG_DAYS, tags=names.tags(FLOW_LOGS), opts=opts
        )
        role = Role(FLOW_LOGS, names, opts, service="vpc-flow-logs.amazonaws.com", statements=flow_log_rights(names))
        aws.ec2.FlowLog(
            name,
            vpc_id=vpc,
            traffic_type="ALL",
            max_aggregation_interval=600,
            log_destination=group.arn,
            iam_role_arn=role.arn,
            tags=names.tags(FLOW_LOGS),
            opts=ResourceOptions(parent=self, depends_on=role.grants),
        )
        self.register_outputs({})


def flow_log_rights(names: EksNames) -> list[dict[str, Any]]:
    """Return the IAM statements that let flow logs write to their log group, which exists.

    Source: terraform-aws-modules/terraform-aws-vpc: vpc-flow-logs.tf, read 2026-11.
    """
    verbs = ("CreateLogStream", "DescribeLogGroups", "DescribeLogStreams", "PutLogEvents")
    group = f"arn:aws:logs:{names.region}:*:log-group:{names.named(FLOW_LOGS)}:*"
    return [{"Effect": "Allow", "Action": [f"logs:{verb}" for verb in verbs], "Resource": group}]


class Endpoints(pulumi.ComponentResource):
    """Interface endpoints of the AWS services that nodes call, with private DNS names in the private subnets."""

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, network: ClusterVpc) -> None:
        super().__init__("rdma-ray:eks:Endpoints", name, {}, opts)
        opts = ResourceOptions(parent=self)
        description = "Endpoints of AWS services, for the nodes of the VPC"
        group = security_group(name, "endpoints", description, names, opts, vpc=network.vpc)
        vpc = str(network.addresses.base)
        https_rule(name, names.tags("endpoints-in"), "HTTPS from the VPC", opts, group=group.id, cidr=vpc)
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
                opts=opts,
            )
            for service in ENDPOINT_SERVICES
        ]
        self.register_outputs({})
