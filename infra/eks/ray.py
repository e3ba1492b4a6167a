"""How Ray is shaped on AWS: where the head runs, how long a worker may wait, how the shared folder is mounted.

Pure: values for `infra.kubernetes`, which makes the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.capacity import EKS_CAPACITIES
from infra.eks import fabric as fabrics
from infra.eks.names import SYSTEM_GROUP, EksNames
from infra.kubernetes.indexed_job_manifest import JobShape
from infra.kubernetes.ray_job_manifest import RayJobShape, WorkloadShape, job_labels
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, WORKER_ACCOUNT, RayShape
from infra.kubernetes.shared_folder import SharedFolder
from infra.machines import EksMachine
from infra.settings import Settings

SYSTEM_NODES = {"eks.amazonaws.com/nodegroup": SYSTEM_GROUP}
"""EKS labels every node with its group's name (EKS docs, managed node groups; from memory, 2026-11)."""


def workload_shape(
    settings: Settings, machine: EksMachine, names: EksNames, folder: SharedFolder | None
) -> WorkloadShape:
    """What the stack runs Ray as, by its mode."""
    if settings.ray.mode == "indexed-job":
        return job_shape(settings, machine, names, folder)
    maker = ray_job_shape if settings.ray.mode == "job" else ray_shape
    return maker(settings, machine, names, folder)


def ray_shape(settings: Settings, machine: EksMachine, names: EksNames, folder: SharedFolder | None) -> RayShape:
    """What the RayCluster is shaped by, the one that stays or the one of a RayJob."""
    as_job = settings.ray.mode == "job"
    return RayShape(
        version=settings.ray.version,
        image=str(settings.ray.image),
        fewest=settings.ray.min_workers,
        most=settings.ray.max_workers,
        autoscaled=not as_job and settings.queue == "none",
        idle_s=60 * (settings.ray.idle_minutes or 0),
        wait_s=wait_s(settings),
        head_selector=SYSTEM_NODES,
        head_environment=fabrics.HEAD_ENVIRONMENT,
        account=HEAD_ACCOUNT,
        worker_account=WORKER_ACCOUNT,
        token_secret=f"{names.ray_cluster}-token",
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
        labels=job_labels(names.ray_cluster) if as_job else {},
    )


def ray_job_shape(settings: Settings, machine: EksMachine, names: EksNames, folder: SharedFolder | None) -> RayJobShape:
    """What a RayJob is shaped by. It has the RayCluster's name: a stack has one of the two."""
    return RayJobShape(
        name=names.ray_cluster,
        entrypoint=str(settings.ray.entrypoint),
        ray=ray_shape(settings, machine, names, folder),
    )


def job_shape(settings: Settings, machine: EksMachine, names: EksNames, folder: SharedFolder | None) -> JobShape:
    """What an Indexed Job is shaped by. It has the RayCluster's names: a stack has one of the two."""
    return JobShape(
        name=names.ray_cluster,
        image=str(settings.ray.image),
        nodes=settings.ray.max_workers,
        entrypoint=str(settings.ray.entrypoint),
        wait_s=wait_s(settings),
        account=WORKER_ACCOUNT,
        token_secret=f"{names.ray_cluster}-token",
        scripts=f"{names.ray_cluster}-scripts",
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
    )


def wait_s(settings: Settings) -> int:
    """Seconds that a machine may take, as the way to get it promises."""
    return 3600 * EKS_CAPACITIES[str(settings.nodes.capacity)].wait_hours


def fsx_folder(mount_path: str, claim: Mapping[str, Any]) -> SharedFolder:
    """The file system as a folder of a pod: by a claim, which is made in the pods' namespace.

    Its root belongs to root, and Ray's images run as another user. The head opens it before it starts, for everybody
    and with the sticky bit: whoever made a file is the one who may delete it.
    """
    return SharedFolder(
        mount_path=mount_path,
        annotations={},
        volume={"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}},
        objects=(claim,),
        prepare=("chmod", "1777", mount_path),
    )
