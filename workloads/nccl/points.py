"""Point to point: ranks that send to each other in pairs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist

from workloads.nccl.operation import Check, Operation, Place
from workloads.nccl.pattern import fill


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
