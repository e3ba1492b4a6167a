"""How Ray is shaped on Google Cloud: where the head runs, how long a worker may wait, how the bucket is mounted.

Pure: values for `infra.kubernetes`, which makes the resources.
"""

from __future__ import annotations

from infra.capacity import GKE_CAPACITIES
from infra.gke import fabric as fabrics
from infra.gke.facts import POOL_LABEL, SYSTEM_POOL
from infra.gke.names import GkeNames
from infra.kubernetes.indexed_job_manifest import JobShape
from infra.kubernetes.ray_job_manifest import RayJobShape, WorkloadShape, job_labels
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, WORKER_ACCOUNT, RayShape
from infra.kubernetes.shared_folder import SharedFolder
from infra.machines import GkeMachine
from infra.settings import Settings

SYSTEM_NODES = {POOL_LABEL: SYSTEM_POOL}

MOUNT_OPTIONS = (
    "implicit-dirs",
    # Without them a mount is root's alone (mode 755), and Ray's images have another user (docs/troubleshooting.md of
    # GoogleCloudPlatform/gcs-fuse-csi-driver, read 2026-11); 777 fits any user's image.
    "file-mode=777",
    "dir-mode=777",
    "file-cache:enable-parallel-downloads:true",
    "file-cache:cache-file-for-range-read:true",
    "file-cache:max-size-mb:-1",
    "write:enable-streaming-writes:true",
    "metadata-cache:negative-ttl-secs:0",
    "read_ahead_kb=1024",
)
"""For checkpoints and training data: large sequential reads and writes (verl-on-gke tutorial, read 2026-08)."""


def workload_shape(
    settings: Settings, machine: GkeMachine, names: GkeNames, folder: SharedFolder | None
) -> WorkloadShape:
    """What the stack runs Ray as, by its mode."""
    if settings.ray.mode == "indexed-job":
        return job_shape(settings, machine, names, folder)
    maker = ray_job_shape if settings.ray.mode == "job" else ray_shape
    return maker(settings, machine, names, folder)


def ray_shape(settings: Settings, machine: GkeMachine, names: GkeNames, folder: SharedFolder | None) -> RayShape:
    """What the RayCluster is shaped by, the one that stays or the one of a RayJob."""
    as_job = settings.ray.mode == "job"
    return RayShape(
        version=settings.ray.version,
        image=str(settings.ray.image),
        fewest=settings.ray.min_workers,
        most=settings.ray.max_workers,
        autoscaled=not as_job and settings.queue == "none",
        idle_s=60 * (settings.ray.idle_minutes or 0),
        wait_s=_wait_s(settings),
        head_selector=SYSTEM_NODES,
        account=HEAD_ACCOUNT,
        worker_account=WORKER_ACCOUNT,
        token_secret=f"{names.ray_cluster}-token",
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
        labels=job_labels(names.ray_cluster) if as_job else {},
    )


def ray_job_shape(settings: Settings, machine: GkeMachine, names: GkeNames, folder: SharedFolder | None) -> RayJobShape:
    """What a RayJob is shaped by. It has the RayCluster's name: a stack has one of the two."""
    return RayJobShape(
        name=names.ray_cluster,
        entrypoint=str(settings.ray.entrypoint),
        ray=ray_shape(settings, machine, names, folder),
    )


def job_shape(settings: Settings, machine: GkeMachine, names: GkeNames, folder: SharedFolder | None) -> JobShape:
    """What an Indexed Job is shaped by. It has the RayCluster's names: a stack has one of the two."""
    return JobShape(
        name=names.ray_cluster,
        image=str(settings.ray.image),
        nodes=settings.ray.max_workers,
        entrypoint=str(settings.ray.entrypoint),
        wait_s=_wait_s(settings),
        account=WORKER_ACCOUNT,
        token_secret=f"{names.ray_cluster}-token",
        scripts=f"{names.ray_cluster}-scripts",
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
    )


def _wait_s(settings: Settings) -> int:
    """As long as the slower of the ways to get machines may take."""
    ways = [way for way in (settings.nodes.capacity, settings.nodes.fallback) if way is not None]
    return 3600 * max(GKE_CAPACITIES[way].wait_hours for way in ways)


def gcs_folder(bucket: str, mount_path: str) -> SharedFolder:
    """The bucket as a folder of a pod, by GCS FUSE: a sidecar without limits, which GKE adds for the annotations."""
    return SharedFolder(
        mount_path=mount_path,
        annotations={
            "gke-gcsfuse/volumes": "true",
            "gke-gcsfuse/cpu-limit": "0",
            "gke-gcsfuse/memory-limit": "0",
            "gke-gcsfuse/ephemeral-storage-limit": "0",
        },
        volume={
            "csi": {
                "driver": "gcsfuse.csi.storage.gke.io",
                "volumeAttributes": {
                    "bucketName": bucket,
                    "gcsfuseMetadataPrefetchOnMount": "true",
                    "mountOptions": ",".join(MOUNT_OPTIONS),
                },
            }
        },
    )
