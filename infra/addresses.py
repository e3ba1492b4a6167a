"""The address plan: every IPv4 range of a stack, cut from one base range, disjoint by construction.

Each range is a fixed share of the base range, so nothing moves when nodes are added: more nodes either fit, or the base
range is too small and this module says how large it has to be. It knows no cloud resource, only numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network

from infra.problems import Problem

RDMA_SUBNETS = 8
"""RDMA NICs of the supported Google Cloud machines, a subnet each (GKE docs gke-ai-hypercompute-custom, 2026-04-06)."""

SYSTEM_NODES = 8
"""CPU nodes that a plan keeps room for: system pods, operators, the Ray head, and one surge node each."""

POD_PREFIX_PER_NODE = 24
"""GKE gives a node of up to 110 pods twice as many addresses, a /24 (GKE docs flexible-pod-cidr, read 2026-11)."""

GKE_RESERVED = 4
"""Addresses of a subnet that Google Cloud keeps (Google Cloud VPC docs, subnets; checked 2026-11)."""

ADDRESSES_PER_GPU_NODE = 64
"""Four prefixes of 16: a p5 runs at most 51 pods on its one card for IP (karpenter designs/efa-for-static-capacity)."""

AWS_RESERVED = 5
"""Addresses of a subnet that AWS keeps (Amazon VPC docs, subnet CIDR blocks; checked 2026-11)."""

VPC_PREFIXES = range(16, 29)
"""Prefix lengths that a VPC may have (Amazon VPC docs, VPC CIDR blocks; checked 2026-11)."""

SMALLEST_EKS_PRIVATE = 25
"""Control plane interfaces, CPU nodes and internal load balancers of one zone want at least a /25: our choice."""

SMALLEST_GKE_CONTROL_PLANE = 28
"""The control plane of a private GKE cluster takes exactly a /28 (GKE docs private-clusters; from memory, 2026-11)."""


class BaseRangeError(ValueError):
    """The base range does not hold the nodes, or no network may be as large; `problem` says which size works."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.says)
        self.problem = problem


@dataclass(frozen=True)
class Range:
    """One range and the room in it, in words."""

    name: str
    network: IPv4Network
    room: str


@dataclass(frozen=True, kw_only=True)
class GkeAddresses:
    """The ranges of a GKE stack. `rdma` has one subnet per RDMA NIC, in the order of the NICs."""

    base: IPv4Network
    pods: IPv4Network
    nodes: IPv4Network
    services: IPv4Network
    gvnic: IPv4Network
    control_plane: IPv4Network
    rdma: tuple[IPv4Network, ...]

    @property
    def max_gpu_nodes(self) -> int:
        """The most GPU nodes that fit beside the CPU nodes, in every range."""
        pods = 2 ** (POD_PREFIX_PER_NODE - self.pods.prefixlen) if self.pods.prefixlen <= POD_PREFIX_PER_NODE else 0
        nics = self.rdma[0].num_addresses - GKE_RESERVED
        hosts = self.nodes.num_addresses - GKE_RESERVED
        return max(0, min(pods - SYSTEM_NODES, hosts - SYSTEM_NODES, nics))

    def ranges(self) -> Iterator[Range]:
        """Every range with its room, in address order."""
        per_node = f"a /{POD_PREFIX_PER_NODE} per node"
        yield Range("pods", self.pods, f"{2 ** max(0, POD_PREFIX_PER_NODE - self.pods.prefixlen)} nodes, {per_node}")
        yield Range("nodes", self.nodes, f"{self.nodes.num_addresses - GKE_RESERVED} nodes")
        yield Range("services", self.services, f"{self.services.num_addresses} Services")
        yield Range("gvnic", self.gvnic, f"{self.gvnic.num_addresses - GKE_RESERVED} nodes, one address each")
        yield Range("control-plane", self.control_plane, "one control plane")
        for number, network in enumerate(self.rdma):
            room = f"NIC {number} of {network.num_addresses - GKE_RESERVED} nodes"
            yield Range(f"rdma-{number}", network, room)


@dataclass(frozen=True, kw_only=True)
class EksAddresses:
    """The ranges of an EKS stack. `private` and `public` have one subnet in each of the control plane's two zones."""

    base: IPv4Network
    gpu: IPv4Network
    private: tuple[IPv4Network, IPv4Network]
    public: tuple[IPv4Network, IPv4Network]

    @property
    def max_gpu_nodes(self) -> int:
        """The most GPU nodes that fit."""
        return max(0, (self.gpu.num_addresses - AWS_RESERVED) // ADDRESSES_PER_GPU_NODE)

    def ranges(self) -> Iterator[Range]:
        """Every range with its room, in address order."""
        yield Range("gpu", self.gpu, f"{self.max_gpu_nodes} GPU nodes, {ADDRESSES_PER_GPU_NODE} addresses each")
        for number, network in enumerate(self.private):
            yield Range(f"private-{number}", network, f"{network.num_addresses - AWS_RESERVED} addresses, CPU nodes")
        for number, network in enumerate(self.public):
            yield Range(f"public-{number}", network, f"{network.num_addresses - AWS_RESERVED} addresses, NAT")


@cache
def gke_addresses(base: IPv4Network, nodes: int) -> GkeAddresses:
    """The plan of a GKE stack with at most `nodes` GPU nodes.

    Half of the base range goes to pods, a sixteenth each to nodes, Services, the second host NIC and the control plane
    (which leaves most of its share free for later), a thirty-second to each RDMA NIC.
    Raises `BaseRangeError`.
    """
    for prefix in range(base.prefixlen, -1, -1):
        if _gke_holds(prefix, nodes):
            if prefix == base.prefixlen:
                return _cut_gke(base)
            raise _too_small(base, nodes, prefix)
    raise _too_small(base, nodes, None)


@cache
def eks_addresses(base: IPv4Network, nodes: int) -> EksAddresses:
    """The plan of an EKS stack with at most `nodes` GPU nodes.

    Half of the base range goes to GPU nodes, an eighth to each private and a sixteenth to each public subnet; an eighth
    stays free for later. Raises `BaseRangeError`.
    """
    if base.prefixlen < VPC_PREFIXES.start:
        raise BaseRangeError(
            Problem(
                settings=("network.baseRange",),
                values=(str(base),),
                says=f"A VPC has at most 65536 addresses; AWS refuses to make one of {base.num_addresses}.",
                fix=f"take a /16 of it, such as {next(base.subnets(new_prefix=VPC_PREFIXES.start))}",
                source="Amazon VPC docs, VPC CIDR blocks; checked 2026-11",
            )
        )
    for prefix in range(base.prefixlen, VPC_PREFIXES.start - 1, -1):
        if _eks_holds(prefix, nodes):
            if prefix == base.prefixlen:
                return _cut_eks(base)
            raise _too_small(base, nodes, prefix)
    raise _too_small(base, nodes, None)


@cache
def _gke_holds(prefix: int, nodes: int) -> bool:
    if prefix + 5 > 30 or prefix + 4 > SMALLEST_GKE_CONTROL_PLANE:
        return False
    return _cut_gke(IPv4Network((0, prefix))).max_gpu_nodes >= nodes


@cache
def _eks_holds(prefix: int, nodes: int) -> bool:
    if prefix + 3 > SMALLEST_EKS_PRIVATE:
        return False
    return _cut_eks(IPv4Network((0, prefix))).max_gpu_nodes >= nodes


def _cut_gke(base: IPv4Network) -> GkeAddresses:
    cut = _Cutter(base)
    return GkeAddresses(
        base=base,
        pods=cut.share(1),
        nodes=cut.share(4),
        services=cut.share(4),
        gvnic=cut.share(4),
        control_plane=next(cut.share(4).subnets(new_prefix=SMALLEST_GKE_CONTROL_PLANE)),
        rdma=tuple(cut.share(5) for _ in range(RDMA_SUBNETS)),
    )


def _cut_eks(base: IPv4Network) -> EksAddresses:
    cut = _Cutter(base)
    return EksAddresses(
        base=base,
        gpu=cut.share(1),
        private=(cut.share(3), cut.share(3)),
        public=(cut.share(4), cut.share(4)),
    )


class _Cutter:
    """Hands out shares of a range, largest first, each aligned because none is larger than the one before."""

    def __init__(self, base: IPv4Network) -> None:
        self._base = base
        self._next = int(base.network_address)

    def share(self, halvings: int) -> IPv4Network:
        """The next 1/2**halvings of the base range."""
        network = IPv4Network((self._next, self._base.prefixlen + halvings))
        self._next += network.num_addresses
        return network


def _too_small(base: IPv4Network, nodes: int, prefix: int | None) -> BaseRangeError:
    if prefix is None:
        fix = "lower nodes.max: no range that this cloud accepts holds as many"
    else:
        fix = f"give network.baseRange a /{prefix} or larger, for example {base.supernet(new_prefix=prefix)}"
    return BaseRangeError(
        Problem(
            settings=("network.baseRange", "nodes.max"),
            values=(str(base), str(nodes)),
            says=f"{base} has {base.num_addresses} addresses, too few for {nodes} GPU nodes with their pods, NICs and "
            "room for the system; pods or nodes would find no address later, when it can no longer be changed.",
            fix=fix,
            source="the address plan of rdma-ray (infra/addresses.py), 2026-11",
        )
    )
