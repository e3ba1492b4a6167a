"""Point-to-point operations on one rank, and the selection of all operations of a run.

A row's size is what one receiver gets from all its senders together: one message, or in an incast one share from each,
so a size means the same time for the receiver's NICs in every pattern. It moves in WINDOW pieces with a buffer each,
all in flight before the first wait; otherwise each message would wait for the launch of the next (nccl-tests and param
use the same kind of window).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch.distributed as dist

from workloads.nccl.collectives import COLLECTIVES, Move, Operation, Place
from workloads.nccl.point_patterns import Variant, fan_in, flows, variants

WINDOW = 2


class PointToPoint(Move):
    """One pattern in one direction, or in both at once. `point_to_point` creates a class for each."""

    op = "p2p"
    algorithm = f"batch_isend_irecv, {WINDOW} in flight"
    measured: Variant

    def allocate(self) -> None:
        place, shares = self.place, fan_in(self.measured, self.place.per_node)
        self.count = max(1, self.count // shares)
        self.size = self.count * self.dtype.itemsize * shares
        found = flows(self.measured, place.nodes, place.per_node)
        self.outgoing = [(self.empty(self.count), flow.receiver) for flow in found if flow.sender == place.rank]
        self.incoming = [(self.empty(self.count), flow.sender) for flow in found if flow.receiver == place.rank]
        self.takes_part = bool(self.outgoing or self.incoming)

    def run(self) -> None:
        batches = [self._batch(slot) for slot in range(WINDOW)]
        posted = [work for batch in batches if batch for work in dist.batch_isend_irecv(batch)]
        for work in posted:
            work.wait()

    def _batch(self, slot: int) -> list[dist.P2POp]:
        """Return the sends and receives of one piece. NCCL pairs them in order, gloo by the tag."""
        return [
            dist.P2POp(call, pieces[slot], peer, tag=slot)
            for call, buffers in ((dist.isend, self.outgoing), (dist.irecv, self.incoming))
            for buffer, peer in buffers
            if slot < len(pieces := buffer.chunk(WINDOW))  # a single element is a single piece
        ]


def point_to_point(variant: Variant) -> type[PointToPoint]:
    """Return the operation that measures this variant."""
    created = type("PointToPoint", (PointToPoint,), {"variant": variant.name, "measured": variant})
    return cast(type[PointToPoint], created)


def kinds(op: str, place: Place) -> tuple[type[Operation], ...]:
    """Return the measurements of an operation: one, or for p2p each pattern in each direction."""
    if op == PointToPoint.op:
        return tuple(map(point_to_point, variants(place.nodes, place.per_node)))
    return (COLLECTIVES[op],)


def selected(ops: Sequence[str], patterns: Sequence[str], place: Place) -> list[tuple[int, type[Operation]]]:
    """Return the operations of a run in order, each with its index in kinds(); p2p in these patterns only."""
    return [
        (index, operation)
        for op in ops
        for index, operation in enumerate(kinds(op, place))
        if not issubclass(operation, PointToPoint) or operation.measured.pattern in patterns
    ]
