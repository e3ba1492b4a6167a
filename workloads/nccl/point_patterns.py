"""Who sends to whom in a point-to-point measurement. Pure: neither torch nor ray.

A pattern is measured three times: each direction on its own (`up`, `down`), which compares with the line rate of the
NICs, and both at once (`duplex`), which compares with twice that. `up` goes from the lower of two nodes to the upper
one, or from the lower of two ranks within a node. Ranks are consecutive per node, so that local rank i of every node
uses the NIC of rail i. With more than two nodes neighbours meet: 0 and 1, 2 and 3, …; an odd last node stays idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAIRS, SINGLE, RAIL, SHIFT, INCAST, INTRA = "pairs", "single", "rail", "shift", "incast", "intra"
PATTERNS = {
    PAIRS: "local rank i of one node with local rank i of the other, all at once",
    SINGLE: "one such pair alone: no more than its own NICs can carry",
    RAIL: "one rail after the other: local rank i alone, for every i",
    SHIFT: "local rank i with local rank i + 1 of the other node, all at once",
    INCAST: "all ranks of one node to one rank of the other",
    INTRA: "neighbours within a node, for contrast",
}
DIRECTIONS = ("up", "down", "duplex")


@dataclass(frozen=True, order=True)
class Flow:
    """Data that one rank has for another."""

    sender: int
    receiver: int


@dataclass(frozen=True)
class Variant:
    """One measurement: a pattern, the rail where it has one, and a direction."""

    pattern: str
    direction: str
    rail: int | None = None

    @property
    def name(self) -> str:
        """`pairs up`, `rail 3 duplex`: what the result's rows are called."""
        return " ".join([self.pattern, *([str(self.rail)] if self.rail is not None else []), self.direction])

    @property
    def across(self) -> bool:
        """Whether its data goes from node to node."""
        return self.pattern != INTRA

    @classmethod
    def parse(cls, name: str) -> Variant:
        """The variant of that name; ValueError where there is none."""
        pattern, *rail, direction = name.split(" ") if name.count(" ") in (1, 2) else ("", "")
        known = pattern in PATTERNS and direction in DIRECTIONS and (pattern == RAIL) == bool(rail)
        if not known or not all(number.isdecimal() for number in rail):
            raise ValueError(f"{name!r} is no point-to-point measurement: `PATTERN DIRECTION` or `rail N DIRECTION`")
        return cls(pattern, direction, int(rail[0]) if rail else None)


def possible(pattern: str, nodes: int, per_node: int) -> bool:
    """Whether the pattern has a meaning of its own on so many nodes of `per_node` ranks."""
    if pattern == INTRA:
        return per_node > 1
    # With one rank per node a shift is a pair, and an incast has one sender.
    return nodes > 1 and (per_node > 1 or pattern not in (SHIFT, INCAST))


def choose(names: Sequence[str], nodes: int, per_node: int) -> list[str]:
    """The patterns that `names` ask for, each once; without names the least that says something.

    `all` stands for those that are possible. ValueError names the one that does not exist or has no meaning here.
    """
    for name in names:
        if name not in (*PATTERNS, "all"):
            raise ValueError(f"{name!r} is no pattern: choose from all, {', '.join(PATTERNS)}")
        if name != "all" and not possible(name, nodes, per_node):
            wanted = "at least 2 ranks per node" if nodes > 1 or name == INTRA else "at least 2 nodes"
            raise ValueError(f"pattern {name} needs {wanted}: this run has {nodes} nodes with {per_node} ranks each")
    if not names:
        return [PAIRS if nodes > 1 else INTRA]
    if "all" in names:
        return [name for name in PATTERNS if possible(name, nodes, per_node)]
    return list(dict.fromkeys(names))


def variants(nodes: int, per_node: int, patterns: Sequence[str] = tuple(PATTERNS)) -> list[Variant]:
    """The measurements of these patterns as far as they are possible, in order; each rail is one of its own."""
    return [
        Variant(pattern, direction, rail)
        for pattern in patterns
        if possible(pattern, nodes, per_node)
        for rail in (range(per_node) if pattern == RAIL else [None])
        for direction in DIRECTIONS
    ]


def flows(variant: Variant, nodes: int, per_node: int) -> list[Flow]:
    """Everything that is sent at once, `up` before `down`."""
    up, down = _both_ways(variant, nodes, per_node)
    return {"up": up, "down": down, "duplex": up + down}[variant.direction]


def goes_up(flow: Flow) -> bool:
    """Which of a duplex measurement's two directions a flow belongs to."""
    return flow.sender < flow.receiver


def fan_in(variant: Variant, per_node: int) -> int:
    """How many ranks share one receiver."""
    return per_node if variant.pattern == INCAST else 1


def _both_ways(variant: Variant, nodes: int, per_node: int) -> tuple[list[Flow], list[Flow]]:
    if variant.pattern == INTRA:
        pairs = [
            (node * per_node + local, node * per_node + local + 1)
            for node in range(nodes)
            for local in range(0, per_node - 1, 2)
        ]
        return [Flow(a, b) for a, b in pairs], [Flow(b, a) for a, b in pairs]
    up, down = [], []
    for lower in range(0, nodes - 1, 2):
        here, there = lower * per_node, (lower + 1) * per_node
        for sender, receiver in _locals(variant, per_node):
            up.append(Flow(here + sender, there + receiver))
            if variant.pattern == INCAST:
                # The other way round is an incast, too, and not one rank that sends to all.
                down.append(Flow(there + sender, here + receiver))
            else:
                down.append(Flow(there + receiver, here + sender))
    return up, down


def _locals(variant: Variant, per_node: int) -> list[tuple[int, int]]:
    """(local rank on the lower node, local rank on the upper one) of each pair."""
    match variant.pattern:
        case "pairs":
            return [(i, i) for i in range(per_node)]
        case "single":
            return [(0, 0)]
        case "rail":
            assert variant.rail is not None
            return [(variant.rail, variant.rail)]
        case "shift":
            return [(i, (i + 1) % per_node) for i in range(per_node)]
        case "incast":
            return [(i, 0) for i in range(per_node)]
        case _:
            raise ValueError(f"{variant.pattern!r} is no pattern across nodes")
