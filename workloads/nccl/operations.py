"""Everything that can be measured, by name."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.nccl.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    RingSendReceive,
    Scatter,
)
from workloads.nccl.operation import Operation, Place
from workloads.nccl.point_patterns import variants
from workloads.nccl.points import PointToPoint, kind

COLLECTIVES: dict[str, type[Operation]] = {
    operation.op: operation
    for operation in (
        AllReduce,
        AllGather,
        ReduceScatter,
        AllToAll,
        Broadcast,
        Reduce,
        Gather,
        Scatter,
        RingSendReceive,
    )
}


def kinds(op: str, place: Place) -> tuple[type[Operation], ...]:
    """The measurements that an operation may consist of: one, or for p2p each pattern in each direction."""
    if op == PointToPoint.op:
        return tuple(map(kind, variants(place.nodes, place.per_node)))
    return (COLLECTIVES[op],)


def selected(ops: Sequence[str], patterns: Sequence[str], place: Place) -> list[tuple[int, type[Operation]]]:
    """What a run measures, in order: each operation with its index among its kinds(), p2p in these patterns only."""
    return [
        (index, operation)
        for op in ops
        for index, operation in enumerate(kinds(op, place))
        if not issubclass(operation, PointToPoint) or operation.measured.pattern in patterns
    ]
