"""Reasons for ordering edges: every `depends_on` of the program without a data dependency has a row.

An ordering edge costs time in `up` and fixes an order in `destroy`. The report lists edges without a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from rehearsal.graph import Node


@dataclass(frozen=True)
class Reason:
    """Reason for an ordering edge. `waits` and `until` are patterns TYPE or TYPE#NAME, with wildcards."""

    waits: str
    until: str
    why: str

    def covers(self, waits: Node, until: Node) -> bool:
        """Return whether this row is the reason why one resource waits for another."""
        return _matches(self.waits, waits) and _matches(self.until, until)


REASONS: tuple[Reason, ...] = (
    Reason(
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "gcp:container/nodePool:NodePool#*system*",
        "the operator's pods need a node, and the release waits until they are ready",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "the release installs the CRD, and the operator that deletes the pods",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:core/v1:ServiceAccount",
        "its pods run as these accounts, and are refused without them",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:core/v1:Secret",
        "its pods read the token from it, and do not start without it",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "Ray must not open a port before the network policy exists",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:networking.gke.io/v1:*",
        "on destroy, the pods must release their interfaces before the networks are deleted",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "gcp:container/nodePool:NodePool",
        "on destroy, Ray must end before its nodes: deletion of a pool waits up to an hour for its pods",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:ServiceAccount",
        "its pods run as this account, and are refused without it",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:Secret",
        "its pods read the token from it, and do not start without it",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:ConfigMap",
        "its pods run the scripts in it, and do not start without it",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:Service",
        "its pods resolve the head by this Service's name; a lookup before it exists is cached as missing",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "Ray must not open a port before the network policy exists",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:networking.gke.io/v1:*",
        "on destroy, the pods must release their interfaces before the networks are deleted",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:resource.k8s.io/v1:*",
        "its pods claim their NICs by it, and stay Pending without it",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "*:NodePool",
        "on destroy, the Job must end before its nodes: deletion of a pool waits up to an hour for its pods",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:cloud.google.com/v1:ComputeClass",
        "its workers select the class, and pods with a missing class are refused",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:resource.k8s.io/v1:*",
        "its workers claim devices by these objects, and do not start without them",
    ),
    Reason(
        "gcp:container/nodePool:NodePool",
        "gcp:projects/iAMMember:IAMMember",
        "a node whose service account has no roles yet can write neither logs nor metrics",
    ),
    Reason(
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/route:Route",
        "EC2 creates a NAT gateway only with an internet gateway attached, and detaches that only after it",
    ),
    Reason(
        "aws:eks/cluster:Cluster",
        "aws:cloudwatch/logGroup:LogGroup",
        "EKS would create the log group itself, with logs that never expire",
    ),
    Reason(
        "aws:eks/cluster:Cluster",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "without this policy the control plane can neither create nor delete its interfaces",
    ),
    Reason(
        "aws:eks/addon:Addon",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "the CNI gets no addresses without this policy",
    ),
    Reason(
        "aws:eks/addon:Addon",
        "aws:eks/nodeGroup:NodeGroup",
        "its pods need a node; without one it stays DEGRADED until the provider gives up",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:eks/addon:Addon",
        "nodes become ready only with these add-ons, and pods need their network until the nodes are deleted",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "nodes need these permissions to join and to leave",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:ec2/route*",
        "nodes join through this route out of their subnet",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "nodes pull their images through it",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:vpc/securityGroup*",
        "an EFA interface that starts before its security group rules stays closed",
    ),
    Reason(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:vpc/securityGroup*",
        "FSx checks the rules while it creates the file system, and fails without them",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*autoscaler*",
        "aws:iam/rolePolicy:RolePolicy",
        "its pod has no permissions without these",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*autoscaler*",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "a pod gets its credentials when it is created",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*",
        "aws:eks/nodeGroup:NodeGroup#*system*",
        "its pods need a node, and the release waits until they are ready",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "aws:eks/addon:Addon",
        "Service names resolve through coredns, which is one of these",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "aws:eks/nodeGroup:NodeGroup",
        "on destroy, Ray must end before its nodes, which otherwise wait for their pods",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:helm.sh/v3:Release#*device-plugin*",
        "its workers request devices that only this plugin provides",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:helm.sh/v3:Release#*dranet*",
        "its workers claim devices that only this driver provides",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "aws:eks/nodeGroup:NodeGroup",
        "on destroy, the Job must end before its nodes, which otherwise wait for their pods",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:helm.sh/v3:Release#*device-plugin*",
        "its pods request devices that only this plugin provides",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:helm.sh/v3:Release#*dranet*",
        "its pods claim devices that only this driver provides",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "aws:eks/addon:Addon",
        "its pods find each other by DNS names, which coredns resolves",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "its pods mount the shared folder by the claim, and must release it before it is deleted",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "its pods mount the shared folder by the claim, and must release it before it is deleted",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "*:[Nn]ode[PG]*#*system*",
        "its pod needs a node, and the release waits until it answers",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "aws:eks/addon:Addon",
        "Service names resolve through coredns, which is one of these; the API server reaches its webhooks by one",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "its webhook for Ray's kinds answers after it has found their CRDs; until then they are refused",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "gcp:compute/firewall:Firewall#*webhooks*",
        "the control plane cannot call its webhooks before, and refuses workloads until then",
    ),
    Reason(
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "the release installs the CRDs and, for destroy, the controller that removes the finalizers",
    ),
    Reason(
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "a queue is active when all that it references exists; on destroy, Kueue keeps referenced objects",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
        "it is admitted through this queue, and on destroy releases its quota before the queue is deleted",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
        "it is admitted through this queue, and on destroy releases its quota before the queue is deleted",
    ),
    Reason(
        "kubernetes:core/v1:PersistentVolume",
        "aws:*",
        "pods would mount an empty folder, or fail without the driver",
    ),
)


def reason(waits: Node, until: Node) -> str | None:
    """Return why one resource waits for another, or None."""
    return next((row.why for row in REASONS if row.covers(waits, until)), None)


def _matches(pattern: str, node: Node) -> bool:
    type_, _, name = pattern.partition("#")
    return fnmatchcase(node.type, type_) and fnmatchcase(node.name, name or "*")
