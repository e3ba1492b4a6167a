"""What a stack runs Ray as, shaped by its settings and by what its cloud decides. Pure.

The clouds differ in where the head runs, what a worker's pod needs and how the folder is mounted; the rest is said here
once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.capacity import promised_s
from infra.fabric import GpuPod, Variable
from infra.kubernetes.indexed_job_manifest import JobShape
from infra.kubernetes.ray_job_manifest import KEPT_IN_A_QUEUE_S, KEPT_S, RayJobShape, WorkloadShape, job_labels
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, WORKER_ACCOUNT, RayShape
from infra.kubernetes.shared_folder import SharedFolder
from infra.settings import CloudSettings as Settings


@dataclass(frozen=True, kw_only=True)
class CloudSide:
    """What the cloud decides about a stack's workload.

    name: of the workload, and the stem of all names beside it; a stack has one workload. head_selector: nodes without
    GPUs; head_environment: what the head needs there beside Ray's own. pod: what a worker needs. folder: the shared
    one, None without.
    """

    name: str
    head_selector: Mapping[str, str]
    head_environment: Sequence[Variable] = ()
    pod: GpuPod
    folder: SharedFolder | None


def workload_shape(settings: Settings, side: CloudSide) -> WorkloadShape:
    """What the stack runs Ray as, by its mode."""
    if settings.ray.mode == "indexed-job":
        return job_shape(settings, side)
    maker = ray_job_shape if settings.ray.mode == "job" else ray_shape
    return maker(settings, side)


def ray_shape(settings: Settings, side: CloudSide) -> RayShape:
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
        head_selector=side.head_selector,
        head_environment=side.head_environment,
        account=HEAD_ACCOUNT,
        worker_account=WORKER_ACCOUNT,
        token_secret=f"{side.name}-token",
        pod=side.pod,
        folder=side.folder,
        labels=job_labels(side.name) if as_job else {},
    )


def ray_job_shape(settings: Settings, side: CloudSide) -> RayJobShape:
    """What a RayJob is shaped by."""
    return RayJobShape(
        name=side.name,
        entrypoint=str(settings.ray.entrypoint),
        kept_s=KEPT_S if settings.queue == "none" else KEPT_IN_A_QUEUE_S,
        ray=ray_shape(settings, side),
    )


def job_shape(settings: Settings, side: CloudSide) -> JobShape:
    """What an Indexed Job is shaped by."""
    return JobShape(
        name=side.name,
        image=str(settings.ray.image),
        nodes=settings.ray.max_workers,
        entrypoint=str(settings.ray.entrypoint),
        wait_s=wait_s(settings),
        account=WORKER_ACCOUNT,
        token_secret=f"{side.name}-token",
        scripts=f"{side.name}-scripts",
        pod=side.pod,
        folder=side.folder,
    )


def wait_s(settings: Settings) -> int:
    """Seconds that a machine may take: as the slower of the ways to get one promises."""
    return promised_s(settings.target, *settings.nodes.capacities)
