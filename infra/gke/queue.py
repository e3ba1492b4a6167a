"""How the queue is shaped on Google Cloud: one flavor for the GPU nodes, or the reservation's and then the queued ones.

Pure: values for `infra.kubernetes`, which makes the objects.
"""

from __future__ import annotations

from infra.catalog.capacity import GKE_CAPACITIES, promised_s
from infra.catalog.machines import GkeMachine
from infra.gke import fabric as fabrics
from infra.gke.facts import FALLBACK_POOL, GPU_POOL, POOL_LABEL, SYSTEM_MAX_NODES, SYSTEM_POOL, TOPOLOGY
from infra.kubernetes.queue_facts import GPU_FLAVOR, QUEUED_FLAVOR, RESERVED_FLAVOR
from infra.kubernetes.queue_manifest import Admission, Flavor, QueueShape
from infra.settings import GkeSettings as Settings


def queue_shape(settings: Settings, machine: GkeMachine) -> QueueShape:
    """What the queue is shaped by.

    The head's quota is one head per CPU node, since one fills such a node beside what else runs there.
    """
    device_class = fabrics.DEVICE_CLASSES.get(str(settings.fabric))
    return QueueShape(
        system_labels={POOL_LABEL: SYSTEM_POOL},
        heads=SYSTEM_MAX_NODES,
        flavors=_flavors(settings),
        nodes=settings.nodes.max,
        pod=fabrics.gpu_pod(settings, machine),
        nics=machine.nics if device_class else 0,
        device_class=device_class,
        topology=TOPOLOGY if fabrics.chosen_by_place(settings) else (),
        # Queued machines are there when a workload is admitted.
        wait_s=promised_s("gke", *(way for way in _ways(settings) if not GKE_CAPACITIES[way].queued)),
    )


def admission(settings: Settings) -> Admission:
    """How the stack's workload is handed to Kueue. The time is passed on where a request for machines is made."""
    queued = any(GKE_CAPACITIES[way].queued for way in _ways(settings))
    hours = settings.nodes.max_run_hours
    return Admission(lent_s=3600 * hours if queued and hours else None)


def _ways(settings: Settings) -> list[str]:
    return [way for way in (settings.nodes.capacity, settings.nodes.fallback) if way is not None]


def _flavors(settings: Settings) -> tuple[Flavor, ...]:
    if settings.compute_class:
        # The class has its own order of pools; a pod that selects it may select no pool.
        return (Flavor(name=GPU_FLAVOR, labels={fabrics.COMPUTE_CLASS_LABEL: fabrics.COMPUTE_CLASS}),)
    if settings.nodes.fallback is None:
        queued = GKE_CAPACITIES[str(settings.nodes.capacity)].queued
        by_place = fabrics.chosen_by_place(settings)
        return (Flavor(name=GPU_FLAVOR, labels={POOL_LABEL: GPU_POOL}, queued=queued, topology=by_place),)
    return (
        Flavor(name=RESERVED_FLAVOR, labels={POOL_LABEL: GPU_POOL}),
        Flavor(name=QUEUED_FLAVOR, labels={POOL_LABEL: FALLBACK_POOL}, queued=True),
    )
