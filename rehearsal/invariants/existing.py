"""A cluster that the user has: what the stack makes there, and what it takes of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.names import OTHER_GROUP, OWNER_LABEL, STACK_LABEL
from infra.naming import STACK
from infra.settings import EksSettings, KubernetesSettings
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.engine.kind import value_at
from rehearsal.invariants.invariant import Stack, at, differs
from rehearsal.invariants.placement import GPU, ray_pods


def objects_are_marked_and_in_the_namespace(stack: Stack) -> Iterator[str]:
    """In a user's cluster every object and Helm release of the stack is in its namespace, and has its label. With
    cluster.existing, each object has the stack's labels, and KubeRay the first of them."""
    if stack.in_users_cluster:
        yield from _unmarked(stack)
    if not isinstance(stack.settings, KubernetesSettings):
        return
    for node in stack.graph.managed:
        if node.type.endswith(":Release"):
            place, labels = at(node, "namespace"), at(node, "values.labels") or {}
        elif node.type.startswith("kubernetes:"):
            place, labels = at(node, "metadata.namespace"), at(node, "metadata.labels") or {}
        else:
            continue
        stack_name = node.urn.split(":")[2]
        wanted = (stack.settings.namespace, stack_name)
        yield from differs(f"{node.type} {node.name}", (place, labels.get(STACK_LABEL)), wanted)


def _unmarked(stack: Stack) -> Iterator[str]:
    owners = {node.outputs["hex"] for node in stack.of("RandomId")}
    for node in stack.graph.managed:
        name = node.urn.split(":")[2]
        if node.type.endswith(":Release"):
            if str(at(node, "chart")).endswith("kuberay-operator"):
                yield from differs(node.name, (at(node, "values.labels") or {}).get(STACK_LABEL), name)
        elif node.type.startswith("kubernetes:"):
            labels = at(node, "metadata.labels") or {}
            wanted = {(name, owner) for owner in owners}
            yield from differs(node.name, {(labels.get(STACK_LABEL), labels.get(OWNER_LABEL))}, wanted)


def pods_stay_on_the_stacks_nodes(stack: Stack) -> Iterator[str]:
    """In a user's cluster with nodes of the stack, Ray's pods select those: by their pool, or by its ComputeClass. So
    do all charts on EKS, and the autoscaler's groups have the stack's tag."""
    ways = ("cloud.google.com/gke-nodepool", "cloud.google.com/compute-class", "eks.amazonaws.com/nodegroup")
    for pods in ray_pods(stack) if stack.in_users_cluster else ():
        if not set(ways) & set(pods.spec.get("nodeSelector") or {}):
            yield f"{pods} may run on nodes of the user's"
    on_eks = stack.in_users_cluster and isinstance(stack.settings, EksSettings)
    for release in stack.of("Release") if on_eks else ():
        if ways[-1] not in (at(release, "values.nodeSelector") or {}):
            yield f"{release.name} may run on nodes of the user's"
        if (found := at(release, "values.autoDiscovery")) and STACK not in found["tags"]:
            yield f"{release.name} sizes groups of the user's"


def workers_take_what_was_asked_for(stack: Stack) -> Iterator[str]:
    """On a user's nodes, ray.maxWorkers workers, no more than nodes.max, request what the stack file says that a node
    has, with shared memory within that, and so do those of otherNodes.max. The head requests no GPU."""
    if not isinstance(stack.settings, KubernetesSettings):
        return
    others, workers = stack.settings.other_nodes, min(stack.settings.ray.max_workers, stack.settings.nodes.max)
    for pods in ray_pods(stack):
        if pods.name == "head":
            yield from differs(f"{pods}: GPUs", pods.gpus, 0)
            continue
        nodes, count = (others, others.max) if pods.name == OTHER_GROUP else (stack.settings.nodes, workers)
        wanted = {"cpu": nodes.cpus, "memory": nodes.memory_gib * 2**30, **({GPU: nodes.gpus} if nodes.gpus else {})}
        yield from differs(f"{pods}: requests", {name: int(pods.asks.get(name, 0)) for name in wanted}, wanted)
        shared = sum(amount(value_at(volume, "emptyDir.sizeLimit") or 0) for volume in pods.volumes)
        if not (shared < pods.asks["memory"] and pods.count == count):
            yield f"{pods}: {pods.count} pods, {shared} shared"
