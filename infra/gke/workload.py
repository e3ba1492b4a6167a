"""Ray on GKE: the arguments of a stack's workload and its shared folder, a bucket. Imports no Pulumi."""

from __future__ import annotations

from typing import Any

from infra.catalog.capacity import GKE_CAPACITIES
from infra.catalog.gcp import TOPOLOGY
from infra.gke.pod import (
    FILE_CACHE_GIB,
    SIDECAR_GIB,
    SYSTEM_NODES,
    disk_environment,
    gpu_pod,
    notice_s,
    queue_args,
)
from infra.kubernetes.pods import RayArgs, SharedFolder
from infra.settings import GkeSettings

METRICS_NAMESPACE = "gmp-system"
"""Namespace of the collectors of GKE's managed Prometheus (GKE docs managed-prometheus; unverified, 2026-11)."""

MOUNT_OPTIONS = (
    "implicit-dirs",
    # Without them only root can use a mount (mode 755), and Ray's images have another user (docs/troubleshooting.md of
    # GoogleCloudPlatform/gcs-fuse-csi-driver, read 2026-11); 777 suits the user of any image.
    "file-mode=777",
    "dir-mode=777",
    "write:enable-streaming-writes:true",
    "metadata-cache:negative-ttl-secs:0",
    "read_ahead_kb=1024",
)
"""For checkpoints and training data: large sequential reads and writes (verl-on-gke tutorial, read 2026-08)."""

FILE_CACHE = (
    "file-cache:enable-parallel-downloads:true",
    "file-cache:cache-file-for-range-read:true",
    f"file-cache:max-size-mb:{FILE_CACHE_GIB * 1024}",
)
"""Cache on a GPU node's local SSDs. The head has none: large reads would fill the boot disk of its node, and
the kubelet would evict it with every job (our conclusion from the tutorial's options, unverified, 2026-11)."""


def ray_args(settings: GkeSettings, name: str) -> RayArgs:
    """Return the arguments of the stack's RayCluster, RayJob or Indexed Job, without resource-dependent parts."""
    storage, pod = settings.storage, gpu_pod(settings, settings.machine)
    return RayArgs(
        settings=settings,
        name=name,
        pod=pod,
        head_selector=SYSTEM_NODES,
        worker_environment=disk_environment(settings.machine, bucket=storage.bucket is not None),
        notice_s=notice_s(settings),
        metrics_namespace=METRICS_NAMESPACE,
        pod_monitoring=True,
        node_hours=node_hours(settings),
        topology=TOPOLOGY[:-1],
        folder=gcs_folder(storage.bucket, storage.mount_path, cached=bool(settings.machine.local_ssds))
        if storage.bucket
        else None,
        queue=queue_args(settings, pod) if settings.queue == "kueue" else None,
    )


def node_hours(settings: GkeSettings) -> int | None:
    """Return the lifetime of the workers' nodes if all have it: a pod cannot tell the node pool that it runs in."""
    flex = all(GKE_CAPACITIES[kind].flex_start for kind in settings.nodes.capacities)
    return settings.nodes.max_run_hours if flex else None


def gcs_folder(bucket: str, mount_path: str, *, cached: bool) -> SharedFolder:
    """Return the bucket as a folder of pods, mounted by a GCS FUSE sidecar, which GKE injects.

    It is `cached` on workers' local disks, if there are any. Its limits are off, but that of the workers' disk, which
    is part of the pod's. It is a limit and no request, so the pod still fits its node (GKE docs
    cloud-storage-fuse-csi-driver-sidecar, read 2026-11).
    """
    limits = {f"gke-gcsfuse/{resource}-limit": "0" for resource in ("cpu", "memory")}
    disk, request = "gke-gcsfuse/ephemeral-storage-limit", {"gke-gcsfuse/ephemeral-storage-request": "5Gi"}

    def volume(*options: str) -> dict[str, Any]:
        attributes = {
            "bucketName": bucket,
            "gcsfuseMetadataPrefetchOnMount": "true",
            "mountOptions": ",".join(options),
        }
        return {"csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}

    return SharedFolder(
        mount_path=mount_path,
        annotations={"gke-gcsfuse/volumes": "true", **limits, disk: f"{SIDECAR_GIB}Gi" if cached else "0", **request},
        head_annotations={disk: "0"},
        volume=volume(*MOUNT_OPTIONS, *(FILE_CACHE if cached else ())),
        head_volume=volume(*MOUNT_OPTIONS),
    )
