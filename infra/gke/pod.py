"""Pod requirements on GKE for GPUs and RDMA NICs, and the queue's arguments.

No pod is privileged, shares the host's network or mounts device files from the host. This module imports no SDK.
"""

from __future__ import annotations

import json

from infra.catalog.capacity import CRITICAL_PODS_S, GKE_CAPACITIES, longest_wait_s
from infra.catalog.fabrics import GIB_FOLDER, GKE_NCCL, Variable
from infra.catalog.gcp import (
    ACCELERATOR_LABEL,
    FALLBACK_POOL,
    GPU_POOL,
    LOCAL_SSD_GB,
    POOL_LABEL,
    SYSTEM_POOL,
    TOPOLOGY,
)
from infra.catalog.machines import GkeMachine
from infra.catalog.names import GPU, WORKER_TAINT, rdma_network
from infra.fabric import GPU_TOLERATION, SHM_MOUNT, GpuPod, shared_memory, whole_node, with_fabric
from infra.kubernetes.pods import NOTICE_S, cpu_worker_resources, elastic
from infra.kubernetes.queue_args import Flavor, QueueArgs, queued_head
from infra.kubernetes.queue_objects import GPU_FLAVOR, QUEUED_FLAVOR, RESERVED_FLAVOR, TOPOLOGY_ANNOTATION
from infra.settings import GkeSettings

SYSTEM_NODES = {POOL_LABEL: SYSTEM_POOL}
"""Labels of the nodes without GPUs."""

COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
COMPUTE_CLASS = "rdma"
"""Name of the stack's ComputeClass: may start with neither gke nor autopilot (GKE docs, 2026-04-13)."""

GVNIC_NETWORK = "gvnic-1"
"""Network object of the second host NIC; `rdma_network` names the others."""

SHM_GIB = 250
SCRATCH_GIB = 1000
"""Disk of a worker, GiB: objects that Ray spills, its logs, and files of the user. A pod that stores more than its
limits in sum, in any container or emptyDir, is evicted (kubernetes 1.36: pkg/kubelet/eviction)."""
FILE_CACHE_GIB = 500
"""Bound of GCS FUSE's cache, which drops the least recently read files (GCS FUSE docs, file cache, read 2026-11)."""
SIDECAR_GIB = 600
"""Disk of GCS FUSE's sidecar, GiB: its cache, and files that cannot be written as a stream."""
BOOT_SHARE = 0.8
"""Use of a boot disk at which Ray ends spilling, before the kubelet evicts pods at 90 % (GKE docs, ephemeral storage;
unverified, 2026-11)."""
SPARE_GIB = 200
"""Part of a worker's disk that Ray leaves to files of the user, GiB, which nothing but the kubelet bounds."""


def worker_pools(settings: GkeSettings) -> dict[str, str]:
    """Return the kind of capacity of each node pool of the workers, by its name, in the order of the capacities."""
    return dict(zip((GPU_POOL, FALLBACK_POOL), settings.nodes.capacities, strict=False))


def chosen_by_topology(settings: GkeSettings) -> bool:
    """Return whether Kueue chooses nodes by topology: for a reservation whose nodes all stay up.

    Kueue considers existing nodes (kueue: pkg/cache/scheduler, TAS flavors, 0.19.2), so a flavor with a topology admits
    nothing while its pool is empty, and flex-start and spot nodes may lack the labels (GKE docs, topology-aware
    scheduling, read 2026-08). Nodes of one queued request are close to each other anyway. (For these, Kueue can assign
    the topology after the nodes exist; whether GKE labels them is not known.) An elastic cluster has no topology.
    """
    nodes = settings.nodes
    alone = nodes.fallback is None and not settings.compute_class
    fixed = nodes.capacity == "reservation" and nodes.min == nodes.max and not elastic(settings)
    return settings.queue == "kueue" and alone and fixed


def gpu_pod(settings: GkeSettings, machine: GkeMachine) -> GpuPod:
    """Return the requirements of a worker pod with the stack's fabric. Raises ValueError for an unsupported machine."""
    if machine.pod_cpus is None or machine.pod_memory_gib is None:
        raise ValueError(f"nodes.machine: {machine.name} is not supported: {machine.unsupported}")
    selector = {ACCELERATOR_LABEL: machine.accelerator} if machine.gpus else {POOL_LABEL: GPU_POOL}
    # None for cloud.google.com/impending-node-termination, whose effect is NoSchedule (arguments of GKE's
    # maintenance-handler, seen 2026): GKE deletes the pods of such a node, and no new one should start there.
    tolerations: list[dict[str, str]] = [{**GPU_TOLERATION, "key": worker_taint(machine)}]
    if settings.compute_class:
        # GKE rejects pods that select a ComputeClass and an accelerator.
        selector = {COMPUTE_CLASS_LABEL: COMPUTE_CLASS}
        tolerations.append(_exactly(COMPUTE_CLASS_LABEL, COMPUTE_CLASS))
    elif settings.queue == "kueue":
        # The labels that Kueue would write into the template (`queue_args`), so nothing changes. Of two pools
        # Kueue chooses one, which a selector here would prevent.
        selector = {**selector, POOL_LABEL: GPU_POOL} if settings.nodes.fallback is None else {}
    elif not settings.own_cluster:
        # Other pools of the user's cluster may have this machine, too.
        selector[POOL_LABEL] = GPU_POOL
    if "flex-start-queued" in settings.nodes.capacities:
        tolerations.append(_exactly("cloud.google.com/gke-queued", "true"))
    resources = whole_node(
        machine.pod_cpus, machine.pod_memory_gib, machine.gpus, **{"ephemeral-storage": f"{scratch_gib(settings)}Gi"}
    )
    fabric = settings.fabric_row
    # Preferred, not required. A flavor with a topology admits no pod that requests none.
    placed = {TOPOLOGY_ANNOTATION: TOPOLOGY[0]} if chosen_by_topology(settings) else {}
    pod = GpuPod(
        annotations={**placed, **(_interfaces(machine) if fabric.interfaces else {})},
        node_selector=selector,
        tolerations=tuple(tolerations),
        resources=resources,
        volumes=(shared_memory(min(SHM_GIB, machine.pod_memory_gib // 4)),),
        volume_mounts=(SHM_MOUNT,),
    )
    return with_fabric(pod, fabric, nics=machine.nics, gpus=machine.gpus)


def _interfaces(machine: GkeMachine) -> dict[str, str]:
    """Return the annotations that list the pod's interfaces; GKE's webhook adds the matching resources.

    eth0 is the pod network, eth1 the second host NIC, then one interface per RDMA NIC in order.
    """
    networks = ["default", GVNIC_NETWORK, *(rdma_network(nic) for nic in range(machine.nics))]
    interfaces = [{"interfaceName": f"eth{index}", "network": network} for index, network in enumerate(networks)]
    return {"networking.gke.io/default-interface": "eth0", "networking.gke.io/interfaces": json.dumps(interfaces)}


def worker_taint(machine: GkeMachine) -> str:
    """Return the key of the taint that keeps other pods away from the workers' nodes."""
    return GPU if machine.gpus else WORKER_TAINT


def _exactly(key: str, value: str) -> dict[str, str]:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def scripted(settings: GkeSettings) -> tuple[Variable, ...]:
    """Return the variables that the fabric's script sets on this machine type."""
    row, tuner = settings.fabric_row, settings.machine.nccl_tuner
    if not row.scripted or tuner is None:
        return row.scripted
    path, why = f"{GIB_FOLDER}/configs/{tuner}", "algorithms measured for this machine type"
    return (*row.scripted, Variable("NCCL_TUNER_CONFIG_PATH", path, why, GKE_NCCL))


def scratch_gib(settings: GkeSettings) -> int:
    """Return the disk of a worker, GiB: on the boot disk, the part that GKE, images and other pods leave."""
    return SCRATCH_GIB if settings.machine.local_ssds else settings.nodes.boot_disk_gib * 2 // 5


def disk_environment(machine: GkeMachine, *, bucket: bool) -> tuple[Variable, ...]:
    """Return the variable that ends Ray's spilling while the rest still fits into the pod's limits of its disk.

    Ray looks at the use of the whole disk, which is the pod's, its images' and no other pod's. So what spills ends
    early, whatever the cache holds.
    """
    if machine.local_ssds is None:
        return ()
    most = SCRATCH_GIB - SPARE_GIB + (FILE_CACHE_GIB if bucket else 0)
    share = most * 2**30 / (machine.local_ssds * LOCAL_SSD_GB * 10**9) if machine.local_ssds else BOOT_SHARE
    name, why = "RAY_local_fs_capacity_threshold", "Ray's default, 95 % of the disk, is beyond the limit of the pod"
    return (Variable(name, f"{share:.3f}", why, "Ray 2.60: src/ray/common/ray_config_def.h"),)


def notice_s(settings: GkeSettings) -> int:
    """Return the seconds that pods have after SIGTERM, on the nodes of that kind of capacity which has the fewest."""
    kinds = (GKE_CAPACITIES[kind] for kind in settings.nodes.capacities)
    return min([NOTICE_S, *(kind.shutdown_s - CRITICAL_PODS_S for kind in kinds if kind.shutdown_s)])


def queue_args(settings: GkeSettings, pod: GpuPod) -> QueueArgs:
    """Return the arguments of the queue; `pod` is the worker's.

    The quota of heads is what the CPU nodes have room for.
    """
    nodes = settings.nodes
    claim = settings.fabric_row.claim
    queued = any(GKE_CAPACITIES[kind].queued for kind in nodes.capacities)
    return QueueArgs(
        system_labels=SYSTEM_NODES,
        heads=settings.heads,
        head=queued_head(settings.ray, elastic=elastic(settings)),
        cpu_workers=settings.ray.cpu_workers,
        cpu_worker=cpu_worker_resources(settings.ray),
        flavors=_flavors(settings),
        nodes=nodes.max,
        teams=settings.teams,
        pod=pod,
        nics=settings.machine.nics if claim else 0,
        device_class=claim.device_class if claim else None,
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
