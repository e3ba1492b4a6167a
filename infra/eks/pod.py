"""Pod requirements on EKS for GPUs and EFA devices, and the queue's arguments.

No pod is privileged, shares the host's network or mounts /dev/infiniband from the host, which breaks EFA on B200
(aws-do-eks PR #63). This module imports no SDK.
"""

from __future__ import annotations

from infra.catalog.aws import HOST_LABEL, INSTANCE_TYPE_LABEL, TOPOLOGY
from infra.catalog.fabrics import Variable
from infra.catalog.machines import EksMachine
from infra.eks.names import GPU_NODES, SYSTEM_NODES
from infra.fabric import GPU_TOLERATION, SHM_MOUNT, GpuPod, shared_memory, whole_node, with_fabric
from infra.kubernetes.pods import cpu_worker_resources, elastic
from infra.kubernetes.queue_args import Flavor, QueueArgs, queued_head
from infra.kubernetes.queue_objects import GPU_FLAVOR, TOPOLOGY_ANNOTATION
from infra.settings import EksSettings

SHM_GIB = 128

HEAD_ENVIRONMENT = (
    Variable(
        "NVIDIA_VISIBLE_DEVICES",
        "void",
        "CUDA images set it to `all`, which gives a pod that requests no GPU every GPU of its node",
        "awslabs/awsome-distributed-ai: slime raycluster, 95b939cd, 2026-07-23",
    ),
)
"""Variables of the head."""


def chosen_by_topology(settings: EksSettings) -> bool:
    """Return whether Kueue chooses nodes by topology: if all nodes stay up.

    Kueue considers existing nodes, so a flavor with a topology admits nothing while its node group is empty (kueue:
    pkg/cache/scheduler, TAS flavors, 0.19.2).
    """
    return settings.queue == "kueue" and settings.nodes.min == settings.nodes.max and not elastic(settings)


def topology(machine: EksMachine) -> tuple[str, ...]:
    """Return the topology labels of a machine's nodes, highest level first."""
    return (*TOPOLOGY[: machine.network_layers], HOST_LABEL)


def gpu_pod(settings: EksSettings, machine: EksMachine) -> GpuPod:
    """Return the requirements of a worker pod with the stack's fabric. Raises ValueError for an unsupported machine."""
    if machine.pod_cpus is None or machine.pod_memory_gib is None:
        raise ValueError(f"nodes.machine: {machine.name} is not supported: {machine.unsupported}")
    pod = GpuPod(
        # Preferred, and wider if a job does not fit. A flavor with a topology admits no pod that requests none.
        annotations={TOPOLOGY_ANNOTATION: topology(machine)[-2:][0]} if chosen_by_topology(settings) else {},
        node_selector={
            INSTANCE_TYPE_LABEL: machine.name,
            **({} if settings.own_cluster else GPU_NODES),
        },
        tolerations=(dict(GPU_TOLERATION),),
        resources=whole_node(machine.pod_cpus, machine.pod_memory_gib, machine.gpus),
        volumes=(shared_memory(min(SHM_GIB, machine.pod_memory_gib // 4)),),
        volume_mounts=(SHM_MOUNT,),
    )
    return with_fabric(pod, settings.fabric_row, nics=machine.nics, gpus=machine.gpus)


def queue_args(settings: EksSettings, pod: GpuPod) -> QueueArgs:
    """Return the arguments of the queue: one flavor for the GPU nodes. `pod` is the worker's.

    Workers already select the flavor's labels, which Kueue writes into the pods' template, so the template does not
    change. The quota of heads is what the CPU nodes have room for.
    """
    claim, by_topology = settings.fabric_row.claim, chosen_by_topology(settings)
    return QueueArgs(
        system_labels=SYSTEM_NODES,
        heads=settings.heads,
        head=queued_head(settings.ray, elastic=elastic(settings)),
        cpu_workers=settings.ray.cpu_workers,
        cpu_worker=cpu_worker_resources(settings.ray),
        flavors=(Flavor(name=GPU_FLAVOR, labels=pod.node_selector, topology=by_topology),),
        nodes=settings.nodes.max,
        teams=settings.teams,
        pod=pod,
        nics=settings.machine.nics if claim else 0,
        device_class=claim.device_class if claim else None,
        topology=topology(settings.machine) if by_topology else (),
        wait_s=settings.node_wait_s,
    )
