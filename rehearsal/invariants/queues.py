"""Invariants of the queue: it admits the stack's workloads, and never more than the nodes can hold."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from infra.catalog import pins
from infra.catalog.capacity import EKS_CAPACITIES, GKE_CAPACITIES
from infra.kubernetes import queue_objects as objects
from infra.kubernetes.pods import NAMESPACE
from rehearsal.clouds.kind import value_at
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.invariants.eks_resources import system_groups
from rehearsal.invariants.gke_resources import system_pools
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import RELEASE, on_the_way_down, workloads
from rehearsal.invariants.queue_resources import (
    GPU,
    QUEUE_KINDS,
    assigned,
    configuration,
    gpu_flavors,
    gpu_nodes,
    kueue_releases,
    name_of,
    nodes_of,
    queue_of,
    queued,
    quotas,
    sets_of,
    specs,
)

FRAMEWORKS = {"RayCluster": "ray.io/raycluster", "RayJob": "ray.io/rayjob", "Job": "batch/job"}


def there_is_a_queue_where_one_is_asked_for(stack: Stack) -> Iterator[str]:
    """Kueue and its one queue exist exactly if the stack file sets `queue: kueue`."""
    wanted = stack.cloud.queue == "kueue"
    found = {
        "release": len(kueue_releases(stack)),
        "ClusterQueue": len(stack.of(CLUSTER_QUEUE)),
        "LocalQueue": len(stack.of(LOCAL_QUEUE)),
    }
    if set(found.values()) != {int(wanted)}:
        yield f"there are {found} with queue: {stack.cloud.queue}"
    if not wanted and any(stack.of(kind) for kind in QUEUE_KINDS):
        yield "objects of a queue exist without Kueue"


def kueue_is_pinned_and_placed(stack: Stack) -> Iterator[str]:
    """Kueue is the pinned release, with the image of that release, on nodes without GPUs."""
    for release in kueue_releases(stack):
        yield from expect(
            release,
            name=objects.KUEUE_RELEASE,
            chart=pins.KUEUE.name,
            version=pins.KUEUE.version,
            namespace=objects.KUEUE_NAMESPACE,
            createNamespace=True,
            atomic=True,
            values__controllerManager__manager__image__tag=pins.KUEUE_TAG,
            values__controllerManager__manager__image__pullPolicy="IfNotPresent",
        )
        repository = at(release, "values.controllerManager.manager.image.repository")
        if not str(repository).endswith("kueue/kueue"):
            yield f"{release.name}: its image comes from {repository}"
        if not at(release, "values.controllerManager.nodeSelector"):
            yield f"{release.name}: it may run on GPU nodes"


def kueue_looks_after_what_the_stack_runs(stack: Stack) -> Iterator[str]:
    """Kueue manages exactly the kinds that the stack may run: each one adds a webhook to wait for."""
    for release in kueue_releases(stack):
        frameworks = value_at(configuration(release), "integrations.frameworks")
        if sorted(frameworks or ()) != sorted(FRAMEWORKS.values()):
            yield f"{release.name}: it manages {frameworks}"


def workloads_are_not_evicted_while_machines_start(stack: Stack) -> Iterator[str]:
    """Kueue evicts an admitted workload only after its wait for machines and an hour for images, with few retries."""
    for release in kueue_releases(stack):
        waits = value_at(configuration(release), "waitForPodsReady") or {}
        if _seconds(waits.get("timeout")) < _wait_s(stack) + objects.PULL_S:
            yield f"{release.name}: pods must be ready after {waits.get('timeout')}"
        tries = value_at(waits, "requeuingStrategy.backoffLimitCount")
        if not isinstance(tries, int) or not 0 < tries <= 10:
            yield f"{release.name}: a missing image is retried {tries} times"


def every_workload_waits_in_the_queue(stack: Stack) -> Iterator[str]:
    """The stack's workload has the label of an existing LocalQueue with a ClusterQueue, and starts suspended."""
    if stack.cloud.queue != "kueue":
        return
    local = {(at(node, "metadata.namespace"), name_of(node)): node for node in stack.of(LOCAL_QUEUE)}
    for workload in workloads(stack):
        label = (at(workload, "metadata.labels") or {}).get(objects.QUEUE_LABEL)
        queue = local.get((at(workload, "metadata.namespace"), str(label)))
        if queue is None:
            yield f"{workload.name}: no LocalQueue {label} in {at(workload, 'metadata.namespace')}"
        elif at(queue, "spec.clusterQueue") not in specs(stack, CLUSTER_QUEUE):
            yield f"{queue.name}: no ClusterQueue {at(queue, 'spec.clusterQueue')}"
        # Kueue's webhook checks this, too; this check applies while the webhook is not available.
        yield from expect(workload, spec__suspend=True)


def the_queue_is_for_ray_alone(stack: Stack) -> Iterator[str]:
    """The queue accepts only Ray's namespace: a LocalQueue elsewhere would not share the GPUs."""
    for queue in stack.of(CLUSTER_QUEUE):
        wanted = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
        yield from expect(queue, spec__namespaceSelector=wanted)


def the_queue_admits_what_the_stack_runs(stack: Stack) -> Iterator[str]:
    """The workload fits the empty queue: every resource is covered, the head gets CPU nodes, workers GPU nodes."""
    for workload in queued(stack):
        flavors, why = assigned(stack, workload)
        yield from (f"{workload.name} would wait forever: {words}" for words in why)
        for one, flavor in zip(sets_of(workload), flavors, strict=False):
            if flavor and (GPU in one.asks()) != (flavor in gpu_flavors(stack)):
                yield f"{workload.name}: {one.name} gets flavor {flavor}"


def every_gpu_flavor_could_take_it(stack: Stack) -> Iterator[str]:
    """If one GPU flavor is full, each other one can still hold all workers."""
    for workload in queued(stack):
        for flavor, amounts in quotas(stack).items():
            if flavor not in gpu_flavors(stack):
                continue
            for one in sets_of(workload):
                for resource, each in one.asks().items() if GPU in one.asks() else ():
                    if one.count * each > amount(amounts.get(resource, "0")):
                        yield f"flavor {flavor} has {amounts.get(resource)} of {resource}, and {one.name} needs more"


def quotas_do_not_exceed_node_capacity(stack: Stack) -> Iterator[str]:
    """A flavor's quota is the capacity of its pool's maximum number of nodes; CPU nodes have no GPU or NIC quota."""
    if stack.cloud.queue != "kueue":
        return
    most: dict[str, Decimal] = {}
    for one in [one for workload in queued(stack) for one in sets_of(workload) if GPU in one.asks()]:
        most |= {resource: each * stack.cloud.nodes.max for resource, each in one.asks().items()}
    for flavor, amounts in quotas(stack).items():
        for resource, quota in amounts.items():
            if flavor in gpu_flavors(stack) and resource in most and amount(quota) > most[resource]:
                yield f"flavor {flavor} has a quota of {quota} of {resource}, but its nodes hold {most[resource]}"
            if flavor not in gpu_flavors(stack) and resource not in ("cpu", "memory") and amount(quota):
                yield f"flavor {flavor} has a quota of {quota} of {resource}, which CPU nodes do not have"


def flavors_are_the_stacks_nodes(stack: Stack) -> Iterator[str]:
    """Each flavor's labels match nodes of the stack, with GPUs if it has a GPU quota; no GPU pool lacks a flavor."""
    if stack.cloud.queue != "kueue":
        return
    reached = []
    for flavor in quotas(stack):
        found = nodes_of(stack, flavor)
        reached += found
        with_gpus = [node for node in found if node in gpu_nodes(stack)]
        if not found or with_gpus != (found if flavor in gpu_flavors(stack) else []):
            yield f"flavor {flavor} matches {[node.name for node in found] or 'no nodes of the stack'}"
    left = [node.name for node in gpu_nodes(stack) if node not in reached]
    if left:
        yield f"no flavor covers {', '.join(left)}"
    if set(quotas(stack)) != set(specs(stack, RESOURCE_FLAVOR)):
        yield f"the flavors are {sorted(specs(stack, RESOURCE_FLAVOR))}, and the queue has {sorted(quotas(stack))}"


def kueue_changes_nothing_that_was_asked_for(stack: Stack) -> Iterator[str]:
    """Kueue changes no field of the program: flavors add no tolerations, and templates already have the selectors."""
    for flavor, spec in specs(stack, RESOURCE_FLAVOR).items():
        if spec.get("tolerations"):
            yield f"flavor {flavor} adds tolerations to a list that the program owns"
    for workload in queued(stack):
        for one, flavor in zip(sets_of(workload), assigned(stack, workload)[0], strict=False):
            labels = (specs(stack, RESOURCE_FLAVOR).get(flavor) or {}).get("nodeLabels") or {}
            selector = one.spec.get("nodeSelector") or {}
            several = flavor in gpu_flavors(stack) and len(gpu_flavors(stack)) > 1
            if not several and not labels.items() <= selector.items():
                yield f"{workload.name}: {one.name} does not select {labels}"
            if several and selector.keys() & labels.keys():
                yield f"{workload.name}: {one.name} selects a flavor itself: {selector}"


def claimed_devices_have_a_quota(stack: Stack) -> Iterator[str]:
    """Devices that pods claim have a mapped name and a quota; Kueue admits no claim of a class without one."""
    claimed = {
        value_at(request, "exactly.deviceClassName"): value_at(request, "exactly.count") or 1
        for template in stack.of("kubernetes:resource.k8s.io/v1:ResourceClaimTemplate")
        for request in at(template, "spec.spec.devices.requests") or ()
    }
    for release in kueue_releases(stack):
        mappings = value_at(configuration(release), "resources.deviceClassMappings") or ()
        named = {class_: mapping["name"] for mapping in mappings for class_ in mapping["deviceClassNames"]}
        for class_, count in claimed.items():
            wanted = count * (stack.cloud.ray.max_workers or 0)
            for flavor in gpu_flavors(stack):
                quota = quotas(stack)[flavor].get(named.get(class_, ""), "0")
                if amount(quota) < wanted:
                    yield f"flavor {flavor} has {quota} devices of class {class_}, but workers claim {wanted}"


def places_are_known(stack: Stack) -> Iterator[str]:
    """Topology levels go from coarse to the node, and a flavor with a topology is the only one for GPU nodes."""
    for topology, spec in specs(stack, TOPOLOGY).items():
        levels = [level["nodeLabel"] for level in spec["levels"]]
        if len(levels) < 2 or levels[-1] != "kubernetes.io/hostname":
            yield f"topology {topology} is {levels}"
        users = [name for name, flavor in specs(stack, RESOURCE_FLAVOR).items() if flavor.get("topologyName")]
        if users != gpu_flavors(stack):
            yield f"topology {topology} is used by {users}"


def the_queue_goes_in_order(stack: Stack) -> Iterator[str]:
    """Deletion order: workload, queues, flavors and check, Kueue, nodes.

    Kueue protects objects in use by finalizers, and removes them itself.
    """
    system = system_pools(stack) if stack.cloud.target == "gke" else system_groups(stack)
    flavors, checks = stack.of(RESOURCE_FLAVOR), stack.of(ADMISSION_CHECK)
    kueue = kueue_releases(stack)
    yield from on_the_way_down(
        stack.graph, [queued(stack), stack.of(LOCAL_QUEUE), stack.of(CLUSTER_QUEUE), [*flavors, *checks], kueue, system]
    )
    yield from on_the_way_down(stack.graph, [checks, stack.of(PROVISIONING), kueue])
    yield from on_the_way_down(stack.graph, [flavors, stack.of(TOPOLOGY), kueue])
    # Its webhook for Ray's kinds answers once their CRDs exist.
    operators = [node for node in stack.of(RELEASE) if at(node, "chart") == "kuberay-operator"]
    yield from on_the_way_down(stack.graph, [kueue, operators])


def _wait_s(stack: Stack) -> int:
    """Return the seconds from admission until the nodes exist; queued machines exist at admission."""
    if stack.cloud.target == "eks":
        return 3600 * EKS_CAPACITIES[stack.eks.nodes.capacity].wait_hours
    ways = [GKE_CAPACITIES[way] for way in stack.gke.nodes.capacities]
    return max((3600 * way.wait_hours for way in ways if not way.queued), default=0)


def _seconds(text: object) -> int:
    """Return the seconds of a duration that is written in seconds, else None."""
    digits = str(text).removesuffix("s")
    return int(digits) if digits.isdigit() else 0


def queue_has_one_group(stack: Stack) -> Iterator[str]:
    """All resources are in one group, so that a pod gets all of them from nodes of one kind."""
    if stack.cloud.queue == "kueue" and len(queue_of(stack).spec.get("resourceGroups") or ()) != 1:
        yield "a pod's CPUs and GPUs could get quota on different nodes"


INVARIANTS: tuple[Invariant, ...] = (
    there_is_a_queue_where_one_is_asked_for,
    kueue_is_pinned_and_placed,
    kueue_looks_after_what_the_stack_runs,
    workloads_are_not_evicted_while_machines_start,
    every_workload_waits_in_the_queue,
    the_queue_is_for_ray_alone,
    queue_has_one_group,
    the_queue_admits_what_the_stack_runs,
    every_gpu_flavor_could_take_it,
    quotas_do_not_exceed_node_capacity,
    flavors_are_the_stacks_nodes,
    kueue_changes_nothing_that_was_asked_for,
    claimed_devices_have_a_quota,
    places_are_known,
    the_queue_goes_in_order,
)
