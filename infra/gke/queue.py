"""Arguments of the queue on Google Cloud: one flavor of GPU nodes, or two: reserved nodes, then queued nodes."""

from __future__ import annotations

from infra.catalog.capacity import GKE_CAPACITIES, longest_wait_s
from infra.catalog.gcp import FALLBACK_POOL, GPU_POOL, POOL_LABEL, SYSTEM_MAX_NODES, TOPOLOGY
from infra.catalog.machines import GkeMachine
from infra.gke.pod import COMPUTE_CLASS, COMPUTE_CLASS_LABEL, DEVICE_CLASSES, SYSTEM_NODES, chosen_by_topology, gpu_pod
from infra.kubernetes.queue_objects import GPU_FLAVOR, QUEUED_FLAVOR, RESERVED_FLAVOR, Flavor, QueueArgs
from infra.settings import GkeSettings


def queue_args(settings: GkeSettings, machine: GkeMachine) -> QueueArgs:
    """Return the arguments of the queue.

    The quota of heads is one per CPU node: a head and the other pods there fill a node.
    """
    nodes = settings.nodes
    device_class = DEVICE_CLASSES.get(settings.fabric)
    queued = any(GKE_CAPACITIES[kind].queued for kind in nodes.capacities)
    return QueueArgs(
        system_labels=SYSTEM_NODES,
        heads=SYSTEM_MAX_NODES,
        flavors=_flavors(settings),
        nodes=nodes.max,
        pod=gpu_pod(settings, machine),
        nics=machine.nics if device_class else 0,
        device_class=device_class,
        topology=TOPOLOGY if chosen_by_topology(settings) else (),
        # Queued nodes exist when a workload is admitted.
        wait_s=longest_wait_s("gke", *(kind for kind in nodes.capacities if not GKE_CAPACITIES[kind].queued)),
        max_run_s=3600 * nodes.max_run_hours if queued and nodes.max_run_hours else None,
    )


def _flavors(settings: GkeSettings) -> tuple[Flavor, ...]:
    if settings.compute_class:
        # The class orders the pools; a pod that selects it may select no pool.
        return (Flavor(name=GPU_FLAVOR, labels={COMPUTE_CLASS_LABEL: COMPUTE_CLASS}),)
    if settings.nodes.fallback is None:
        queued = GKE_CAPACITIES[settings.nodes.capacity].queued
        topology = chosen_by_topology(settings)
        return (Flavor(name=GPU_FLAVOR, labels={POOL_LABEL: GPU_POOL}, queued=queued, topology=topology),)
    return (
        Flavor(name=RESERVED_FLAVOR, labels={POOL_LABEL: GPU_POOL}),
        Flavor(name=QUEUED_FLAVOR, labels={POOL_LABEL: FALLBACK_POOL}, queued=True),
    )
