"""Measured operations on one rank: buffers, a timed call, and the expected result.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce, broadcast, reduce and sendrecv, the
total over all ranks for all_gather, reduce_scatter, all_to_all, gather and scatter. A size is rounded down to whole
elements, at least one each. The root is rank 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from workloads.nccl.pattern import Generator, ReductionPattern, count_wrong, fill, moved, poison, spoil, zeros

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}
ALL_RANKS = -1  # destination of data that is the same for all ranks
ROOT = 0


@dataclass(frozen=True)
class Place:
    """Position of a rank. Ranks are consecutive per node."""

    rank: int
    world: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.world // self.per_node


@dataclass
class Check:
    """Part of a receive buffer and its expected pattern from position `offset` on."""

    got: torch.Tensor
    want: Generator
    offset: int = 0


class Operation:
    """One operation at one size on one rank.

    `size` is the row's size in bytes, `takes_part` is False for a rank that only waits at barriers. There are two
    verifications: fill() → run() → wrong(), and prepare() → run() → arm() → many timed run() → left_wrong().
    """

    op = ""
    variant: str | None = None
    algorithm = ""  # the torch.distributed call; the library below it selects its own algorithm
    pieces_per_rank = False  # True if the row's size is the total over all ranks
    adds = False  # True if the result is a sum, which uint8 cannot hold

    def __init__(self, place: Place, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.place, self.dtype, self.device = place, dtype, device
        pieces = place.world if self.pieces_per_rank else 1
        self.count = max(1, size // (dtype.itemsize * pieces))
        self.size = self.count * dtype.itemsize * pieces
        self.takes_part = True
        self.salt = 0
        if self.adds:
            self.sums = ReductionPattern(place.world, dtype, device)
        self.allocate()

    def allocate(self) -> None:
        """Create the buffers."""
        raise NotImplementedError

    def run(self) -> None:
        """Run the operation once."""
        raise NotImplementedError

    def load(self) -> None:
        """Write this rank's input."""
        raise NotImplementedError

    def checks(self) -> Iterator[Check]:
        """Yield the expected result of one run on this rank."""
        raise NotImplementedError

    def left(self) -> Iterator[Check]:
        """Yield the expected buffers after many runs on one input: the same unless a result is the next run's input."""
        return self.checks()

    def fill(self, salt: int) -> None:
        """Write new input, different from that of any other salt, and wrong data at each received position."""
        self.salt = salt
        for check in self.checks():
            poison(check.got, check.want, check.offset)
        self.load()

    def prepare(self, salt: int) -> None:
        """Write the input of the warm-up and of the timed runs."""
        self.fill(salt)

    def arm(self) -> None:
        """Make each received position wrong again, with warm caches."""
        for check in self.checks():
            spoil(check.got)

    def wrong(self) -> int:
        """Count the wrong elements after one run."""
        return _wrong(self.checks())

    def left_wrong(self) -> int:
        """Count the wrong elements after arm() and any number of runs."""
        return _wrong(self.left())

    def empty(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=self.dtype, device=self.device)

    def moved(self, source: int, destination: int) -> Generator:
        return moved(source, destination, self.salt, self.dtype, self.device)


def _wrong(checks: Iterator[Check]) -> int:
    return sum(count_wrong(check.got, check.want, check.offset) for check in checks)


class InPlaceSum(Operation):
    """In-place sum: each run adds to the result of the previous one, which would overflow.

    The timed runs therefore start from values whose sum is zero. Later runs add zeros, so a wrong element remains.
    """

    adds = True
    receives = True

    def allocate(self) -> None:
        self.received = self.empty(self.count)

    def load(self) -> None:
        fill(self.received, self.sums.contribution(self.place.rank, self.salt))

    def prepare(self, salt: int) -> None:
        self.salt = salt
        self.arm()

    def checks(self) -> Iterator[Check]:
        if self.receives:
            yield Check(self.received, self.sums.total(self.salt))

    def left(self) -> Iterator[Check]:
        if self.receives:
            yield Check(self.received, zeros(self.dtype, self.device))


class AllReduce(InPlaceSum):
    """In place, as torch.distributed defines it. The timed runs start from 1 and -1 on neighboring ranks."""

    op = "all_reduce"
    algorithm = "all_reduce, in place"

    def arm(self) -> None:
        rank = self.place.rank
        unpaired = rank ^ 1 >= self.place.world
        self.received.fill_(0 if unpaired else -1 if rank % 2 else 1)

    def run(self) -> None:
        dist.all_reduce(self.received)


class Reduce(InPlaceSum):
    """In place at the root. gloo also adds in the other ranks' buffers, so the timed runs start from zeros."""

    op = "reduce"
    algorithm = f"reduce to rank {ROOT}, in place"

    def allocate(self) -> None:
        super().allocate()
        self.receives = self.place.rank == ROOT

    def arm(self) -> None:
        self.received.zero_()

    def run(self) -> None:
        dist.reduce(self.received, dst=ROOT)


class ReduceScatter(Operation):
    op = "reduce_scatter"
    algorithm = "reduce_scatter_tensor"
    pieces_per_rank = True
    adds = True

    def allocate(self) -> None:
        self.send, self.received = self.empty(self.count * self.place.world), self.empty(self.count)

    def load(self) -> None:
        fill(self.send, self.sums.contribution(self.place.rank, self.salt))

    def run(self) -> None:
        dist.reduce_scatter_tensor(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        yield Check(self.received, self.sums.total(self.salt), offset=self.place.rank * self.count)


class Move(Operation):
    """Operation that moves data without a reduction."""

    outgoing: list[tuple[torch.Tensor, int]]
    """Buffer and destination."""
    incoming: list[tuple[torch.Tensor, int]]
    """Buffer and source."""
    to_all = False  # True if all destinations receive the same data

    def load(self) -> None:
        for buffer, destination in self.outgoing:
            fill(buffer, self.moved(self.place.rank, destination))

    def checks(self) -> Iterator[Check]:
        destination = ALL_RANKS if self.to_all else self.place.rank
        for buffer, source in self.incoming:
            yield Check(buffer, self.moved(source, destination))

    def by_rank(self, buffer: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
        """Split a buffer into one piece per rank, each with its rank."""
        return [(piece, rank) for rank, piece in enumerate(buffer.chunk(self.place.world))]


class AllGather(Move):
    op = "all_gather"
    algorithm = "all_gather_into_tensor"
    pieces_per_rank = True
    to_all = True

    def allocate(self) -> None:
        self.send, self.received = self.empty(self.count), self.empty(self.count * self.place.world)
        self.outgoing, self.incoming = [(self.send, ALL_RANKS)], self.by_rank(self.received)

    def run(self) -> None:
        dist.all_gather_into_tensor(self.received, self.send)


class AllToAll(Move):
    op = "all_to_all"
    algorithm = "all_to_all_single"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send, self.received = (self.empty(self.count * self.place.world) for _ in range(2))
        self.outgoing, self.incoming = self.by_rank(self.send), self.by_rank(self.received)

    def run(self) -> None:
        dist.all_to_all_single(self.received, self.send)


class Broadcast(Move):
    op = "broadcast"
    algorithm = f"broadcast from rank {ROOT}"
    to_all = True

    def allocate(self) -> None:
        self.received = self.empty(self.count)
        self.outgoing = [(self.received, ALL_RANKS)] if self.place.rank == ROOT else []
        self.incoming = [(self.received, ROOT)]

    def arm(self) -> None:
        if self.place.rank != ROOT:
            super().arm()

    def run(self) -> None:
        dist.broadcast(self.received, src=ROOT)


class Gather(Move):
    op = "gather"
    algorithm = f"gather to rank {ROOT}"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count)
        self.outgoing, self.incoming = [(self.send, ROOT)], []
        if self.place.rank == ROOT:
            self.incoming = self.by_rank(self.empty(self.count * self.place.world))
        self.pieces = [piece for piece, _ in self.incoming] or None

    def run(self) -> None:
        dist.gather(self.send, self.pieces, dst=ROOT)


class Scatter(Move):
    op = "scatter"
    algorithm = f"scatter from rank {ROOT}"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.received = self.empty(self.count)
        self.outgoing, self.incoming = [], [(self.received, ROOT)]
        if self.place.rank == ROOT:
            self.outgoing = self.by_rank(self.empty(self.count * self.place.world))
        self.pieces = [piece for piece, _ in self.outgoing] or None

    def run(self) -> None:
        dist.scatter(self.received, self.pieces, src=ROOT)


class RingSendReceive(Move):
    """Each rank sends to the next one and receives from the previous one, all at once."""

    op = "sendrecv"
    algorithm = "batch_isend_irecv around a ring"

    def allocate(self) -> None:
        rank, world = self.place.rank, self.place.world
        self.outgoing = [(self.empty(self.count), (rank + 1) % world)]
        self.incoming = [(self.empty(self.count), (rank - 1) % world)]

    def run(self) -> None:
        sends = [dist.P2POp(dist.isend, *pair) for pair in self.outgoing]
        receives = [dist.P2POp(dist.irecv, *pair) for pair in self.incoming]
        for work in dist.batch_isend_irecv(sends + receives):
            work.wait()


COLLECTIVES: dict[str, type[Operation]] = {
    operation.op: operation
    for operation in (
        *(AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast),
        *(Reduce, Gather, Scatter, RingSendReceive),
    )
}
"""By name, in the order of bandwidth.BUSBW_FACTORS."""
