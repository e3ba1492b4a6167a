"""Invariants: each one holds on the graphs of rehearsals, and a small change of a resource or its edges breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from infra.catalog.names import STACK_LABEL
from infra.kubernetes.api_access import API_ACCESS
from infra.settings import from_stack_file
from rehearsal.engine.values import Path
from rehearsal.engine.workspace import ROOT
from rehearsal.graph import Graph, GraphNode
from rehearsal.invariants import existing, fabric, order, protection, queues, reach, scheduling
from rehearsal.invariants.invariant import Invariant, Stack
from rehearsal.invariants.placement import selection
from rehearsal.invariants.violations import INVARIANTS, violations
from rehearsal.mutations import changed
from rehearsal.report.outcome import Outcome

# A RayJob in a queue on queued nodes; a RayCluster with a ComputeClass and a bucket; AWS with a file system; a cluster
# that the user has.
DWS, CCC, EKS, USERS = "gke-dws", "gke-ccc", "eks-capacity-block", "kubernetes"
ADDITIONAL = "networkConfig additionalNodeNetworkConfigs"
CNI = "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
CONFIGURATION = "values managerConfig controllerManagerConfigYaml"
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
GROUP = "spec resourceGroups 0"
HEAD = "spec rayClusterSpec headGroupSpec template"
INSTANCES = "values supportedInstanceLabels values"
NETWORK = "kubernetes:networking.gke.io/v1:Network"
RAY_HEAD = "spec headGroupSpec template spec"
RESOURCES = "spec workerGroupSpecs 0 template spec containers 0 resources"
RETRIES = "spec retryStrategy backoffLimitCount"
VPC = "gcp:compute/network:Network"
WORKER = "spec workerGroupSpecs 0 template spec containers 0"
WORKERS = "spec rayClusterSpec workerGroupSpecs 0 template"


@dataclass(frozen=True)
class Change:
    """Change of one resource.

    Args:
        stack: name of the stack.
        kind: kind of the changed resource.
        path: path of the input, with spaces between its parts; empty to take the resource out.
        new: the other value.
        name: name of the resource; by default the last of its kind.
    """

    stack: str
    kind: str
    path: str = ""
    new: Any = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}-{self.path.rpartition(' ')[2]}"

    def applied(self, stack: Stack) -> Stack:
        """Return the changed stack."""
        node = [node for node in stack.of(self.kind) if self.name in ("", node.name)][-1]
        if self.path:
            path: Path = tuple(int(part) if part.isdigit() else part for part in self.path.split(" "))
            return replace(stack, graph=stack.graph.with_inputs(node.urn, changed(node.inputs, path, self.new)))
        left = [each for each in stack.graph.nodes.values() if each is not node]
        return replace(
            stack, graph=Graph({each.urn: replace(each, depends=each.depends - {node.urn}) for each in left})
        )


BREAKS: Mapping[Invariant, tuple[Change, ...]] = {
    existing.objects_are_marked_and_in_the_namespace: (
        Change(USERS, "NetworkPolicy", "metadata namespace", "default"),
        Change(USERS, "Secret", f"metadata labels {STACK_LABEL}", "other"),
    ),
    existing.workers_take_what_was_asked_for: (
        Change(USERS, "RayCluster", f"{RESOURCES} requests cpu", "3"),
        Change(USERS, "RayCluster", "spec workerGroupSpecs 0 maxReplicas", 3),
        Change(
            USERS, "RayCluster", "spec headGroupSpec template spec containers 0 resources limits", {"nvidia.com/gpu": 1}
        ),
    ),
    protection.everything_is_protected_together: (Change(DWS, "Cluster", "deletionProtection", False),),
    protection.passwords_are_only_in_secrets: (Change(DWS, "Secret", "stringData", {"auth_token": "x"}),),
    protection.pods_of_ray_are_not_evicted: (
        Change(DWS, "PodDisruptionBudget", "spec selector matchLabels ray.io/node-type", "worker"),
        Change(DWS, "RayJob", f"{WORKERS} metadata annotations", {}),
    ),
    protection.pods_only_read_folders_of_their_node: (
        Change(DWS, "RayJob", f"{WORKERS} spec containers 0 volumeMounts 0 readOnly", False),
    ),
    protection.recovery_finds_every_resource: (
        Change(EKS, "aws:ec2/subnet:Subnet", "tags Name", "eks-capacity-block-gpu"),
        Change(EKS, "NodeGroup", "tags", {}),
    ),
    protection.identities_are_used_by_whom_they_trust: (
        Change(DWS, "NodePool", "nodeConfig serviceAccount", "default"),
        Change(DWS, "IAMMember", "member", "serviceAccount:other"),
        Change(EKS, "NodeGroup", "nodeRoleArn", "arn:aws:iam::1:role/other"),
    ),
    protection.rights_of_pods_are_theirs_alone: (Change(EKS, "RolePolicyAttachment", "policyArn", CNI),),
    protection.cloud_rights_belong_to_existing_accounts: (
        Change(EKS, "PodIdentityAssociation", "serviceAccount", "default"),
        Change(CCC, "BucketIAMMember"),
    ),
    protection.pods_run_as_accounts_of_their_own: (
        Change(DWS, "ServiceAccount", "automountServiceAccountToken", True),
        Change(DWS, "RayJob", f"{HEAD} spec automountServiceAccountToken", True),
        Change(CCC, "RayCluster", f"{RAY_HEAD} containers 0 volumeMounts 0 name", API_ACCESS),
        Change(CCC, "RayCluster", "spec autoscalerOptions volumeMounts", []),
        Change(DWS, "RayJob", f"{WORKERS} spec serviceAccountName", "ray-head"),
        Change(DWS, "RayJob", f"{WORKERS} spec initContainers 0 args 1", "--object=/api/v1/nodes"),
        Change(DWS, "ClusterRole", "rules 0 resources", ["nodes", "secrets"]),
        Change(DWS, "ClusterRole", "rules 0 verbs", ["*"]),
        Change(DWS, "Role", "rules 0 resources", ["rayjobs", "secrets"]),
    ),
    protection.entry_points_start_once: (
        Change(DWS, "RayJob", "spec entrypoint", "python /app/train.py"),
        Change(DWS, "RayJob", "spec backoffLimit", 1),
        Change(DWS, "RayJob", f"{HEAD} spec initContainers", []),
        Change(DWS, "RayJob", f"{HEAD} spec initContainers 0 args 2", "--mark=/tmp/elsewhere"),
        Change(DWS, "RayJob", f"{HEAD} spec initContainers 0 volumeMounts", []),
        Change(DWS, "Role", "rules 0 resourceNames", ["other"]),
        Change(DWS, "RoleBinding", "subjects 0 name", "ray-worker"),
    ),
    protection.ray_requires_the_token_of_the_stack: (
        Change(DWS, "RayJob", f"{WORKERS} spec containers 0 env 4 value", "none"),
        Change(DWS, "Secret", "metadata name", "other"),
        Change(
            CCC, "RayCluster", f"{RAY_HEAD} volumes 0", {"name": "a", "secret": {"secretName": "gke-ccc-ray-token"}}
        ),
    ),
    protection.outputs_are_for_those_whom_an_administrator_binds: (
        Change(DWS, "Secret", "metadata name", "gke-dws-ray-outputs"),
        Change(DWS, "Role", "rules 0 resources", ["secrets"]),
    ),
    scheduling.selectors_match_nodes: (
        Change(DWS, "RayJob", f"{WORKERS} spec nodeSelector cloud.google.com/gke-nodepool", "gpus"),
        Change(DWS, "Release", "values nodeSelector", {}, "kuberay"),
        Change(DWS, "NodePool", "name", "other", "cluster-system"),
        Change(CCC, "ComputeClass", "spec priorities 0 nodepools", ["fallback"]),
    ),
    scheduling.taints_keep_others_away: (
        Change(CCC, "NodePool", "nodeConfig taints", [], "pool-gpu"),
        Change(DWS, "RayJob", f"{WORKERS} spec tolerations", [GPU]),
        Change(DWS, "RayJob", f"{HEAD} spec tolerations", [GPU]),
        Change(CCC, "NodePool", "nodeConfig taints 1 value", "other", "pool-gpu"),
        Change(EKS, "Release", "values tolerations", [], "aws-efa-k8s-device-plugin"),
    ),
    scheduling.gpu_pods_take_their_node_whole: (
        Change(DWS, "RayJob", f"{WORKERS} spec containers 0 resources limits cpu", "221"),
        Change(DWS, "RayJob", f"{WORKERS} spec volumes 2 emptyDir sizeLimit", "2800Gi"),
    ),
    scheduling.nodes_are_what_was_asked_for: (
        Change(DWS, "NodePool", "autoscaling totalMaxNodeCount", 3, "pool-gpu"),
        Change(DWS, "RayJob", "spec rayClusterSpec workerGroupSpecs 0 maxReplicas", 5),
    ),
    scheduling.nothing_gives_up_before_the_capacity_does: (
        Change(DWS, "RayJob", "spec preRunningDeadlineSeconds", 3600),
        Change(CCC, "RayCluster", "spec autoscalerOptions env 0 value", "600"),
        Change(DWS, "ProvisioningRequestConfig", RETRIES, 3),
    ),
    fabric.nodes_have_every_nic: (
        Change(DWS, "Subnetwork"),
        Change(DWS, "NodePool", f"{ADDITIONAL} 1 network", "gke-dws-gvnic", "pool-gpu"),
        Change(EKS, "LaunchTemplate", "networkInterfaces 15 interfaceType", "interface", "gpu"),
        Change(EKS, "LaunchTemplate", "networkInterfaces 0 deviceIndex", 1, "gpu"),
    ),
    fabric.pods_have_every_nic_of_their_node: (
        Change(DWS, "RayJob", f"{WORKERS} metadata annotations", {}),
        Change(DWS, "NodePool", f"{ADDITIONAL} 8 subnetwork", "other", "pool-gpu"),
        Change(EKS, "RayCluster", f"{RESOURCES} requests vpc.amazonaws.com/efa", "8"),
        Change(DWS, NETWORK),
        Change(DWS, "GKENetworkParamSet", "spec vpcSubnet", "gke-dws-rdma-0"),
        Change(DWS, "GKENetworkParamSet", "spec deviceMode", "NetDevice"),
    ),
    fabric.devices_have_one_provider: (
        Change(EKS, "Release", "chart", "aws-dranet", "aws-efa-k8s-device-plugin"),
        Change(EKS, "Release", INSTANCES, ["p5.48xlarge"], "aws-efa-k8s-device-plugin"),
    ),
    fabric.the_installer_writes_what_pods_mount: (
        Change(DWS, "DaemonSet", "spec template spec volumes 1 hostPath path", "/other"),
    ),
    queues.workloads_wait_in_the_queue: (
        Change(USERS, "RayCluster", "metadata labels", {"kueue.x-k8s.io/queue-name": "other"}),
        Change(DWS, "LocalQueue"),
        Change(DWS, "RayJob", "metadata labels", {}),
        Change(DWS, "RayJob", "spec suspend", False),
        Change(DWS, "ClusterQueue", "spec namespaceSelector", {}),
        Change(DWS, "Release", CONFIGURATION, "integrations: {}", "kueue"),
    ),
    queues.quotas_are_between_pods_and_nodes: (
        Change(DWS, "ClusterQueue", f"{GROUP} flavors 1 resources 2 nominalQuota", "31"),
        Change(DWS, "ClusterQueue", f"{GROUP} flavors 1 resources 2 nominalQuota", "33"),
        Change(DWS, "ClusterQueue", f"{GROUP} flavors 0 resources 3 nominalQuota", "1Gi"),
        Change(DWS, "ClusterQueue", f"{GROUP} flavors 0 resources 0 nominalQuota", "3"),
        Change(DWS, "RayJob", f"{WORKERS} spec containers 0 resources requests hugepages-2Mi", "1Gi"),
    ),
    queues.flavors_are_the_nodes_of_the_stack: (
        Change(DWS, "ResourceFlavor", "spec nodeLabels", {"a": "b"}),
        Change(DWS, "ResourceFlavor", "spec tolerations", [{"operator": "Exists"}]),
        Change(DWS, "NodePool", "name", "gpus", "pool-gpu"),
        Change(DWS, "RayJob", f"{WORKERS} spec nodeSelector", {}),
    ),
    queues.queued_nodes_are_requested: (
        Change(DWS, "NodePool", "queuedProvisioning", None, "pool-gpu"),
        Change(DWS, "ClusterQueue", "spec admissionChecksStrategy admissionChecks 0 onFlavors", ["system"]),
        Change(DWS, "AdmissionCheck", "spec parameters name", "other"),
        Change(DWS, "ProvisioningRequestConfig", "spec managedResources", ["cpu"]),
        Change(DWS, "RayJob", "metadata annotations", {}),
        Change(DWS, "RayJob", f"{WORKERS} spec containers 0 resources requests hugepages-2Mi", "1Gi"),
    ),
    reach.ranges_are_disjoint: (
        Change(DWS, "Cluster", "privateClusterConfig masterIpv4CidrBlock", "10.66.0.0/28"),
        Change(EKS, "aws:ec2/subnet:Subnet", "cidrBlock", "192.168.0.0/20"),
    ),
    reach.gpus_are_in_one_zone: (
        Change(DWS, "NodePool", "nodeLocations", ["us-central1-a"]),
        Change(DWS, VPC, "networkProfile", "networkProfiles/us-central1-a-vpc-roce", "rdma"),
        Change(EKS, "LustreFileSystem", "subnetIds", "subnet-0", "shared"),
    ),
    reach.nothing_is_open_to_the_internet: (
        Change(USERS, "RayCluster", "spec headGroupSpec serviceType", "LoadBalancer"),
        Change(DWS, "Firewall", "sourceRanges", ["0.0.0.0/0"]),
        Change(DWS, "Cluster", "privateClusterConfig enablePrivateNodes", False),
        Change(EKS, "Cluster", "vpcConfig publicAccessCidrs", ["0.0.0.0/0"]),
        Change(EKS, "aws:ec2/subnet:Subnet", "mapPublicIpOnLaunch", True),
        Change(CCC, "RayCluster", "spec headGroupSpec serviceType", "LoadBalancer"),
    ),
    reach.ray_is_reached_by_few: (
        Change(DWS, "NetworkPolicy"),
        Change(USERS, "NetworkPolicy", "spec ingress 1 from 0 podSelector", {}),
        Change(DWS, "NetworkPolicy", "spec ingress 0 from 0 podSelector", {}),
        Change(DWS, "NetworkPolicy", "spec ingress 1 ports 0 port", 10001),
        Change(DWS, "NetworkPolicy", "spec ingress 2 from 0 namespaceSelector", {}),
        Change(DWS, "PodMonitoring", "spec endpoints 0 port", 8081),
        Change(DWS, "RayJob", "spec rayClusterSpec workerGroupSpecs 0 template metadata labels", {}),
    ),
    reach.nodes_reach_the_internet_by_nat_alone: (
        Change(DWS, "Subnetwork", "privateIpGoogleAccess", False, "cluster"),
        Change(EKS, "VpcEndpoint", "routeTableIds", []),
        Change(EKS, "Route", "", None, "nat-public"),
        Change(DWS, "Router", "network", "other"),
    ),
    reach.rules_admit_the_ranges_of_their_peers: (
        Change(DWS, "Firewall", "", None, "webhooks"),
        Change(DWS, "Firewall", "sourceRanges", ["10.67.0.0/19"], "gvnic"),
    ),
    reach.security_groups_admit_their_peers: (
        Change(EKS, "SecurityGroupEgressRule", "", None, "efa-out"),
        Change(EKS, "LaunchTemplate", "networkInterfaces 3 securityGroups", [], "gpu"),
        Change(EKS, "SecurityGroupIngressRule", "fromPort", 1019, "shared-nodes-in-1018"),
        Change(EKS, "SecurityGroupIngressRule", "", None, "shared-at-nodes-in-988"),
    ),
    reach.every_pod_of_ray_has_the_bucket: (
        Change(EKS, "RayCluster", f"{WORKER} volumeMounts 2 mountPath", "/data"),
        Change(EKS, "DataRepositoryAssociation", "dataRepositoryPath", "s3://other"),
        Change(CCC, "RayCluster", f"{WORKER} volumeMounts 4 mountPath", "/data"),
    ),
}
EDGES = {
    order.resources_wait_for_what_they_need,
    order.resources_wait_for_what_they_name,
    order.users_wait_for_the_rights_of_their_role,
    order.pods_and_nodes_wait_for_the_rights_of_accounts,
    order.requests_may_take_as_long_as_published,
    protection.objects_go_with_the_cluster,
    fabric.rdma_network_has_no_rules,
    existing.pods_stay_on_the_stacks_nodes,
}
"""Invariants with separate tests: of dependencies, time-outs, and a cluster of the user's on a cloud."""
CASES = [pytest.param(one, change, id=f"{one.__name__}-{change}") for one in BREAKS for change in BREAKS[one]]


@pytest.fixture(scope="session")
def stacks(rehearse: Callable[..., Outcome]) -> Mapping[str, Stack]:
    """Stacks by name."""
    files = {name: from_stack_file(ROOT / f"Pulumi.{name}.yaml") for name in (DWS, CCC, EKS, USERS)}
    return {name: Stack(Graph(rehearse(name).graph.nodes), settings) for name, settings in files.items()}


@pytest.mark.parametrize(("invariant", "change"), CASES)
def test_change_breaks_the_invariant(stacks: Mapping[str, Stack], invariant: Invariant, change: Change) -> None:
    stack = stacks[change.stack]
    assert violations(stack, [invariant]) == []
    assert violations(change.applied(stack), [invariant])


def test_every_invariant_is_broken() -> None:
    assert BREAKS.keys() | EDGES == set(INVARIANTS)


def test_pods_in_a_users_cluster_select_the_stacks_nodes(stacks: Mapping[str, Stack]) -> None:
    stack = stacks[EKS]
    cluster = stack.cloud.cluster.model_copy(update={"existing": "theirs"})
    users = replace(stack, settings=stack.cloud.model_copy(update={"cluster": cluster}))
    wrong = violations(users, [existing.pods_stay_on_the_stacks_nodes])
    selector = {"eks.amazonaws.com/nodegroup": "gpu"}
    change = Change(EKS, "RayCluster", "spec workerGroupSpecs 0 template spec nodeSelector", selector)
    # Its device plugins and autoscaler are still those of the stack's own cluster.
    assert len(violations(change.applied(users), [existing.pods_stay_on_the_stacks_nodes])) == len(wrong) - 1


def with_node(stack: Stack, node: GraphNode) -> Stack:
    """Return the stack with another version of a resource, which keeps its URN."""
    return replace(stack, graph=Graph({**stack.graph.nodes, node.urn: node}))


def loose(stack: Stack, node: GraphNode) -> Stack:
    """Return the stack in which a resource waits for nothing."""
    return with_node(stack, replace(node, depends=frozenset(), data=frozenset()))


@pytest.mark.parametrize(("later", "earlier", "reason"), order.ORDERS)
def test_every_order_is_checked(stacks: Mapping[str, Stack], later: str, earlier: str, reason: str) -> None:
    tried = 0
    for stack in stacks.values():
        for node in selection(stack, later) if selection(stack, earlier) else ():
            tried += 1
            assert [wrong for wrong in order.resources_wait_for_what_they_need(stack) if reason in wrong] == []
            wrongs = order.resources_wait_for_what_they_need(loose(stack, node))
            assert any(node.name in wrong and reason in wrong for wrong in wrongs)
    assert tried


@pytest.mark.parametrize(
    ("invariant", "name", "kind"),
    [
        (order.users_wait_for_the_rights_of_their_role, EKS, "Cluster"),
        (order.users_wait_for_the_rights_of_their_role, EKS, "NodeGroup"),
        (order.users_wait_for_the_rights_of_their_role, EKS, "cluster-autoscaler"),
        (order.pods_and_nodes_wait_for_the_rights_of_accounts, CCC, "RayCluster"),
        (order.pods_and_nodes_wait_for_the_rights_of_accounts, CCC, "NodePool"),
    ],
)
def test_users_wait_for_their_rights(stacks: Mapping[str, Stack], invariant: Invariant, name: str, kind: str) -> None:
    stack = stacks[name]
    assert list(invariant(stack)) == []
    assert list(invariant(loose(stack, (stack.of(kind) or stack.charts(kind))[-1])))


@pytest.mark.parametrize(
    ("name", "kind"), [(DWS, "RayJob"), (DWS, "LocalQueue"), (EKS, "PersistentVolumeClaim"), (EKS, "NodeGroup")]
)
def test_resources_wait_for_what_they_name(stacks: Mapping[str, Stack], name: str, kind: str) -> None:
    stack = stacks[name]
    assert list(order.resources_wait_for_what_they_name(stack)) == []
    assert list(order.resources_wait_for_what_they_name(loose(stack, stack.of(kind)[0])))


@pytest.mark.parametrize(("name", "kind"), [(EKS, "DataRepositoryAssociation"), (DWS, "NodePool")])
def test_default_time_out_below_a_published_time_is_a_violation(
    stacks: Mapping[str, Stack], name: str, kind: str
) -> None:
    stack = stacks[name]
    assert list(order.requests_may_take_as_long_as_published(stack)) == []
    default = with_node(stack, replace(stack.of(kind)[0], timeouts={}))
    assert list(order.requests_may_take_as_long_as_published(default))


def test_objects_outside_of_the_cluster_are_violations(stacks: Mapping[str, Stack]) -> None:
    stack = stacks[DWS]
    (secret,) = stack.of("Secret")
    assert list(protection.objects_go_with_the_cluster(stack)) == []
    for other in (replace(secret, deleted_with=None), replace(secret, provider=None)):
        assert list(protection.objects_go_with_the_cluster(with_node(stack, other)))
    (users,) = stacks[USERS].of("Secret")
    assert list(protection.objects_go_with_the_cluster(stacks[USERS])) == []
    for other in (replace(users, deleted_with=secret.urn), replace(users, provider=None)):
        assert list(protection.objects_go_with_the_cluster(with_node(stacks[USERS], other)))


def test_router_on_the_rdma_network_is_a_violation(stacks: Mapping[str, Stack]) -> None:
    stack = stacks[DWS]
    (network,) = [node for node in stack.of("gcp:compute/network:Network") if "networkProfile" in node.inputs]
    router = replace(stack.of("Router")[0], depends=frozenset({network.urn}))
    assert list(fabric.rdma_network_has_no_rules(stack)) == []
    assert list(fabric.rdma_network_has_no_rules(with_node(stack, router)))
