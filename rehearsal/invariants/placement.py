"""Node pools and pods as the scheduler sees them, on either cloud."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from infra.catalog.fabrics import FABRICS
from infra.catalog.machines import CATALOG
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.engine.kind import Json, value_at
from rehearsal.graph import GraphNode
from rehearsal.invariants.invariant import Stack, at, name_of

GPU = "nvidia.com/gpu"
WORKER_GROUP = "gpu-group"
CHARTS = {row.chart.name.rpartition("/")[2]: row for row in FABRICS.values() if row.chart}
"""Fabric of each driver's chart."""
DAEMONS = ("nvidia-device-plugin", "dcgm-exporter", *CHARTS)
"""Charts whose pods serve every GPU node."""
_AFFINITY = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions"


@dataclass(frozen=True)
class MachinePool:
    """Node pool of GKE or node group of EKS.

    `labels` and `taints` (values by key) include those that the cloud adds; `gpus` are those of one node; `most` is the
    largest number of nodes.
    """

    node: GraphNode
    name: str
    machine: str
    labels: Mapping[str, str]
    taints: Mapping[str, str]
    gpus: int
    most: int

    @property
    def workers(self) -> bool:
        """Whether its nodes are for Ray's workers: all but the CPU nodes of the head."""
        return self.name != "system"


@dataclass(frozen=True)
class Pods:
    """Identical pods of an object: how many at most, and their template. A chart's have fields of scheduling only."""

    owner: GraphNode
    name: str
    count: int
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    spec: Json
    containers: list[Json]
    volumes: list[Json]

    def __str__(self) -> str:
        return f"{self.owner.name} ({self.name})"

    @property
    def daemon(self) -> bool:
        """Whether the pods serve the GPU nodes instead of using them."""
        return self.owner.type.endswith(":DaemonSet") or str(at(self.owner, "chart")).rpartition("/")[2] in DAEMONS

    @property
    def asks(self) -> dict[str, Decimal]:
        """The requests of one pod by resource; a limit counts as a request where there is none."""
        total: dict[str, Decimal] = defaultdict(Decimal)
        for container in self.containers:
            resources = container.get("resources") or {}
            for resource, quantity in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                total[resource] += amount(quantity)
        return dict(total)

    @property
    def gpus(self) -> int:
        """GPUs of one pod."""
        return int(self.asks.get(GPU, 0))

    @property
    def workers(self) -> bool:
        """Whether each pod is a worker that owns its node, whose machine may have no GPU."""
        return self.gpus > 0 or self.name == WORKER_GROUP or self.owner.type.endswith(":Job")

    def tolerated(self, taints: Mapping[str, str]) -> set[str]:
        """Return the keys of the taints that the pods tolerate."""
        return {
            key
            for key, value in taints.items()
            for one in self.spec.get("tolerations") or []
            if one.get("key") in (None, key) and (one.get("operator") == "Exists" or one.get("value") == value)
        }


def pools(stack: Stack) -> list[MachinePool]:
    """Return every node pool or node group."""
    found = [_node_pool(node) for node in stack.of("NodePool")]
    templates = {node.id: node for node in stack.of("LaunchTemplate")}
    return [*found, *(_node_group(node, templates[at(node, "launchTemplate.id")]) for node in stack.of("NodeGroup"))]


def worker_pools(stack: Stack) -> list[MachinePool]:
    """Return the node pools or groups of Ray's workers."""
    return [pool for pool in pools(stack) if pool.workers]


def worker_templates(stack: Stack) -> list[GraphNode]:
    """Return the launch templates of the node groups of Ray's workers."""
    used = {at(pool.node, "launchTemplate.id") for pool in worker_pools(stack)}
    return [node for node in stack.of("LaunchTemplate") if node.id in used]


def workloads(stack: Stack) -> list[GraphNode]:
    """Return the objects that run Ray: a RayCluster, RayJob, RayService or Job."""
    return [*ray_workloads(stack), *stack.of("Job")]


def ray_workloads(stack: Stack) -> list[GraphNode]:
    """Return the objects that KubeRay runs."""
    return stack.of("RayCluster", "RayJob", "RayService")


def ray_spec(workload: GraphNode) -> Json:
    """Return the RayCluster spec of a RayCluster, RayJob or RayService; empty for a Job."""
    paths = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
    path = paths.get(workload.type.rpartition(":")[2], "-")
    return at(workload, path) or {}


def pods_of(owner: GraphNode) -> Iterator[Pods]:
    """Yield the pods of a workload, DaemonSet, CronJob or Helm release."""
    groups: list[tuple[str, int, Any]] = []
    if ray := ray_spec(owner):
        groups = [("head", 1, value_at(ray, "headGroupSpec.template"))]
        groups += [(group["groupName"], group["maxReplicas"], group["template"]) for group in ray["workerGroupSpecs"]]
    elif job := at(owner, "spec.jobTemplate.spec.template"):
        groups = [("pods", 1, job)]
    elif at(owner, "spec.template"):
        groups = [("pods", at(owner, "spec.parallelism") or 0, at(owner, "spec.template"))]
    elif owner.type.endswith(":Release"):
        groups = [("pods", 1, {"spec": at(owner, "values.controllerManager") or at(owner, "values") or {}})]
    for name, count, template in groups:
        marks, spec = template.get("metadata") or {}, template["spec"]
        annotations, labels = marks.get("annotations") or {}, marks.get("labels") or {}
        yield Pods(
            owner, name, count, annotations, labels, spec, spec.get("containers") or [], spec.get("volumes") or []
        )


def ray_pods(stack: Stack) -> list[Pods]:
    """Return the pods of Ray."""
    return [pods for workload in workloads(stack) for pods in pods_of(workload)]


def worker_pods(stack: Stack) -> list[Pods]:
    """Return the pods of workers that own their node."""
    return [pods for pods in ray_pods(stack) if pods.workers]


def selected(stack: Stack, pods: Pods) -> list[MachinePool]:
    """Return the pools that have the GPUs of pods, and the labels of their node selector and required affinity."""
    wanted = {key: [value] for key, value in (pods.spec.get("nodeSelector") or {}).items()}
    wanted |= {term["key"]: term["values"] for term in value_at(pods.spec, _AFFINITY) or []}
    found = [pool for pool in pools(stack) if pool.gpus >= pods.gpus]
    return [pool for pool in found if all(pool.labels.get(key) in values for key, values in wanted.items())]


def pod_labels(workload: GraphNode) -> dict[str, str]:
    """Return the labels of a workload's pods: the cluster's name, which is random in a RayJob, or the job's."""
    return {"ray.io/cluster" if workload.type.endswith(":RayCluster") else "rdma-ray/job": name_of(workload)}


def selection(stack: Stack, words: str) -> list[GraphNode]:
    """Return the resources that words select: kinds, charts, add-ons, or groups."""
    nodes = []
    for word in words.split():
        named = [node for node in stack.of("Addon") if at(node, "addonName") == word]
        nodes += GROUPS[word](stack) if word in GROUPS else [*stack.of(word), *stack.charts(word), *named]
    return nodes


def _rules(stack: Stack, suffix: str) -> list[GraphNode]:
    """Return the rules of the security group with this suffix, and the rules of other groups that refer to it."""
    ids = {node.id for node in stack.of("SecurityGroup") if str(at(node, "name")).endswith(suffix)}
    rules = stack.of("SecurityGroupIngressRule", "SecurityGroupEgressRule")
    return [node for node in rules if ids & {at(node, "securityGroupId"), at(node, "referencedSecurityGroupId")}]


def _rules_of_webhooks(stack: Stack) -> list[GraphNode]:
    planes = {at(node, "privateClusterConfig.masterIpv4CidrBlock") for node in stack.of("Cluster")}
    return [node for node in stack.of("Firewall") if planes & set(at(node, "sourceRanges") or [])]


GROUPS: Mapping[str, Callable[[Stack], list[GraphNode]]] = {
    "control-plane-logs": lambda stack: [
        node for node in stack.of("LogGroup") if str(at(node, "name")).startswith("/aws/eks/")
    ],
    "gpu-nodes": lambda stack: [pool.node for pool in worker_pools(stack)],
    "public-routes": lambda stack: [route for route in stack.of("Route") if at(route, "gatewayId")],
    # Those of a file system with the nodes are for mounts, which come later.
    "rules-of-efa": lambda stack: [
        rule for rule in _rules(stack, "-efa") if at(rule, "securityGroupId") == at(rule, "referencedSecurityGroupId")
    ],
    "rules-of-fsx": lambda stack: _rules(stack, "-fsx"),
    "rules-of-webhooks": _rules_of_webhooks,
    "system-nodes": lambda stack: [pool.node for pool in pools(stack) if not pool.workers],
}


def variable(container: Any, name: str, path: str = "value") -> Any:
    """Return the value of an environment variable, or another path of it; None if it is not set."""
    variables = {one["name"]: one for one in value_at(container, "env") or []}
    return value_at(variables, f"{name}.{path}")


def _node_pool(node: GraphNode) -> MachinePool:
    config, name = at(node, "nodeConfig"), at(node, "name")
    accelerator = value_at(config, "guestAccelerators.0") or {}
    labels = {
        **(config.get("labels") or {}),
        "cloud.google.com/gke-nodepool": name,
        "cloud.google.com/gke-accelerator": accelerator.get("type", ""),
        "node.kubernetes.io/instance-type": config["machineType"],
    }
    taints = {taint["key"]: taint["value"] for taint in config.get("taints") or []}
    if at(node, "queuedProvisioning.enabled"):
        # GKE docs provisioningrequest, 2026-04-08.
        taints["cloud.google.com/gke-queued"] = "true"
    gpus, most = accelerator.get("count", 0), at(node, "autoscaling.totalMaxNodeCount")
    return MachinePool(node, name, config["machineType"], labels, taints, gpus, most)


def _node_group(node: GraphNode, template: GraphNode) -> MachinePool:
    machine, name = at(node, "instanceTypes.0") or at(template, "instanceType"), at(node, "nodeGroupName")
    added = {"eks.amazonaws.com/nodegroup": name, "node.kubernetes.io/instance-type": machine}
    taints = {taint["key"]: taint["value"] for taint in at(node, "taints") or []}
    gpus, most = CATALOG[machine].gpus if machine in CATALOG else 0, at(node, "scalingConfig.maxSize")
    return MachinePool(node, name, machine, {**(at(node, "labels") or {}), **added}, taints, gpus, most)
