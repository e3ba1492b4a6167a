"""The address plan: every IPv4 range of a stack, cut from one base range, disjoint by construction.

Each range is a fixed share of the base range, so no range moves when nodes are added. If the nodes do not fit, the
error names the smallest base range that holds them. This module uses no cloud API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Network
from typing import TypeVar

CPU_NODES = 3
"""CPU nodes of a stack, if it sets no other maximum."""
EXTRA_CPU_NODES = 2
"""CPU nodes of a GKE plan besides those: the surge node, and the node with which GKE creates the cluster."""
POD_PREFIX_PER_NODE = 24
"""GKE gives a node of up to 110 pods twice as many addresses, a /24 (GKE docs flexible-pod-cidr, read 2026-11)."""
GKE_RESERVED = 4
"""Addresses of a subnet that Google Cloud keeps (Google Cloud VPC docs, subnets; checked 2026-11)."""
ADDRESSES_PER_GPU_NODE = 64
"""Four prefixes of 16: a p5 runs at most 51 pods on its one IP card (karpenter designs/efa-for-static-capacity)."""
ADDRESSES_PER_CPU_NODE = 32
"""Two prefixes of 16: the CNI keeps one more than its pods need (`WARM_PREFIX_TARGET`, infra/eks/addons.py)."""
CONTROL_PLANE_ADDRESSES = 16
"""Addresses of a private subnet that EKS may take (EKS docs, network-reqs: at least 6, better 16; unverified,
2026-11)."""
AWS_RESERVED = 5
"""Addresses of a subnet that AWS keeps (Amazon VPC docs, subnet CIDR blocks; checked 2026-11)."""
LARGEST_VPC = 16
"""Shortest prefix of a VPC (Amazon VPC docs, VPC CIDR blocks; checked 2026-11)."""
SMALLEST_EKS_PRIVATE = 25
"""Longest prefix for control plane interfaces, CPU nodes and internal load balancers of one zone: our choice."""
CONTROL_PLANE = 28
"""Prefix of a private GKE cluster's control plane (GKE docs private-clusters; unverified, 2026-11)."""
LARGEST_SERVICES = 16
"""Shortest prefix of a GKE cluster's Services (GKE docs alias-ips, secondary ranges; unverified, 2026-11)."""
SMALLEST_SUBNET = 30
"""Longest prefix that leaves a subnet of Google Cloud an address."""


class BaseRangeError(ValueError):
    """The base range is too small for the nodes, or its size is not allowed. The message names a size that works."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


@dataclass(frozen=True)
class Range:
    """Address range with a description of its capacity."""

    name: str
    network: IPv4Network
    room: str


def nodes_of_pods(pods: IPv4Network) -> int:
    """Return the number of GKE nodes whose pods a range has room for."""
    return 2 ** (POD_PREFIX_PER_NODE - pods.prefixlen) if pods.prefixlen <= POD_PREFIX_PER_NODE else 0


@dataclass(frozen=True, kw_only=True)
class GkeAddresses:
    """The ranges of a GKE stack. `rdma` has one subnet per RDMA NIC, in the order of the NICs.

    With managed DRANET, GKE makes the networks of all additional NICs, in its own ranges: `rdma` is empty, and
    `gvnic` is not used.
    """

    pods: IPv4Network
    nodes: IPv4Network
    services: IPv4Network
    gvnic: IPv4Network
    control_plane: IPv4Network
    rdma: tuple[IPv4Network, ...]
    cpu_nodes: int = CPU_NODES

    @property
    def max_gpu_nodes(self) -> int:
        """Maximum number of GPU nodes that every range has room for, in addition to the CPU nodes."""
        cpu_nodes = self.cpu_nodes + EXTRA_CPU_NODES
        pods = nodes_of_pods(self.pods)
        nics = [self.rdma[0].num_addresses - GKE_RESERVED] if self.rdma else []
        hosts = self.nodes.num_addresses - GKE_RESERVED
        return max(0, min(pods - cpu_nodes, hosts - cpu_nodes, *nics))

    def ranges(self) -> Iterator[Range]:
        """Yield every range that the stack makes, with its room, in address order."""
        per_node = f"a /{POD_PREFIX_PER_NODE} per node"
        yield Range("pods", self.pods, f"{nodes_of_pods(self.pods)} nodes, {per_node}")
        yield Range("nodes", self.nodes, f"{self.nodes.num_addresses - GKE_RESERVED} nodes")
        yield Range("services", self.services, f"{self.services.num_addresses} Services")
        if self.rdma:
            yield Range("gvnic", self.gvnic, f"{self.gvnic.num_addresses - GKE_RESERVED} nodes, one address each")
        yield Range("control-plane", self.control_plane, "one control plane")
        for number, network in enumerate(self.rdma):
            room = f"NIC {number} of {network.num_addresses - GKE_RESERVED} nodes"
            yield Range(f"rdma-{number}", network, room)


@dataclass(frozen=True, kw_only=True)
class EksAddresses:
    """The ranges of an EKS stack. `private` and `public` have one subnet in each of the control plane's two zones;
    without NAT there is no public one."""

    base: IPv4Network
    gpu: IPv4Network
    private: tuple[IPv4Network, IPv4Network]
    public: tuple[IPv4Network, ...]
    cpu_nodes: int = CPU_NODES

    @property
    def max_gpu_nodes(self) -> int:
        """Maximum number of GPU nodes that the range has room for; 0 if the CPU nodes do not fit."""
        private = self.private[0].num_addresses - AWS_RESERVED - CONTROL_PLANE_ADDRESSES
        if private < self.cpu_nodes * ADDRESSES_PER_CPU_NODE:
            return 0
        return max(0, (self.gpu.num_addresses - AWS_RESERVED) // ADDRESSES_PER_GPU_NODE)

    def ranges(self) -> Iterator[Range]:
        """Yield every range that the stack makes, with its room, in address order."""
        yield Range("gpu", self.gpu, f"{self.max_gpu_nodes} GPU nodes, {ADDRESSES_PER_GPU_NODE} addresses each")
        for number, network in enumerate(self.private):
            yield Range(f"private-{number}", network, f"{network.num_addresses - AWS_RESERVED} addresses, CPU nodes")
        for number, network in enumerate(self.public):
            yield Range(f"public-{number}", network, f"{network.num_addresses - AWS_RESERVED} addresses, NAT")


@cache
def gke_addresses(base: IPv4Network, nodes: int, rdma_nics: int, cpu_nodes: int = CPU_NODES) -> GkeAddresses:
    """Return the plan of a GKE stack with at most `nodes` GPU nodes, with networks for `rdma_nics` RDMA NICs of each.

    Half of the base range goes to pods, a sixteenth each to nodes, Services, the second host NIC and the control plane
    (which leaves most of its share free for later), and a quarter to the RDMA NICs, in equal parts.
    Raises `BaseRangeError`.
    """
    return _cut(base, nodes, cpu_nodes, lambda base: _cut_gke(base, rdma_nics), 0)


@cache
def eks_addresses(base: IPv4Network, nodes: int, cpu_nodes: int = CPU_NODES, *, public: bool = True) -> EksAddresses:
    """Return the plan of an EKS stack with at most `nodes` GPU nodes, and `public` subnets for NAT.

    Half of the base range goes to GPU nodes, an eighth to each private and a sixteenth to each public subnet; an eighth
    stays free for later. Raises `BaseRangeError`.
    """
    if base.prefixlen < LARGEST_VPC:
        raise BaseRangeError(
            f"A VPC has at most 65536 addresses; AWS rejects one of {base.num_addresses}.",
            f"choose a /16 within it, such as {next(base.subnets(new_prefix=LARGEST_VPC))}",
        )
    return _cut(base, nodes, cpu_nodes, lambda base: _cut_eks(base, public=public), LARGEST_VPC)


A = TypeVar("A", GkeAddresses, EksAddresses)


def _cut(base: IPv4Network, nodes: int, cpu_nodes: int, cut: Callable[[IPv4Network], A | None], largest: int) -> A:
    """Return the plan. Raises `BaseRangeError` with the smallest range that holds the nodes, if one does."""
    fix = "lower nodes.max: no range that this cloud accepts holds that many"
    for prefix in range(base.prefixlen, largest - 1, -1):
        wider = base.supernet(new_prefix=prefix)
        plan = cut(wider)
        if plan and (plan := replace(plan, cpu_nodes=cpu_nodes)).max_gpu_nodes >= nodes:
            if wider == base:
                return plan
            fix = f"give network.baseRange a /{prefix} or larger, for example {wider}"
            break
    raise BaseRangeError(
        f"{base} has {base.num_addresses} addresses, too few for {nodes} GPU nodes with their pods and interfaces, and "
        "for the CPU nodes; pods or nodes would get no address later, when the range can no longer change.",
        fix,
    )


def _cut_gke(base: IPv4Network, rdma_nics: int) -> GkeAddresses | None:
    """Return the plan; None if a range would be smaller than Google Cloud allows."""
    rdma = 2 + (rdma_nics - 1).bit_length() if rdma_nics else 0
    if base.prefixlen + rdma > SMALLEST_SUBNET or base.prefixlen + 4 > CONTROL_PLANE:
        return None
    shares = _shares(base, 1, 4, 4, 4, 4, *[rdma] * rdma_nics)
    pods, nodes, services, gvnic, last = (next(shares) for _ in range(5))
    plane = next(last.subnets(new_prefix=CONTROL_PLANE))
    services = next(services.subnets(new_prefix=max(services.prefixlen, LARGEST_SERVICES)))
    return GkeAddresses(pods=pods, nodes=nodes, services=services, gvnic=gvnic, control_plane=plane, rdma=tuple(shares))


def _cut_eks(base: IPv4Network, *, public: bool) -> EksAddresses | None:
    """Return the plan; None if a private subnet would be too small."""
    if base.prefixlen + 3 > SMALLEST_EKS_PRIVATE:
        return None
    gpu, *private, one, other = _shares(base, 1, 3, 3, 4, 4)
    return EksAddresses(base=base, gpu=gpu, private=(private[0], private[1]), public=(one, other) if public else ())


def _shares(base: IPv4Network, *halvings: int) -> Iterator[IPv4Network]:
    """Yield 1/2**n of the base range for each n. The ranges are aligned, because their sizes never increase."""
    start = int(base.network_address)
    for halving in halvings:
        share = IPv4Network((start, base.prefixlen + halving))
        start += share.num_addresses
        yield share
