"""Access to the bucket of a stack. `infra.gke.pod` describes how pods mount it.

The bucket exists before the stack and outlives it: nothing here creates or deletes it.
"""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.catalog.names import NAMESPACE

ROLE = "roles/storage.objectUser"
"""Role that may change objects but not the bucket (GKE docs cloud-storage-fuse-csi, read 2026-08)."""


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
        opts = ResourceOptions(parent=self)
        self.grant = gcp.storage.BucketIAMMember(name, bucket=bucket, role=ROLE, member=member, opts=opts)
        self.register_outputs({})
