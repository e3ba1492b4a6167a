"""The physical names of a Google Cloud stack, all derived from the stack's name and stable for its life.

Every resource has a fixed name: it is found again after an interrupted run, and another stack's cannot be meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.gke.fabric import GVNIC_NETWORK, rdma_network
from infra.naming import fitted

ACCOUNT_ID_ROOM = 30
"""The most characters of a service account's id (Google Cloud IAM docs, service accounts; from memory, 2026-11)."""

PODS_RANGE = "pods"
SERVICES_RANGE = "services"


@dataclass(frozen=True)
class GkeNames:
    """Names of the stack's resources in its project. Node pools are named within their cluster, so have none here."""

    stack: str

    @property
    def cluster(self) -> str:
        """The GKE cluster, its network and its subnet; the stack's name as it is, at most 40 characters."""
        return self.stack

    @property
    def router(self) -> str:
        """The router of the cluster's network; its NAT has the same name."""
        return f"{self.stack}-nat"

    @property
    def webhooks_firewall(self) -> str:
        """What lets the control plane call pods that answer it, such as Kueue's."""
        return f"{self.stack}-webhooks"

    @property
    def gvnic(self) -> str:
        """The network of the second host NIC."""
        return f"{self.stack}-gvnic"

    @property
    def gvnic_subnet(self) -> str:
        """Its subnet, called after the Network object of the same NIC."""
        return f"{self.stack}-{GVNIC_NETWORK}"

    @property
    def gvnic_firewall(self) -> str:
        """What lets nodes talk to each other there."""
        return f"{self.stack}-gvnic-internal"

    @property
    def rdma(self) -> str:
        """The RoCE network."""
        return f"{self.stack}-rdma"

    def rdma_subnet(self, nic: int) -> str:
        """The subnet of an RDMA NIC, called after the Network object of the same NIC."""
        return f"{self.stack}-{rdma_network(nic)}"

    @property
    def node_account(self) -> str:
        """The id of the nodes' service account: the stack's name, cut and marked where it is too long."""
        return fitted(f"{self.stack}-nodes", ACCOUNT_ID_ROOM)

    @property
    def ray_cluster(self) -> str:
        """The RayCluster, or the RayJob or Indexed Job in its place."""
        return f"{self.stack}-ray"
