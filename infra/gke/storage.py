"""The bucket of a stack: who may use it. How pods mount it is `infra.gke.ray`.

The bucket exists beforehand and outlives the stack: nothing here makes or deletes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

ROLE = "roles/storage.objectUser"
"""Reads, writes and deletes objects, and cannot change the bucket (GKE docs cloud-storage-fuse-csi, read 2026-08)."""


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


def _principal(number: str, *, args: BucketAccessArgs) -> str:
    """The pods' identity as IAM writes it; `number` is the project's."""
    return (
        f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
        f"{args.project}.svc.id.goog/subject/ns/{args.namespace}/sa/{args.account}"
    )
