"""Resources of a stack's queue, selected from its graph: Kueue, its objects, the nodes of its flavors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from infra.kubernetes.queue_objects import QUEUE_LABEL
from rehearsal.clouds.kubernetes.admission import PodSet, Queue, assign, pod_sets
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from rehearsal.graph import Node
from rehearsal.invariants import eks_resources, gke_resources
from rehearsal.invariants.invariant import Stack, at
from rehearsal.invariants.kubernetes import RELEASE, workloads

GPU = "nvidia.com/gpu"
QUEUE_KINDS = (TOPOLOGY, RESOURCE_FLAVOR, PROVISIONING, ADMISSION_CHECK, CLUSTER_QUEUE, LOCAL_QUEUE)
POOL_LABEL = "cloud.google.com/gke-nodepool"
GROUP_LABEL = "eks.amazonaws.com/nodegroup"
INSTANCE_LABEL = "node.kubernetes.io/instance-type"


def name_of(node: Node) -> str:
    """Return the name by which other objects refer to it."""
    return str(at(node, "metadata.name"))


def kueue_releases(stack: Stack) -> list[Node]:
    """Return the releases of Kueue."""
    return [node for node in stack.of(RELEASE) if str(at(node, "chart")).rpartition("/")[2] == "kueue"]


def configuration(release: Node) -> Mapping[str, Any]:
    """Return Kueue's configuration in the release's values."""
    read = yaml.safe_load(str(at(release, "values.managerConfig.controllerManagerConfigYaml")))
    return read if isinstance(read, dict) else {}


def specs(stack: Stack, type_: str) -> dict[str, Any]:
    """Return the specs of a kind's objects, by name."""
    return {name_of(node): at(node, "spec") or {} for node in stack.of(type_)}


def queue_of(stack: Stack) -> Queue:
    """Return the ClusterQueue with everything that it refers to."""
    (queue,) = stack.of(CLUSTER_QUEUE)
    levels = {
        name: [level["nodeLabel"] for level in spec.get("levels") or ()]
        for name, spec in specs(stack, TOPOLOGY).items()
    }
    return Queue(at(queue, "spec"), specs(stack, RESOURCE_FLAVOR), levels)


def sets_of(workload: Node) -> list[PodSet]:
    """Return the pod sets of a workload."""
    return pod_sets(workload.type.rpartition(":")[2], workload.inputs)


def queued(stack: Stack) -> list[Node]:
    """Return the workloads with the queue's label."""
    return [node for node in workloads(stack) if (at(node, "metadata.labels") or {}).get(QUEUE_LABEL)]


def gpu_flavors(stack: Stack) -> list[str]:
    """Return the flavors with a GPU quota, in the order in which Kueue tries them."""
    return [name for name, amounts in quotas(stack).items() if str(amounts.get(GPU, "0")) != "0"]


def quotas(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the quotas of every flavor of the ClusterQueue, in order."""
    return {
        flavor["name"]: {quota["name"]: quota["nominalQuota"] for quota in flavor["resources"]}
        for group in queue_of(stack).spec.get("resourceGroups") or ()
        for flavor in group["flavors"]
    }


def assigned(stack: Stack, workload: Node) -> tuple[list[str], list[str]]:
    """Return the flavors of a workload's pod sets, and the reasons for an endless wait."""
    return assign(sets_of(workload), queue_of(stack))


def nodes_of(stack: Stack, flavor: str) -> list[Node]:
    """Return the node pools or node groups whose nodes have all labels of a flavor."""
    wanted = (specs(stack, RESOURCE_FLAVOR).get(flavor) or {}).get("nodeLabels") or {}
    return [node for node, labels in _labelled(stack) if wanted and wanted.items() <= labels.items()]


def gpu_nodes(stack: Stack) -> list[Node]:
    """Return the node pools or node groups with GPUs."""
    return gke_resources.gpu_pools(stack) if stack.cloud.target == "gke" else eks_resources.gpu_groups(stack)


def _labelled(stack: Stack) -> list[tuple[Node, dict[str, Any]]]:
    """Yield pools and groups with the labels that their nodes get from the program and from the cloud."""
    if stack.cloud.target == "gke":
        pools = stack.of(gke_resources.POOL)
        return [(pool, {**(at(pool, "nodeConfig.labels") or {}), POOL_LABEL: at(pool, "name")}) for pool in pools]
    machines = dict.fromkeys((node.urn for node in eks_resources.gpu_groups(stack)), stack.eks.nodes.machine)
    return [
        (
            group,
            {
                **(at(group, "labels") or {}),
                GROUP_LABEL: at(group, "nodeGroupName"),
                INSTANCE_LABEL: machines.get(group.urn),
            },
        )
        for group in stack.of(eks_resources.NODE_GROUP)
    ]
