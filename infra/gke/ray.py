"""How Ray is shaped on Google Cloud: where the head runs, what a worker needs, how the bucket is mounted.

Pure: values for `infra.kubernetes`, which makes the resources.
"""

from __future__ import annotations

from infra.catalog.machines import GkeMachine
from infra.gke import fabric as fabrics
from infra.gke.facts import POOL_LABEL, SYSTEM_POOL
from infra.gke.names import GkeNames
from infra.kubernetes.shared_folder import SharedFolder
from infra.kubernetes.workload_shape import CloudSide
from infra.settings import GkeSettings as Settings

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


def cloud_side(settings: Settings, machine: GkeMachine, names: GkeNames, folder: SharedFolder | None) -> CloudSide:
    """What this cloud decides about the stack's workload."""
    return CloudSide(
        name=names.ray_cluster,
        head_selector=SYSTEM_NODES,
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
    )


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
