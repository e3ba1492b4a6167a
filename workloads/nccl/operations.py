"""Measured operations on one rank: buffers, a timed call, and the expected result.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce, broadcast, reduce and sendrecv, the
total over all ranks for all_gather, reduce_scatter, all_to_all, gather and scatter. For p2p a size is what one receiver
gets from all its senders together: one message, or in an incast one share from each, so a size means the same time for
the receiver's NICs in every pattern. A size is rounded down to whole elements, at least one each. The root is rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from workloads.nccl.pattern import Generator, ReductionPattern, count_wrong, fill, moved, spoil
from workloads.nccl.point_patterns import Variant, fan_in, flows, variants
from workloads.nccl.units import REDUCTIONS

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}
ALL_RANKS = -1  # destination of one piece that all ranks receive
ROOT = 0
WINDOW = 2
"""Parts of a p2p message, all in flight before the first wait. Otherwise each message would wait for the launch of the
next; nccl-tests and param use the same kind of window."""


@dataclass(frozen=True)
class Place:
    """Position of a rank. Ranks are consecutive per node."""

    rank: int
    world: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.world // self.per_node


Ranks = Callable[[Place], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A measured operation, for any place, size and type.

    Args:
        op: Name, a key of units.BUSBW_FACTORS.
        algorithm: The torch.distributed call; the library below it selects its own algorithm.
        run: Function that runs the operation once.
        destinations: Receiver of each piece that a rank sends.
        sources: Sender of each piece that a rank receives; of a sum, the positions of the pieces in it.
        pieces: Number of pieces that the row's size includes.
        to_all: Whether all receivers get the same data.
        in_place: Whether one buffer is both sent and received.
        measured: Pattern and direction of p2p.
    """

    op: str
    algorithm: str
    run: Callable[[Operation], object]
    destinations: Ranks
    sources: Ranks
    pieces: Callable[[Place], int] = lambda _place: 1
    to_all: bool = False
    in_place: bool = False
    measured: Variant | None = None

    @property
    def variant(self) -> str | None:
        return self.measured.name if self.measured else None


class Operation:
    """One operation at one size on one rank.

    `size` is the row's size in bytes, `takes_part` is False for a rank that only waits at barriers. There are two
    verifications: fill() → run() → wrong(), and prepare() → run() → arm() → many timed run() → left_wrong().
    """

    def __init__(self, kind: Kind, place: Place, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.kind, self.place, self.dtype, self.device = kind, place, dtype, device
        self.count = max(1, size // (dtype.itemsize * kind.pieces(place)))
        self.size = self.count * dtype.itemsize * kind.pieces(place)
        self.destinations, self.sources = kind.destinations(place), kind.sources(place)
        self.takes_part = bool(self.destinations or self.sources)
        self.sent = self._empty(1 if kind.in_place else len(self.destinations))
        self.received = self.sent if kind.in_place else self._empty(len(self.sources))
        self.outgoing = list(zip(self.sent.view(-1, self.count).unbind(), self.destinations, strict=False))
        self.incoming = list(zip(self.received.view(-1, self.count).unbind(), self.sources, strict=False))
        self.sums = ReductionPattern(place.world, dtype, device) if kind.op in REDUCTIONS else None
        self.salt = 0
        # An in-place sum consumes its input. Further runs on their own results would grow n-fold (and overflow) or, on
        # inputs that cancel out, add zeros, which draw less power than data; nccl-tests' in-place runs grow. torch has
        # no all_reduce from one buffer to another, and ReduceOp.AVG is another kernel, without NVLS (nccl:
        # src/enqueue.cc, hostToDevRedOp; src/include/device.h, ncclNvlsSupported; v2.30).
        consumes = kind.in_place and self.sums is not None
        self.kept = torch.empty_like(self.sent) if consumes else None
        self.restore = self._restore if consumes else None
        """Write the input again, untimed before each run; None if runs keep their input."""

    def run(self) -> None:
        """Run the operation once."""
        self.kind.run(self)

    def checks(self) -> list[tuple[torch.Tensor, Generator]]:
        """Return the received buffers with the expected result of a run."""
        if self.sums is not None:
            return [(buffer, self.sums.total(self.salt, piece * self.count)) for buffer, piece in self.incoming]
        return [(buffer, self._moved(source, self.place.rank)) for buffer, source in self.incoming]

    def fill(self, salt: int) -> None:
        """Write new input, different from that of any other salt, and wrong data at each received position."""
        self.salt = salt
        self.arm()
        if self.sums is not None:
            fill(self.sent, self.sums.contribution(self.place.rank, salt))
        else:
            for buffer, destination in self.outgoing:
                fill(buffer, self._moved(self.place.rank, destination))
        if self.kept is not None:
            self.kept.copy_(self.sent)

    def arm(self) -> None:
        """Make each received position wrong, whatever it holds. What is received in place of its input is no exception:
        `restore` writes the input."""
        if not (self.kind.in_place and self.destinations):
            for buffer, want in self.checks():
                spoil(buffer, want)

    def wrong(self) -> int:
        """Count the wrong elements after a run."""
        return sum(count_wrong(buffer, want) for buffer, want in self.checks())

    def _restore(self) -> None:
        assert self.kept is not None
        self.sent.copy_(self.kept)

    def _empty(self, pieces: int) -> torch.Tensor:
        return torch.zeros(pieces * self.count, dtype=self.dtype, device=self.device)

    def _moved(self, source: int, destination: int) -> Generator:
        destination = ALL_RANKS if self.kind.to_all else destination
        return moved(source, destination, self.salt, self.dtype, self.device)


def everyone(place: Place) -> range:
    """Return all ranks."""
    return range(place.world)


def only(rank: int) -> Ranks:
    """Return a function of one rank, the same for every place."""
    return lambda _place: [rank]


def at_root(ranks: Ranks) -> Ranks:
    """Return a function of these ranks at the root, and of none elsewhere."""
    return lambda place: ranks(place) if place.rank == ROOT else []


def buffers(pieces: Sequence[tuple[torch.Tensor, int]]) -> list[torch.Tensor] | None:
    """Return the pieces as torch's gather and scatter take them: None except at the root."""
    return [buffer for buffer, _ in pieces] or None


def exchange(operation: Operation, window: int) -> None:
    """Send and receive all pieces at once, each in `window` parts. NCCL pairs them in order, gloo by the tag."""
    posted = []
    for slot in range(window):
        batch = [
            dist.P2POp(call, parts[slot], peer, tag=slot)
            for call, pieces in ((dist.isend, operation.outgoing), (dist.irecv, operation.incoming))
            for buffer, peer in pieces
            if slot < len(parts := buffer.chunk(window))  # a single element is a single part
        ]
        posted += dist.batch_isend_irecv(batch) if batch else []
    for work in posted:
        work.wait()


COLLECTIVES = {
    kind.op: kind
    for kind in (
        Kind(
            op="all_reduce",
            algorithm="all_reduce, in place",
            run=lambda it: dist.all_reduce(it.received),
            destinations=only(ALL_RANKS),
            sources=only(0),
            in_place=True,
        ),
        Kind(
            op="all_gather",
            algorithm="all_gather_into_tensor",
            run=lambda it: dist.all_gather_into_tensor(it.received, it.sent),
            destinations=only(ALL_RANKS),
            sources=everyone,
            pieces=lambda place: place.world,
            to_all=True,
        ),
        Kind(
            op="reduce_scatter",
            algorithm="reduce_scatter_tensor",
            run=lambda it: dist.reduce_scatter_tensor(it.received, it.sent),
            destinations=everyone,
            sources=lambda place: [place.rank],
            pieces=lambda place: place.world,
        ),
        Kind(
            op="all_to_all",
            algorithm="all_to_all_single",
            run=lambda it: dist.all_to_all_single(it.received, it.sent),
            destinations=everyone,
            sources=everyone,
            pieces=lambda place: place.world,
        ),
        Kind(
            op="broadcast",
            algorithm=f"broadcast from rank {ROOT}",
            run=lambda it: dist.broadcast(it.received, src=ROOT),
            destinations=at_root(only(ALL_RANKS)),
            sources=only(ROOT),
            to_all=True,
            in_place=True,
        ),
        Kind(
            op="reduce",
            algorithm=f"reduce to rank {ROOT}, in place",
            run=lambda it: dist.reduce(it.received, dst=ROOT),
            destinations=only(ROOT),
            sources=at_root(only(0)),
            in_place=True,
        ),
        Kind(
            op="gather",
            algorithm=f"gather to rank {ROOT}",
            run=lambda it: dist.gather(it.sent, buffers(it.incoming), dst=ROOT),
            destinations=only(ROOT),
            sources=at_root(everyone),
            pieces=lambda place: place.world,
        ),
        Kind(
            op="scatter",
            algorithm=f"scatter from rank {ROOT}",
            run=lambda it: dist.scatter(it.received, buffers(it.outgoing), src=ROOT),
            destinations=at_root(everyone),
            sources=only(ROOT),
            pieces=lambda place: place.world,
        ),
        Kind(
            op="sendrecv",
            algorithm="batch_isend_irecv around a ring",
            run=lambda it: exchange(it, window=1),
            destinations=lambda place: [(place.rank + 1) % place.world],
            sources=lambda place: [(place.rank - 1) % place.world],
        ),
    )
}
"""By name, in the order of units.BUSBW_FACTORS."""


def point_to_point(variant: Variant) -> Kind:
    """Return the operation that measures one pattern in one direction, or in both at once."""
    return Kind(
        op="p2p",
        algorithm=f"batch_isend_irecv, {WINDOW} in flight",
        run=lambda it: exchange(it, WINDOW),
        destinations=lambda at: [f.receiver for f in flows(variant, at.nodes, at.per_node) if f.sender == at.rank],
        sources=lambda at: [f.sender for f in flows(variant, at.nodes, at.per_node) if f.receiver == at.rank],
        pieces=lambda at: fan_in(variant, at.per_node),
        measured=variant,
    )


def kind_of(op: str, variant: str | None) -> Kind:
    """Return the operation with this name, and for p2p with this pattern and direction."""
    return COLLECTIVES[op] if variant is None else point_to_point(Variant.parse(variant))


def selected(ops: Sequence[str], patterns: Sequence[str], place: Place) -> list[Kind]:
    """Return the operations of a run in order; p2p in each direction of these patterns."""
    pairs = [point_to_point(v) for v in variants(place.nodes, place.per_node) if v.pattern in patterns]
    return [kind for op in ops for kind in (pairs if op == "p2p" else [COLLECTIVES[op]])]
