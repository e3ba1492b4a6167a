"""Measured operations: which rank sends to which, and how many pieces. `workloads.nccl.operations` runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workloads.nccl.point_patterns import Variant, fan_in, flows, variants

ALL_RANKS = -1  # destination of one piece that all ranks receive
ROOT = 0
WINDOW = 2
"""Parts of a p2p message, all in flight before the first wait. Otherwise each message would wait for the launch of the
next; nccl-tests and param use the same kind of window."""


@dataclass(frozen=True)
class RankPosition:
    """Position of a rank. Ranks are consecutive per node."""

    rank: int
    world: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.world // self.per_node


Ranks = Callable[[RankPosition], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class BenchKind:
    """A measured operation, for any place, size and type.

    Args:
        op: Name, a key of units.BUSBW_FACTORS.
        algorithm: The torch.distributed call; the library below it selects its own algorithm.
        destinations: Receiver of each piece that a rank sends.
        sources: Sender of each piece that a rank receives; of a sum, the positions of the pieces in it.
        pieces: Number of pieces that the row's size includes.
        to_all: Whether all receivers get the same data.
        in_place: Whether one buffer is both sent and received.
        measured: Pattern and direction of p2p.
    """

    op: str
    algorithm: str
    destinations: Ranks
    sources: Ranks
    pieces: Callable[[RankPosition], int] = lambda _place: 1
    to_all: bool = False
    in_place: bool = False
    measured: Variant | None = None

    @property
    def variant(self) -> str | None:
        return self.measured.name if self.measured else None


def everyone(place: RankPosition) -> range:
    """Return all ranks."""
    return range(place.world)


def only(rank: int) -> Ranks:
    """Return a function of one rank, the same for every place."""
    return lambda _place: [rank]


def at_root(ranks: Ranks) -> Ranks:
    """Return a function of these ranks at the root, and of none elsewhere."""
    return lambda place: ranks(place) if place.rank == ROOT else []


COLLECTIVES = {
    kind.op: kind
    for kind in (
        BenchKind(
            op="all_reduce",
            algorithm="all_reduce, in place",
            destinations=only(ALL_RANKS),
            sources=only(0),
            in_place=True,
        ),
        BenchKind(
            op="all_gather",
            algorithm="all_gather_into_tensor",
            destinations=only(ALL_RANKS),
            sources=everyone,
            pieces=lambda place: place.world,
            to_all=True,
        ),
        BenchKind(
            op="reduce_scatter",
            algorithm="reduce_scatter_tensor",
            destinations=everyone,
            sources=lambda place: [place.rank],
            pieces=lambda place: place.world,
        ),
        BenchKind(
            op="all_to_all",
            algorithm="all_to_all_single",
            destinations=everyone,
            sources=everyone,
            pieces=lambda place: place.world,
        ),
        BenchKind(
            op="broadcast",
            algorithm=f"broadcast from rank {ROOT}",
            destinations=at_root(only(ALL_RANKS)),
            sources=only(ROOT),
            to_all=True,
            in_place=True,
        ),
        BenchKind(
            op="reduce",
            algorithm=f"reduce to rank {ROOT}, in place",
            destinations=only(ROOT),
            sources=at_root(only(0)),
            in_place=True,
        ),
        BenchKind(
            op="gather",
            algorithm=f"gather to rank {ROOT}",
            destinations=only(ROOT),
            sources=at_root(everyone),
            pieces=lambda place: place.world,
        ),
        BenchKind(
            op="scatter",
            algorithm=f"scatter from rank {ROOT}",
            destinations=at_root(everyone),
            sources=only(ROOT),
            pieces=lambda place: place.world,
        ),
        BenchKind(
            op="sendrecv",
            algorithm="batch_isend_irecv around a ring",
            destinations=lambda place: [(place.rank + 1) % place.world],
            sources=lambda place: [(place.rank - 1) % place.world],
        ),
    )
}
"""By name, in the order of units.BUSBW_FACTORS."""


def point_to_point(variant: Variant) -> BenchKind:
    """Return the operation that measures one pattern in one direction, or in both at once."""
    return BenchKind(
        op="p2p",
        algorithm=f"batch_isend_irecv, {WINDOW} in flight",
        destinations=lambda at: [f.receiver for f in flows(variant, at.nodes, at.per_node) if f.sender == at.rank],
        sources=lambda at: [f.sender for f in flows(variant, at.nodes, at.per_node) if f.receiver == at.rank],
        pieces=lambda at: fan_in(variant, at.per_node),
        measured=variant,
    )


def kind_of(op: str, variant: str | None) -> BenchKind:
    """Return the operation with this name, and for p2p with this pattern and direction."""
    return COLLECTIVES[op] if variant is None else point_to_point(Variant.parse(variant))


def selected(ops: Sequence[str], patterns: Sequence[str], place: RankPosition) -> list[BenchKind]:
    """Return the operations of a run in order; p2p in each direction of these patterns."""
    pairs = [point_to_point(v) for v in variants(place.nodes, place.per_node) if v.pattern in patterns]
    return [kind for op in ops for kind in (pairs if op == "p2p" else [COLLECTIVES[op]])]
