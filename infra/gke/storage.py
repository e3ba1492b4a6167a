"""The bucket of a stack: who may use it, and how pods mount it.

The bucket exists beforehand and outlives the stack: nothing here makes or deletes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.kubernetes.shared_folder import SharedFolder

ROLE = "roles/storage.objectUser"
"""Reads, writes and deletes objects, and cannot change the bucket (GKE docs cloud-storage-fuse-csi, read 2026-08)."""

MOUNT_OPTIONS = (
    "implicit-dirs",
    "file-cache:enable-parallel-downloads:true",
    "file-cache:cache-file-for-range-read:true",
    "file-cache:max-size-mb:-1",
    "write:enable-streaming-writes:true",
    "metadata-cache:negative-ttl-secs:0",
    "read_ahead_kb=1024",
)
"""For checkpoints and training data: large sequential reads and writes (verl-on-gke tutorial, read 2026-08)."""


@dataclass(frozen=True, kw_only=True)
class BucketAccessArgs:
    """project: its id; account: namespace and name of the Kubernetes ServiceAccount that the pods run as."""

    bucket: str
    project: str
    namespace: str
    account: str


class BucketAccess(pulumi.ComponentResource):
    """The right of the Ray pods on the bucket, given to their Kubernetes identity and to nobody else."""

    def __init__(self, name: str, args: BucketAccessArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:BucketAccess", name, {}, opts)
        number = gcp.organizations.get_project_output(project_id=args.project).number
        gcp.storage.BucketIAMMember(
            name,
            bucket=args.bucket,
            role=ROLE,
            member=number.apply(partial(_principal, args=args)),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


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


def _principal(number: str, *, args: BucketAccessArgs) -> str:
    """The pods' identity as IAM writes it; `number` is the project's."""
    return (
        f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
        f"{args.project}.svc.id.goog/subject/ns/{args.namespace}/sa/{args.account}"
    )
