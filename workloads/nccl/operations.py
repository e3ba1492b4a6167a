"""The operations that are measured: buffers, what to run, and what must come out.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce, broadcast and sendrecv, the total over
all ranks for all_gather, reduce_scatter and all_to_all. A size is rounded down to whole elements, at least one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from workloads.nccl.pattern import Generator, ReductionPattern, count_wrong, fill, moved

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
EVERYONE = -1  # the destination of data that goes to all ranks alike


@dataclass(frozen=True)
class Place:
    """Where a rank stands: ranks are consecutive per node."""

    rank: int
    world: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.world // self.per_node


@dataclass
class Check:
    """A part of a receive buffer and the pattern that it must hold from position `offset` on."""

    got: torch.Tensor
    want: Generator
    offset: int = 0


class Operation:
    """One collective at one size on one rank.

    `size` is the row's size in bytes, `received` what the operation writes, `takes_part` false for a rank that only
    keeps the barriers. fill() → run() → wrong() is one verification; run() alone is what is timed.
    """

    op = ""
    variant: str | None = None
    algorithm = ""  # the torch.distributed call; which algorithm runs below it is the library's choice
    pieces_per_rank = False  # true where the row's size is the total over all ranks

    def __init__(self, place: Place, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.place, self.dtype, self.device = place, dtype, device
        pieces = place.world if self.pieces_per_rank else 1
        self.count = max(1, size // (dtype.itemsize * pieces))
        self.size = self.count * dtype.itemsize * pieces
        self.takes_part = True
        self.salt = 0
        self.sums = ReductionPattern(place.world, dtype, device)
        self.allocate()

    def allocate(self) -> None:
        raise AssertionError("each operation has its own buffers")

    def run(self) -> None:
        raise AssertionError("each operation has its own call")

    def load(self) -> None:
        """Write this rank's input and poison what will be received."""
        raise AssertionError("each operation has its own input")

    def checks(self) -> Iterator[Check]:
        raise AssertionError("each operation has its own result")

    def fill(self, salt: int) -> None:
        """New input, different from that of any other salt; received buffers hold NaN, which equals nothing."""
        self.salt = salt
        self.load()

    def wrong(self) -> int:
        """How many received elements are not what they must be."""
        return sum(count_wrong(check.got, check.want, check.offset) for check in self.checks())

    def corrupt(self) -> None:
        """Spoil one received element (the fault that `--inject-fault corrupt` rehearses)."""
        next(self.checks()).got[0] = -1  # the patterns hold no negative number

    def empty(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=self.dtype, device=self.device)

    def moved(self, source: int, destination: int) -> Generator:
        return moved(source, destination, self.salt, self.dtype, self.device)


class AllReduce(Operation):
    op = "all_reduce"
    algorithm = "all_reduce, in place"

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)

    def load(self) -> None:
        fill(self.buffer, self.sums.contribution(self.place.rank, self.salt))

    def run(self) -> None:
        dist.all_reduce(self.buffer)

    def checks(self) -> Iterator[Check]:
        yield Check(self.buffer, self.sums.total(self.salt))


class AllGather(Operation):
    op = "all_gather"
    algorithm = "all_gather_into_tensor"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count)
        self.received = self.empty(self.count * self.place.world)

    def load(self) -> None:
        fill(self.send, self.moved(self.place.rank, EVERYONE))
        self.received.fill_(torch.nan)

    def run(self) -> None:
        dist.all_gather_into_tensor(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        for source, piece in enumerate(self.received.chunk(self.place.world)):
            yield Check(piece, self.moved(source, EVERYONE))


class ReduceScatter(Operation):
    op = "reduce_scatter"
    algorithm = "reduce_scatter_tensor"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count * self.place.world)
        self.received = self.empty(self.count)

    def load(self) -> None:
        fill(self.send, self.sums.contribution(self.place.rank, self.salt))
        self.received.fill_(torch.nan)

    def run(self) -> None:
        dist.reduce_scatter_tensor(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        yield Check(self.received, self.sums.total(self.salt), offset=self.place.rank * self.count)


class AllToAll(Operation):
    op = "all_to_all"
    algorithm = "all_to_all_single"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count * self.place.world)
        self.received = self.empty(self.count * self.place.world)

    def load(self) -> None:
        for destination, piece in enumerate(self.send.chunk(self.place.world)):
            fill(piece, self.moved(self.place.rank, destination))
        self.received.fill_(torch.nan)

    def run(self) -> None:
        dist.all_to_all_single(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        for source, piece in enumerate(self.received.chunk(self.place.world)):
            yield Check(piece, self.moved(source, self.place.rank))


class Broadcast(Operation):
    op = "broadcast"
    algorithm = "broadcast from rank 0"

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)

    def load(self) -> None:
        if self.place.rank == 0:
            fill(self.buffer, self.moved(0, EVERYONE))
        else:
            self.buffer.fill_(torch.nan)

    def run(self) -> None:
        dist.broadcast(self.buffer, src=0)

    def checks(self) -> Iterator[Check]:
        yield Check(self.buffer, self.moved(0, EVERYONE))


def partner(place: Place) -> int | None:
    """The rank that `place` exchanges data with, or None where it is left over.

    Across nodes rank i of an even node meets rank i of the next one, so that each GPU uses the NIC of its own rail;
    on a single node neighbours meet.
    """
    distance = place.per_node if place.nodes > 1 else 1
    lower = (place.rank // distance) % 2 == 0
    other = place.rank + distance if lower else place.rank - distance
    return other if other < place.world else None


class SendReceive(Operation):
    """Each pair in one direction, or in both at once. All pairs run together."""

    op = "sendrecv"
    algorithm = "batch_isend_irecv between pairs"
    sends_up = False  # from the pair's lower rank to its upper one
    sends_down = False

    def allocate(self) -> None:
        self.peer = partner(self.place)
        lower = self.peer is not None and self.place.rank < self.peer
        self.sends = self.sends_up if lower else self.sends_down
        self.receives = self.sends_down if lower else self.sends_up
        self.takes_part = self.peer is not None
        self.send = self.empty(self.count if self.takes_part and self.sends else 0)
        self.received = self.empty(self.count if self.takes_part and self.receives else 0)

    def load(self) -> None:
        if self.peer is not None:
            fill(self.send, self.moved(self.place.rank, self.peer))
            self.received.fill_(torch.nan)

    def run(self) -> None:
        if self.peer is None:
            return
        calls = []
        if self.sends:
            calls.append(dist.P2POp(dist.isend, self.send, self.peer))
        if self.receives:
            calls.append(dist.P2POp(dist.irecv, self.received, self.peer))
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    def checks(self) -> Iterator[Check]:
        if self.peer is not None and self.receives:
            yield Check(self.received, self.moved(self.peer, self.place.rank))

    def corrupt(self) -> None:
        if self.received.numel():
            super().corrupt()


class SendUp(SendReceive):
    variant = "up"
    sends_up = True


class SendDown(SendReceive):
    variant = "down"
    sends_down = True


class SendBoth(SendReceive):
    variant = "duplex"
    sends_up = sends_down = True


OPERATIONS: dict[str, tuple[type[Operation], ...]] = {
    "all_reduce": (AllReduce,),
    "all_gather": (AllGather,),
    "reduce_scatter": (ReduceScatter,),
    "all_to_all": (AllToAll,),
    "broadcast": (Broadcast,),
    "sendrecv": (SendUp, SendDown, SendBoth),
}
"""By name: the measurements that an operation consists of."""
