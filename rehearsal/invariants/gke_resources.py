"""Resources of a Google Cloud stack, selected from its graph."""

from __future__ import annotations

from infra.catalog.machines import GKE_CATALOG, GkeMachine
from infra.gke.pod import GVNIC_NETWORK, rdma_network
from rehearsal.graph import Node
from rehearsal.invariants.invariant import Stack, at

NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
PAIR = ("kubernetes:networking.gke.io/v1:GKENetworkParamSet", "kubernetes:networking.gke.io/v1:Network")


def own_networks(stack: Stack) -> bool:
    """Return whether the stack creates the additional networks itself."""
    return stack.gke.fabric != "managed-dranet"


def machine_of(stack: Stack) -> GkeMachine:
    """Return the machine of the GPU nodes."""
    return GKE_CATALOG[stack.gke.nodes.machine]


def roce_networks(stack: Stack) -> list[Node]:
    """Return the networks with an RDMA profile."""
    return [node for node in stack.of(NETWORK) if at(node, "networkProfile")]


def gvnic_networks(stack: Stack) -> list[Node]:
    """Return the networks other than the cluster's own and the RoCE one."""
    own = {str(at(cluster, "network")).rpartition("/")[2] for cluster in stack.of(CLUSTER)}
    return [node for node in stack.of(NETWORK) if node not in roce_networks(stack) and at(node, "name") not in own]


def subnets_of(stack: Stack, network: Node) -> list[Node]:
    """Return the subnets of a network."""
    return [node for node in stack.of(SUBNET) if network.urn in stack.graph.needs(node.urn)]


def nic_subnets(stack: Stack) -> list[Node]:
    """Return the subnets of the additional NICs in the order of the NICs."""
    names = [GVNIC_NETWORK, *(rdma_network(nic) for nic in range(machine_of(stack).nics))]
    found = [(name, node) for name in names for node in stack.of(SUBNET) if str(at(node, "name")).endswith(f"-{name}")]
    return [node for _, node in found]


def gpu_pools(stack: Stack) -> list[Node]:
    """Return the node pools with GPUs."""
    return [node for node in stack.of(POOL) if at(node, "nodeConfig.guestAccelerators")]


def system_pools(stack: Stack) -> list[Node]:
    """Return the node pools without GPUs."""
    return [node for node in stack.of(POOL) if not at(node, "nodeConfig.guestAccelerators")]
