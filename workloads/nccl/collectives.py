"""Collectives: every rank takes part.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce, broadcast, reduce and sendrecv, the
total over all ranks for all_gather, reduce_scatter, all_to_all, gather and scatter. A size is rounded down to whole
elements, at least one each. The root is rank 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist

from workloads.nccl.operation import EVERYONE, Check, Operation
from workloads.nccl.pattern import fill, spoil, zeros

ROOT = 0


class AllReduce(Operation):
    """In place, as torch.distributed has it, so that each run adds up what the one before left.

    Over many runs that would overflow, and nothing could be said of the result. The timed runs therefore start from 1
    and -1, whose sum is zero: every later run adds zeros, and one wrong element in any of them stays until the end.
    """

    op = "all_reduce"
    algorithm = "all_reduce, in place"
    adds = True

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)

    def load(self) -> None:
        fill(self.buffer, self.sums.contribution(self.place.rank, self.salt))

    def prepare(self, salt: int) -> None:
        self.salt = salt
        self.arm()

    def arm(self) -> None:
        rank = self.place.rank
        alone = rank ^ 1 >= self.place.world
        self.buffer.fill_(0 if alone else -1 if rank % 2 else 1)

    def run(self) -> None:
        dist.all_reduce(self.buffer)

    def checks(self) -> Iterator[Check]:
        yield Check(self.buffer, self.sums.total(self.salt))

    def left(self) -> Iterator[Check]:
        yield Check(self.buffer, zeros(self.dtype, self.device))


class AllGather(Operation):
    op = "all_gather"
    algorithm = "all_gather_into_tensor"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count)
        self.received = self.empty(self.count * self.place.world)

    def load(self) -> None:
        fill(self.send, self.moved(self.place.rank, EVERYONE))

    def run(self) -> None:
        dist.all_gather_into_tensor(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        for source, piece in enumerate(self.received.chunk(self.place.world)):
            yield Check(piece, self.moved(source, EVERYONE))


class ReduceScatter(Operation):
    op = "reduce_scatter"
    algorithm = "reduce_scatter_tensor"
    pieces_per_rank = True
    adds = True

    def allocate(self) -> None:
        self.send = self.empty(self.count * self.place.world)
        self.received = self.empty(self.count)

    def load(self) -> None:
        fill(self.send, self.sums.contribution(self.place.rank, self.salt))

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

    def run(self) -> None:
        dist.all_to_all_single(self.received, self.send)

    def checks(self) -> Iterator[Check]:
        for source, piece in enumerate(self.received.chunk(self.place.world)):
            yield Check(piece, self.moved(source, self.place.rank))


class Broadcast(Operation):
    op = "broadcast"
    algorithm = f"broadcast from rank {ROOT}"

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)

    def load(self) -> None:
        if self.place.rank == ROOT:
            fill(self.buffer, self.moved(ROOT, EVERYONE))

    def arm(self) -> None:
        if self.place.rank != ROOT:
            spoil(self.buffer)

    def run(self) -> None:
        dist.broadcast(self.buffer, src=ROOT)

    def checks(self) -> Iterator[Check]:
        yield Check(self.buffer, self.moved(ROOT, EVERYONE))


class Reduce(Operation):
    """In place at the root. gloo adds up in the others' buffers, too, so that only zeros stay what they are."""

    op = "reduce"
    algorithm = f"reduce to rank {ROOT}, in place"
    adds = True

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)

    def load(self) -> None:
        fill(self.buffer, self.sums.contribution(self.place.rank, self.salt))

    def prepare(self, salt: int) -> None:
        self.salt = salt
        self.arm()

    def arm(self) -> None:
        self.buffer.zero_()

    def run(self) -> None:
        dist.reduce(self.buffer, dst=ROOT)

    def checks(self) -> Iterator[Check]:
        if self.place.rank == ROOT:
            yield Check(self.buffer, self.sums.total(self.salt))

    def left(self) -> Iterator[Check]:
        if self.place.rank == ROOT:
            yield Check(self.buffer, zeros(self.dtype, self.device))


class Gather(Operation):
    op = "gather"
    algorithm = f"gather to rank {ROOT}"
    pieces_per_rank = True

    def allocate(self) -> None:
        self.send = self.empty(self.count)
        at_root = self.place.rank == ROOT
        self.received = self.empty(self.count * self.place.world if at_root else 0)
        self.pieces = list(self.received.chunk(self.place.world)) if at_root else None

    def load(self) -> None:
        fill(self.send, self.moved(self.place.rank, ROOT))

    def run(self) -> None:
        dist.gather(self.send, self.pieces, dst=ROOT)

    def checks(self) -> Iterator[Check]:
        for source, piece in enumerate(self.pieces or ()):
            yield Check(piece, self.moved(source, ROOT))


class Scatter(Operation):
    op = "scatter"
    algorithm = f"scatter from rank {ROOT}"
    pieces_per_rank = True

    def allocate(self) -> None:
        at_root = self.place.rank == ROOT
        self.send = self.empty(self.count * self.place.world if at_root else 0)
        self.pieces = list(self.send.chunk(self.place.world)) if at_root else None
        self.received = self.empty(self.count)

    def load(self) -> None:
        for destination, piece in enumerate(self.pieces or ()):
            fill(piece, self.moved(ROOT, destination))

    def run(self) -> None:
        dist.scatter(self.received, self.pieces, src=ROOT)

    def checks(self) -> Iterator[Check]:
        yield Check(self.received, self.moved(ROOT, self.place.rank))


class RingSendReceive(Operation):
    """Every rank sends to the next one and receives from the one before, all at once."""

    op = "sendrecv"
    algorithm = "batch_isend_irecv around a ring"

    def allocate(self) -> None:
        world = self.place.world
        self.next, self.before = (self.place.rank + 1) % world, (self.place.rank - 1) % world
        self.send = self.empty(self.count)
        self.received = self.empty(self.count)

    def load(self) -> None:
        fill(self.send, self.moved(self.place.rank, self.next))

    def run(self) -> None:
        calls = [dist.P2POp(dist.isend, self.send, self.next), dist.P2POp(dist.irecv, self.received, self.before)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    def checks(self) -> Iterator[Check]:
        yield Check(self.received, self.moved(self.before, self.place.rank))
