"""Why a resource waits for another one whose values it does not use: every `depends_on` of the program has a row.

An ordering edge costs time on the way up and fixes an order on the way down. One without a row is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from rehearsal.graph import Node


@dataclass(frozen=True)
class Reason:
    """`waits` and `until` are patterns of what waits and of what it waits for: TYPE, or TYPE#NAME, with wildcards."""

    waits: str
    until: str
    why: str

    def covers(self, waits: Node, until: Node) -> bool:
        """Whether this is why one resource waits for another."""
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
        "the release brings the CRD, and the operator that takes the pods down again",
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
        "Ray must not open a port before the policy says who may come in",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:networking.gke.io/v1:*",
        "on the way down the pods must let go of their interfaces before the networks can go",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "gcp:container/nodePool:NodePool",
        "on the way down Ray must end before its nodes: a pool that goes waits up to an hour for the pods on it",
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
        "its pods run what is in it, and do not start without it",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:Service",
        "its pods look for their head by the name that it gives; a name that is not there yet is remembered as missing",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "Ray must not open a port before the policy says who may come in",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:networking.gke.io/v1:*",
        "on the way down the pods must let go of their interfaces before the networks can go",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:resource.k8s.io/v1:*",
        "its pods claim their NICs by it, and wait for ever for a claim that cannot be made",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "*:NodePool",
        "on the way down the Job must end before its nodes: a pool that goes waits up to an hour for the pods on it",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:cloud.google.com/v1:ComputeClass",
        "its workers select the class, and pods that name a class that is not there are refused",
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
        "EC2 makes a NAT gateway only where there is a way to the internet, and takes that way away only after it",
    ),
    Reason(
        "aws:eks/cluster:Cluster",
        "aws:cloudwatch/logGroup:LogGroup",
        "EKS would make the log group itself, and keep the logs for ever",
    ),
    Reason(
        "aws:eks/cluster:Cluster",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "without its rights the control plane can neither make its interfaces nor take them away",
    ),
    Reason(
        "aws:eks/addon:Addon",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "the CNI finds no address without its rights",
    ),
    Reason(
        "aws:eks/addon:Addon",
        "aws:eks/nodeGroup:NodeGroup",
        "its pods need a node; without one it stays DEGRADED until the provider gives up",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:eks/addon:Addon",
        "nodes become ready only with them, and a pod's network goes only after its node",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "nodes join with these rights, and leave with them",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:ec2/route*",
        "nodes join by this way out of their subnet",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "nodes pull their images through it",
    ),
    Reason(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:vpc/securityGroup*",
        "an EFA interface that starts before its rules is as good as closed",
    ),
    Reason(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:vpc/securityGroup*",
        "FSx tries the rules out while it makes the file system, and fails without them",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*autoscaler*",
        "aws:iam/rolePolicy:RolePolicy",
        "its pod may do nothing without these rights",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*autoscaler*",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "credentials come with a pod's birth",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*",
        "aws:eks/nodeGroup:NodeGroup#*system*",
        "its pods need a node, and the release waits until they are ready",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "aws:eks/addon:Addon",
        "names of Services are found by coredns, which is one of these",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "aws:eks/nodeGroup:NodeGroup",
        "on the way down Ray must end before its nodes, which otherwise wait for the pods on them",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:helm.sh/v3:Release#*device-plugin*",
        "its workers ask for devices that nobody else hands out",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:helm.sh/v3:Release#*dranet*",
        "its workers claim devices that nobody else hands out",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "aws:eks/nodeGroup:NodeGroup",
        "on the way down the Job must end before its nodes, which otherwise wait for the pods on them",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:helm.sh/v3:Release#*device-plugin*",
        "its pods ask for devices that nobody else hands out",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:helm.sh/v3:Release#*dranet*",
        "its pods claim devices that nobody else hands out",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "aws:eks/addon:Addon",
        "its pods find each other by names, for which coredns is needed",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "its pods mount the shared folder by the claim, and must let it go before it can go",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "its pods mount the shared folder by the claim, and must let it go before it can go",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "*:[Nn]ode[PG]*#*system*",
        "its pod needs a node, and the release waits until it answers",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "aws:eks/addon:Addon",
        "names of Services are found by coredns, which is one of these; the API server reaches its webhooks by one",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "kubernetes:helm.sh/v3:Release#*kuberay*",
        "its webhook for Ray's kinds answers when it has found their definitions; until then they are refused",
    ),
    Reason(
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "gcp:compute/firewall:Firewall#*webhooks*",
        "the control plane cannot call its webhooks before, and refuses workloads while it cannot",
    ),
    Reason(
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "kubernetes:helm.sh/v3:Release#*kueue*",
        "the release brings the definitions, and on the way down the controller that takes the finalizers away",
    ),
    Reason(
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "kubernetes:kueue.x-k8s.io/v1beta2:*",
        "a queue is active when all that it names is there; on the way down Kueue keeps what another one names",
    ),
    Reason(
        "kubernetes:ray.io/v1:Ray*",
        "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
        "it is admitted through this queue, and on the way down gives its quota back before the queue can go",
    ),
    Reason(
        "kubernetes:batch/v1:Job",
        "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
        "it is admitted through this queue, and on the way down gives its quota back before the queue can go",
    ),
    Reason(
        "kubernetes:core/v1:PersistentVolume",
        "aws:*",
        "pods would mount an empty folder, or fail for want of a driver",
    ),
)


def reason(waits: Node, until: Node) -> str | None:
    """Why one resource waits for another, or None."""
    return next((row.why for row in REASONS if row.covers(waits, until)), None)


def _matches(pattern: str, node: Node) -> bool:
    type_, _, name = pattern.partition("#")
    return fnmatchcase(node.type, type_) and fnmatchcase(node.name, name or "*")
