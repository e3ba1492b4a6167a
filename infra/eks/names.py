"""The physical names of an AWS stack, all derived from the stack's name and stable for its life.

Every resource that can have a name has a fixed one: it is found again after an interrupted run, and another stack's
cannot be meant. What AWS gives an id instead (VPC, subnets) carries the stack's name as a tag.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.naming import fitted

ROLE_ROOM = 64
"""The most characters of an IAM role's name (IAM docs, quotas; from memory, 2026-11)."""

GPU_GROUP = "gpu"
SYSTEM_GROUP = "system"


@dataclass(frozen=True)
class EksNames:
    """Names of the stack's resources. Node groups are named within their cluster, so have none here."""

    stack: str
    region: str

    @property
    def cluster(self) -> str:
        """The EKS cluster: the stack's name as it is."""
        return self.stack

    @property
    def secrets_key(self) -> str:
        """The alias of the key that encrypts the cluster's Secrets."""
        return f"alias/{self.stack}-secrets"

    @property
    def control_plane_logs(self) -> str:
        """The log group that EKS writes to; its name is not ours to choose (EKS docs, control plane logs)."""
        return f"/aws/eks/{self.stack}/cluster"

    @property
    def placement_group(self) -> str:
        """The placement group of the GPU nodes."""
        return f"{self.stack}-{GPU_GROUP}"

    @property
    def ray_cluster(self) -> str:
        """The RayCluster, or the RayJob or Indexed Job in its place."""
        return f"{self.stack}-ray"

    @property
    def shared_volume(self) -> str:
        """The PersistentVolume of the shared folder, which has no namespace."""
        return f"{self.stack}-shared"

    def template(self, group: str) -> str:
        """The launch template of a node group."""
        return f"{self.stack}-{group}"

    def security_group(self, purpose: str) -> str:
        """A security group."""
        return f"{self.stack}-{purpose}"

    def role(self, purpose: str) -> str:
        """An IAM role. Roles belong to the account, not to a region, so the region is in the name."""
        return fitted(f"{self.stack}-{self.region}-{purpose}", ROLE_ROOM)

    def tags(self, name: str | None = None) -> dict[str, str]:
        """The tags of a resource: whose it is, for the bill, and its name where the console shows one.

        No two resources of one kind in a stack have the same name: by both tags `make up` finds what an engine that
        died had made (`tools.aws_tags`).
        """
        return {"rdma-ray-stack": self.stack, "Name": f"{self.stack}-{name}" if name else self.stack}
