"""Names and tags of an AWS stack's resources, derived from the stack's name.

Names are fixed, so that a resource can be found after an interrupted run and is never confused with another stack's.
Resources that have a generated id instead (VPC, subnets) carry the stack's name as a tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.catalog.aws import NODE_GROUP_LABEL
from infra.naming import OWNER, STACK, shorten

if TYPE_CHECKING:
    # `infra.plan` needs no SDK.
    import pulumi

MAX_ROLE_NAME = 64
"""Characters of an IAM role's name (IAM docs, quotas; unverified, 2026-11)."""

GPU_GROUP = "gpu"
SYSTEM_GROUP = "system"
"""Names of the node groups, which are unique within their cluster."""

GPU_NODES = {NODE_GROUP_LABEL: GPU_GROUP}
"""Node selector of the GPU nodes in a cluster of the user's, which may have others with this machine."""
SYSTEM_NODES = {NODE_GROUP_LABEL: SYSTEM_GROUP}
"""Node selector of the CPU nodes."""


def log_group(stack: str) -> str:
    """Return the group into which EKS writes the logs of a stack's control plane (EKS docs, control plane logs)."""
    return f"/aws/eks/{stack}/cluster"


@dataclass(frozen=True)
class EksNames:
    """Names of a stack's resources in a region. The EKS cluster has the stack's own name, unless it is the user's.

    Args:
        existing: Name of the user's cluster; None for a cluster of the stack.
    """

    stack: str
    region: str
    owner: pulumi.Input[str] = ""
    existing: str | None = None

    @property
    def cluster(self) -> str:
        """Name of the EKS cluster."""
        return self.existing or self.stack

    def named(self, purpose: str) -> str:
        """Return the name of a resource, by its purpose in the stack."""
        return f"{self.stack}-{purpose}"

    def role(self, purpose: str) -> str:
        """Return the name of an IAM role. Roles are not regional, so the region is part of the name."""
        return shorten(f"{self.stack}-{self.region}-{purpose}", MAX_ROLE_NAME)

    def service(self, service: str) -> str:
        """Return the name under which a VPC endpoint finds an AWS service."""
        return f"com.amazonaws.{self.region}.{service}"

    def node_tags(self, name: str | None) -> dict[str, str]:
        """Return the tags of a group's machines: the stack, for the bill, and the name that the console shows.

        They have no owner: a change would be a new version of the launch template, which replaces the nodes.
        """
        return {STACK: self.stack, "Name": self.named(name) if name else self.stack}

    def tags(self, name: str | None = None) -> dict[str, pulumi.Input[str]]:
        """Return the tags of a resource: the stack, its owner, and the name that the console shows.

        Names are unique among the stack's resources of a kind: after a crash of the engine, `make up` finds a resource
        by these tags (`tools.recovery`).
        """
        return {**self.node_tags(name), OWNER: self.owner}
