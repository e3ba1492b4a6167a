"""The bucket of a stack: who may use it, and how pods mount it.

The bucket exists before the stack and outlives it: nothing here creates or deletes it.
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.kubernetes.pods import NAMESPACE, SharedFolder

ROLE = "roles/storage.objectUser"
"""Role that may change objects but not the bucket (GKE docs cloud-storage-fuse-csi, read 2026-08)."""

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
    "file-cache:max-size-mb:-1",
)
"""Unlimited cache on a GPU node's local SSDs. The head has none: large reads would fill the boot disk of its node, and
the kubelet would evict it with every job (our conclusion from the tutorial's options, unverified, 2026-11)."""


class BucketAccess(pulumi.ComponentResource):
    """Grant on the bucket to the Kubernetes identity of the Ray pods, and to no other.

    Args:
        project_number: The project's number, by which members name it.
        workload_pool: The cluster's workload identity pool, as an output: it exists from a project's first cluster on.
        account: Kubernetes ServiceAccount of the pods.
    """

    def __init__(
        self,
        bucket: str,
        account: str,
        opts: ResourceOptions,
        *,
        project_number: pulumi.Input[str],
        workload_pool: pulumi.Input[str],
    ) -> None:
        name = f"bucket-{account}"
        super().__init__("rdma-ray:gke:BucketAccess", name, {}, opts)
        member = pulumi.Output.concat(
            *("principal://iam.googleapis.com/projects/", project_number, "/locations/global/workloadIdentityPools/"),
            *(workload_pool, f"/subject/ns/{NAMESPACE}/sa/{account}"),
        )
        own = ResourceOptions(parent=self)
        self.grant = gcp.storage.BucketIAMMember(name, bucket=bucket, role=ROLE, member=member, opts=own)
        self.register_outputs({})


def gcs_folder(bucket: str, mount_path: str) -> SharedFolder:
    """Return the bucket as a folder of pods, mounted by a GCS FUSE sidecar without limits, which GKE injects."""
    limits = {f"gke-gcsfuse/{resource}-limit": "0" for resource in ("cpu", "memory", "ephemeral-storage")}

    def volume(*options: str) -> dict[str, Any]:
        attributes = {
            "bucketName": bucket,
            "gcsfuseMetadataPrefetchOnMount": "true",
            "mountOptions": ",".join(options),
        }
        return {"csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}

    return SharedFolder(
        mount_path=mount_path,
        annotations={"gke-gcsfuse/volumes": "true", **limits},
        volume=volume(*MOUNT_OPTIONS, *FILE_CACHE),
        head_volume=volume(*MOUNT_OPTIONS),
    )
