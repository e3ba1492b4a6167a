"""Point to point on one rank: what it sends and receives in one pattern, all ranks at once.

The row's size is what a receiving rank receives from all its senders together: one message, or in an incast one share
from each, so that the same size always means the same time for the receiver's NICs. It moves in WINDOW pieces, each in
buffers of its own, that are all in flight before any is waited for: else each message would wait for the launch of the
next (nccl-tests and param do the same by a window).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch.distributed as dist

from workloads.nccl.operation import Check, Operation
from workloads.nccl.pattern import fill
from workloads.nccl.point_patterns import Variant, fan_in, flows

WINDOW = 2


class PointToPoint(Operation):
    """One pattern in one direction, or in both at once. `kind` makes a class of each."""

    op = "p2p"
    algorithm = f"batch_isend_irecv, {WINDOW} in flight"
    measured: Variant

    def allocate(self) -> None:
        place, shares = self.place, fan_in(self.measured, self.place.per_node)
        self.count = max(1, self.count // shares)
        self.size = self.count * self.dtype.itemsize * shares
        found = flows(self.measured, place.nodes, place.per_node)
        self.sent = {flow.receiver: self.empty(self.count) for flow in found if flow.sender == place.rank}
        self.received = {flow.sender: self.empty(self.count) for flow in found if flow.receiver == place.rank}
        self.takes_part = bool(self.sent or self.received)

    def load(self) -> None:
        for peer, buffer in self.sent.items():
            fill(buffer, self.moved(self.place.rank, peer))

    def run(self) -> None:
        batches = [self._batch(slot) for slot in range(WINDOW)]
        posted = [work for batch in batches if batch for work in dist.batch_isend_irecv(batch)]
        for work in posted:
            work.wait()

    def checks(self) -> Iterator[Check]:
        for peer, buffer in self.received.items():
            yield Check(buffer, self.moved(peer, self.place.rank))

    def _batch(self, slot: int) -> list[dist.P2POp]:
        """The sends and receives of one piece. NCCL pairs them in order; gloo does so by the tag."""
        return [
            dist.P2POp(call, pieces[slot], peer, tag=slot)
            for call, buffers in ((dist.isend, self.sent), (dist.irecv, self.received))
            for peer, buffer in buffers.items()
            if slot < len(pieces := buffer.chunk(WINDOW))  # one element makes one piece only
        ]


def kind(variant: Variant) -> type[PointToPoint]:
    """The operation that measures this variant."""
    made = type("PointToPoint", (PointToPoint,), {"variant": variant.name, "measured": variant})
    return cast(type[PointToPoint], made)
