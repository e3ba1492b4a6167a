"""Ray on a cluster that the user has: the arguments of a stack's workload. Imports no Pulumi."""

from __future__ import annotations

from infra.catalog.fabrics import FABRICS
from infra.fabric import GPU_TOLERATION, SHM_MOUNT, GpuPod, shared_memory, whole_node, with_fabric
from infra.kubernetes.pods import RayArgs, SharedFolder
from infra.settings import KubernetesSettings
from infra.settings.common import pairs
from infra.settings.existing import KubernetesNodes, OtherNodes

SHM_SHARE = 8
"""A worker's /dev/shm, whose use counts as memory of the pod, is at most one of so many parts of it (our choice)."""


def ray_args(settings: KubernetesSettings, name: str) -> RayArgs:
    """Return the arguments of the stack's RayCluster, RayJob, RayService or Indexed Job."""
    nodes, storage, account = settings.nodes, settings.storage, settings.ray.service_account
    other = settings.other_nodes
    return RayArgs(
        settings=settings,
        name=name,
        pod=with_fabric(_whole(nodes), settings.fabric_row, nics=nodes.nics, gpus=nodes.gpus),
        other_pod=with_fabric(_whole(other), FABRICS["socket"], nics=None, gpus=other.gpus) if other.max else None,
        other_max=other.max,
        head_selector=dict(pairs(nodes.head_selector)),
        head_tolerations=_tolerations(nodes.head_tolerations),
        accounts=(account, account) if account else (f"{name}-head", f"{name}-worker"),
        existing_accounts=account is not None,
        users_cluster=True,
        topology=nodes.topology,
        folder=claimed(storage.claim, storage.mount_path) if storage.claim else None,
    )


def _whole(nodes: KubernetesNodes | OtherNodes) -> GpuPod:
    """Return the requirements of a worker pod without a fabric."""
    return GpuPod(
        annotations={},
        node_selector=dict(pairs(nodes.selector)),
        tolerations=(*([dict(GPU_TOLERATION)] if nodes.gpus else ()), *_tolerations(nodes.tolerations)),
        resources=whole_node(nodes.cpus, nodes.memory_gib, nodes.gpus),
        volumes=(shared_memory(max(1, nodes.memory_gib // SHM_SHARE)),),
        volume_mounts=(SHM_MOUNT,),
    )


def claimed(claim: str, mount_path: str) -> SharedFolder:
    """Return an existing claim as a folder of pods."""
    return SharedFolder(mount_path=mount_path, annotations={}, volume={"persistentVolumeClaim": {"claimName": claim}})


def _tolerations(entries: tuple[str, ...]) -> list[dict[str, str]]:
    """Return tolerations of taints KEY, of any value, and KEY=VALUE; of every effect."""
    return [
        {"key": key, "operator": "Equal", "value": value} if value else {"key": key, "operator": "Exists"}
        for key, value in pairs(entries)
    ]
