"""Location, resource names, owner and minimum GKE version of a Google Cloud stack.

Every resource has a fixed name that is derived from the stack's name: the next run finds it after an interruption, and
no other stack of the same state uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.catalog.gcp import version_key
from infra.naming import OWNER, STACK, shorten

ACCOUNT_ID_ROOM = 30
"""Maximum length of a service account's id (Google Cloud IAM docs, service accounts; unverified, 2026-11)."""

PODS_RANGE = "pods"
SERVICES_RANGE = "services"


@dataclass(frozen=True)
class Site:
    """Project and zone of a stack, and the names of its resources. Node pools are named in `infra.catalog.gcp`."""

    stack: str
    project: str = ""
    zone: str = ""
    owner: pulumi.Input[str] = ""

    @property
    def region(self) -> str:
        """Region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of cluster and machines, for the bill."""
        return {STACK: self.stack}

    @property
    def description(self) -> pulumi.Output[str]:
        """Description with the owner, for resources that have no labels and do not depend on one that names it."""
        return pulumi.Output.concat(f"rdma-ray stack {self.stack}, {OWNER} ", self.owner)

    def named(self, purpose: str) -> str:
        """Return the name of a resource. Cluster, its network and its subnet have the stack's name."""
        return f"{self.stack}-{purpose}"

    @property
    def node_account(self) -> str:
        """Id of the nodes' service account."""
        return shorten(self.named("nodes"), ACCOUNT_ID_ROOM)


class NoVersionError(ValueError):
    """The location's release channel has no GKE version that supports the machine."""


def control_plane_version(default: str, latest: str, minimum: str, *, location: str, channel: str) -> str | None:
    """Return None if the channel's default is new enough, so that GKE uses it, otherwise the channel's latest version.

    The default is not recorded: a cluster recreated after a year would request a version that is no longer offered.
    The location's other versions need not be in the channel (GoogleCloudPlatform/cluster-toolkit: gke-cluster requests
    the channel's latest as well, 10470803, 2026-06-25).

    Raises:
        NoVersionError: The channel's latest version is too old.
    """
    if version_key(default) >= version_key(minimum):
        return None
    if version_key(latest) < version_key(minimum):
        raise NoVersionError(
            f"location: {location} offers GKE up to {latest} in channel {channel}, and the stack needs {minimum} or "
            "later (nodes.machine, nodes.capacity, fabric, cluster.minVersion). Choose another zone or cluster.channel"
        )
    return latest
