"""Collectives: every rank takes part.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce and broadcast, the total over all ranks
for all_gather, reduce_scatter and all_to_all. A size is rounded down to whole elements, at least one each.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist

from workloads.nccl.operation import EVERYONE, Check, Operation
from workloads.nccl.pattern import fill


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
