"""Order of creation and, reversed, of deletion, and how long a request may take."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.constraints import referenced
from rehearsal.clouds.registry import kind_of
from rehearsal.engine.kind import value_at
from rehearsal.invariants.invariant import Stack, at
from rehearsal.invariants.placement import DAEMONS, pods_of, selection, workloads
from rehearsal.report.durations import LONGEST, TIMEOUTS

ORDERS = (
    ("RayCluster RayJob RayService", "kuberay-operator", "the operator deletes Ray's pods"),
    ("RayCluster RayJob RayService Job", "gpu-nodes", "deleted nodes would end a running job"),
    ("RayCluster RayJob RayService", "NetworkPolicy", "pods would be open to the whole cluster"),
    ("RayCluster RayJob RayService Job", " ".join(DAEMONS), "nodes have no devices"),
    ("RayCluster RayJob RayService Job", "ValidatingAdmissionPolicyBinding", "nothing would check the pods"),
    ("kuberay-operator", "Namespace", "the chart creates the operator's role there"),
    ("kuberay-operator kueue cluster-autoscaler", "system-nodes", "its pods need nodes"),
    ("kuberay-operator", "coredns", "its pods resolve names"),
    ("kueue", "kuberay-operator", "its webhooks for Ray's kinds need their definitions"),
    ("kueue", "rules-of-webhooks", "the API server calls its webhooks"),
    ("ResourceFlavor ProvisioningRequestConfig Topology", "kueue", "Kueue removes their finalizers"),
    ("NodeGroup", "vpc-cni kube-proxy eks-pod-identity-agent", "nodes do not become ready"),
    ("NodeGroup", "Route VpcEndpoint", "nodes cannot reach AWS"),
    ("NodePool", "IAMMember", "nodes cannot pull images or report"),
    ("gpu-nodes", "rules-of-efa", "an interface that starts before its rules stays closed"),
    ("coredns aws-fsx-csi-driver eks-node-monitoring-agent", "system-nodes", "its pods need nodes"),
    ("aws:eks/cluster:Cluster", "control-plane-logs", "EKS would create one without a retention period"),
    ("NatGateway", "public-routes", "it has no way out"),
    ("PersistentVolume", "rules-of-fsx", "nodes cannot mount the file system"),
    ("PersistentVolume", "DataRepositoryAssociation", "the folder would be empty"),
    ("PersistentVolume", "aws-fsx-csi-driver", "the driver mounts the volume"),
)
"""Dependencies that no input names, each with its reason. The words are those of `placement.selection`."""


def resources_wait_for_what_they_need(stack: Stack) -> Iterator[str]:
    """Resources wait for what they need to work or to be deleted."""
    for later, earlier, reason in ORDERS:
        for node in selection(stack, later):
            for other in selection(stack, earlier):
                if not stack.needs(node, other):
                    yield f"{node.name} does not wait for {other.name}: {reason}"


def users_wait_for_the_rights_of_their_role(stack: Stack) -> Iterator[str]:
    """Resources that run as an IAM role wait for the role's policies: nodes could not join, flow logs could not be
    written, and without them the control plane could not delete its network interfaces. A pod gets its role when it is
    created."""
    for role in stack.of("aws:iam/role:Role"):
        rights = [
            node for node in stack.of("RolePolicyAttachment", "RolePolicy") if at(node, "role") == at(role, "name")
        ]
        for user in stack.of("aws:eks/cluster:Cluster", "NodeGroup", "Addon", "FlowLog", "PodIdentityAssociation"):
            for right in rights if str(role.outputs.get("arn")) in str(user.inputs) else ():
                if not stack.needs(user, right):
                    yield f"{user.name} does not wait for {right.name}"
    accounts = {at(node, "values.rbac.serviceAccount.name"): [node] for node in stack.of("Release")}
    for association in stack.of("PodIdentityAssociation"):
        for user in accounts.get(at(association, "serviceAccount"), ()):
            if not stack.needs(user, association):
                yield f"{user.name} does not wait for {association.name}"


def pods_and_nodes_wait_for_the_rights_of_accounts(stack: Stack) -> Iterator[str]:
    """Ray's pods and their nodes wait for the grants to the pods' ServiceAccounts. The rights then outlive the
    pods, which end with their nodes: a destroyed stack does not delete Ray's objects."""
    for workload in workloads(stack):
        namespace = at(workload, "metadata.namespace")
        accounts = tuple(f"/ns/{namespace}/sa/{pods.spec.get('serviceAccountName')}" for pods in pods_of(workload))
        for right in stack.of("BucketIAMMember", "PodIdentityAssociation"):
            whom = at(right, "member") or f"/ns/{at(right, 'namespace')}/sa/{at(right, 'serviceAccount')}"
            for user in (workload, *selection(stack, "gpu-nodes")) if whom.endswith(accounts) else ():
                if not stack.needs(user, right):
                    yield f"{user.name} does not wait for {right.name}"


def resources_wait_for_what_they_name(stack: Stack) -> Iterator[str]:
    """A resource waits for every resource of the stack that its inputs name, in whichever cloud. That the name exists
    is a constraint of the simulated cloud."""
    for node in stack.graph.managed:
        kind = kind_of(node.type)
        for reference, wanted in referenced(kind, dict(node.inputs), stack.graph.configuration(node)) if kind else ():
            for other in stack.of(*reference.types):
                own = value_at(other.outputs, reference.by) if reference.by else other.id
                if own == wanted and not stack.needs(node, other):
                    yield f"{node.name} does not wait for {other.name} ({reference.path})"


def requests_may_take_as_long_as_published(stack: Stack) -> Iterator[str]:
    """No request times out, by the program or by the provider's default, before the longest time that somebody
    published for it."""
    for node in stack.graph.managed:
        limits = {**TIMEOUTS.get(node.type, {}), **node.timeouts}
        for verb, longest in LONGEST.get(node.type, {}).items():
            if (limit := limits.get(verb, 0)) <= longest.seconds:
                yield f"{node.name}: {verb} within {limit} s, but it took {longest.seconds} s ({longest.source})"
