"""Resources of an AWS stack, selected from its graph."""

from __future__ import annotations

from infra.catalog.capacity import EKS_CAPACITIES, EksCapacity
from infra.catalog.machines import EKS_CATALOG, EksMachine
from rehearsal.graph import Node
from rehearsal.invariants.invariant import Stack, at

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
NAT = "aws:ec2/natGateway:NatGateway"
ROUTE = "aws:ec2/route:Route"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
REPOSITORY = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
ADDON = "aws:eks/addon:Addon"
ENTRY = "aws:eks/accessEntry:AccessEntry"
ENTRY_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
ROLE = "aws:iam/role:Role"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
GROUP_TAG = "aws:autoscaling/tag:Tag"
SCHEDULE = "aws:autoscaling/schedule:Schedule"


def zone_of(subnet: Node) -> str:
    """Return the zone of a subnet, by name or id."""
    return str(at(subnet, "availabilityZone") or at(subnet, "availabilityZoneId"))


def behind(stack: Stack, node: Node, path: str) -> list[Node]:
    """Return the subnets whose ids are in a list."""
    wanted = at(node, path) or []
    return [subnet for subnet in stack.of(SUBNET) if subnet.id in wanted]


def efa_group(stack: Stack) -> Node | None:
    """Return the security group of EFA."""
    return next((node for node in stack.of(SECURITY_GROUP) if str(at(node, "name")).endswith("-efa")), None)


def machine_of(stack: Stack) -> EksMachine:
    """Return the machine of the stack's GPU nodes."""
    return EKS_CATALOG[stack.eks.nodes.machine]


def capacity_of(stack: Stack) -> EksCapacity:
    """Return the capacity of the stack's GPU nodes."""
    return EKS_CAPACITIES[str(stack.eks.nodes.capacity)]


def gpu_groups(stack: Stack) -> list[Node]:
    """Return the node groups with GPUs."""
    return [node for node in stack.of(NODE_GROUP) if "NVIDIA" in str(at(node, "amiType"))]


def system_groups(stack: Stack) -> list[Node]:
    """Return the node groups without GPUs."""
    return [node for node in stack.of(NODE_GROUP) if "NVIDIA" not in str(at(node, "amiType"))]


def gpu_templates(stack: Stack) -> list[Node]:
    """Return the launch templates of the node groups with GPUs."""
    wanted = {at(group, "launchTemplate.id") for group in gpu_groups(stack)}
    return [node for node in stack.of(LAUNCH_TEMPLATE) if node.id in wanted]
