"""Point-to-point patterns (which rank sends to which) and the bandwidth limits of the links that they use.

Imports neither torch nor ray. A pattern is measured three times: each direction alone (`up`, `down`), which compares
with the line rate of the NICs, and both at once (`duplex`), which compares with twice the line rate. `up` goes from
the lower to the upper of two nodes, or of two ranks within a node. Ranks are consecutive per node, so local rank i of
every node uses the NIC of rail i. With more than two nodes, neighbors form pairs (0 and 1, 2 and 3, …); an odd last
node stays idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAIRS, SINGLE, RAIL, SHIFT, INCAST, INTRA = "pairs", "single", "rail", "shift", "incast", "intra"
PATTERNS = (PAIRS, SINGLE, RAIL, SHIFT, INCAST, INTRA)
"""In this order: local rank i with local rank i of the other node, all at once; one such pair; each such pair alone,
one after the other; local rank i with local rank i + 1 of the other node, all at once; all ranks of one node to one
rank of the other; neighbors within a node, for contrast."""
DIRECTIONS = ("up", "down", "duplex")


@dataclass(frozen=True, order=True)
class Flow:
    """Data that one rank sends to another."""

    sender: int
    receiver: int

    @property
    def up(self) -> bool:
        """Whether the flow goes to the higher rank."""
        return self.sender < self.receiver


@dataclass(frozen=True)
class Variant:
    """One measurement: a pattern, its rail if it has one, and a direction."""

    pattern: str
    direction: str
    rail: int | None = None

    @property
    def name(self) -> str:
        """The name in the result's rows: `pairs up`, `rail 3 duplex`."""
        return " ".join([self.pattern, *([str(self.rail)] if self.rail is not None else []), self.direction])

    @property
    def across(self) -> bool:
        """Whether the data crosses nodes."""
        return self.pattern != INTRA

    @classmethod
    def parse(cls, name: str) -> Variant:
        """Return the variant with this name; ValueError if there is none."""
        pattern, *rail, direction = name.split(" ") if name.count(" ") in (1, 2) else ("", "")
        known = pattern in PATTERNS and direction in DIRECTIONS and (pattern == RAIL) == bool(rail)
        if not known or not all(number.isdecimal() for number in rail):
            raise ValueError(f"{name!r} is not a point-to-point measurement: `PATTERN DIRECTION` or `rail N DIRECTION`")
        return cls(pattern, direction, int(rail[0]) if rail else None)


def possible(pattern: str, nodes: int, per_node: int) -> bool:
    """Return whether the pattern differs from the others on this many nodes of `per_node` ranks."""
    if pattern == INTRA:
        return per_node > 1
    # With one rank per node, a shift equals a pair and an incast has a single sender.
    return nodes > 1 and (per_node > 1 or pattern not in (SHIFT, INCAST))


def choose(names: Sequence[str], nodes: int, per_node: int) -> list[str]:
    """Return the requested patterns without duplicates; `all` means all possible ones, no name the basic one.

    ValueError names a pattern that does not exist or is not possible on these ranks.
    """
    for name in names:
        if name not in (*PATTERNS, "all"):
            raise ValueError(f"{name!r} is not a pattern: choose from all, {', '.join(PATTERNS)}")
        if name != "all" and not possible(name, nodes, per_node):
            needed = "at least 2 ranks per node" if nodes > 1 or name == INTRA else "at least 2 nodes"
            raise ValueError(f"pattern {name} needs {needed}: this run has {nodes} nodes with {per_node} ranks each")
    if not names:
        return [PAIRS if nodes > 1 else INTRA]
    if "all" in names:
        return [name for name in PATTERNS if possible(name, nodes, per_node)]
    return list(dict.fromkeys(names))


def variants(nodes: int, per_node: int) -> list[Variant]:
    """Return all possible measurements in order; each rail has its own."""
    return [
        Variant(pattern, direction, rail)
        for pattern in PATTERNS
        if possible(pattern, nodes, per_node)
        for rail in (range(per_node) if pattern == RAIL else [None])
        for direction in DIRECTIONS
    ]


def flows(variant: Variant, nodes: int, per_node: int) -> list[Flow]:
    """Return all concurrent flows, `up` before `down`."""
    if variant.pattern == INTRA:
        up = [Flow(r, r + 1) for n in range(nodes) for r in range(n * per_node, (n + 1) * per_node - 1, 2)]
    else:
        lower_nodes = range(0, nodes // 2 * 2 * per_node, 2 * per_node)  # the first rank of each
        up = [Flow(n + here, n + per_node + there) for n in lower_nodes for here, there in _local(variant, per_node)]
    if variant.pattern == INCAST:
        # The reverse of an incast is an incast into the other node, not one rank that sends to all.
        down = [Flow(flow.sender + per_node, flow.receiver - per_node) for flow in up]
    else:
        down = [Flow(flow.receiver, flow.sender) for flow in up]
    return {"up": up, "down": down, "duplex": up + down}[variant.direction]


def fan_in(variant: Variant, per_node: int) -> int:
    """Return the number of senders per receiver."""
    return per_node if variant.pattern == INCAST else 1


def _local(variant: Variant, per_node: int) -> list[tuple[int, int]]:
    """Return (local rank on the lower node, local rank on the upper node) of each pair."""
    if variant.pattern in (SINGLE, RAIL):
        rail = variant.rail or 0
        return [(rail, rail)]
    receivers = {SHIFT: [*range(1, per_node), 0], INCAST: [0] * per_node}
    return list(enumerate(receivers.get(variant.pattern, range(per_node))))


@dataclass(frozen=True)
class Limits:
    """Links of a machine type: `gbps_per_nic` in Gbit/s, `nvlink` in GB/s of one GPU, both in each direction."""

    machine: str
    gpus: int
    nics: int
    gbps_per_nic: float
    nvlink: float | None = None

    def of_gpus(self, gpus: int) -> float:
        """Return the GB/s that this many GPUs of a node can send, or receive, through the NICs next to them.

        Where GPUs share a NIC (p4d), the NICs are counted as if no two of these GPUs did: the limit may be too high,
        but never below what is possible.
        """
        return min(self.nics, gpus * max(1, self.nics // self.gpus)) * self.gbps_per_nic / 8


def limit_of(found: Sequence[Flow], limits: Limits | None, per_node: int) -> float | None:
    """Return the total GB/s limit of concurrent flows; None if it is unknown.

    Across nodes, the narrower side of each pair of nodes counts in each direction, such as the single receiver of an
    incast. Within a node the limit is NVLink: each GPU has one partner.
    """
    if limits is None:
        return None
    if any(flow.sender // per_node == flow.receiver // per_node for flow in found):
        return None if limits.nvlink is None else round(limits.nvlink * len(found), 3)
    sides: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for flow in found:
        senders, receivers = sides.setdefault((flow.sender // per_node, flow.receiver // per_node), (set(), set()))
        senders.add(flow.sender)
        receivers.add(flow.receiver)
    return round(sum(limits.of_gpus(min(len(senders), len(receivers))) for senders, receivers in sides.values()), 3)
