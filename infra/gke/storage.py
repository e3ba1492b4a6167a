"""The bucket of a stack: who may use it. How pods mount it is `infra.gke.ray`.

The bucket exists beforehand and outlives the stack: nothing here makes or deletes one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

ROLE = "roles/storage.objectUser"
"""Reads, writes and deletes objects, and cannot change the bucket (GKE docs cloud-storage-fuse-csi, read 2026-08)."""


@dataclass(frozen=True, kw_only=True)
class BucketAccessArgs:
    """What the right is made from.

    project: its id. workload_pool: the cluster's, as the cluster says it: it exists from a project's first cluster on.
    namespace, account: those of the Kubernetes ServiceAccount that the pods run as.
    """

    bucket: str
    project: str
    workload_pool: pulumi.Input[str]
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
            member=pulumi.Output.all(number, args.workload_pool, args.namespace, args.account).apply(_principal),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _principal(values: list[str]) -> str:
    """The pods' identity as IAM writes it, from project number, workload pool, namespace and ServiceAccount."""
    number, pool, namespace, account = values
    return (
        f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
        f"{pool}/subject/ns/{namespace}/sa/{account}"
    )
