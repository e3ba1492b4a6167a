"""From all ranks' answers to a row of the result."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.nccl.bandwidth import algbw, busbw, nic_bandwidth
from workloads.nccl.limits import Limits
from workloads.nccl.loop import Answer, Measurement
from workloads.nccl.operation import Operation, Place
from workloads.nccl.point_rows import fields
from workloads.nccl.points import PointToPoint
from workloads.nccl.result import Iterations, RankTime, Row, Spread


def summarise(
    operation: type[Operation],
    asked: Measurement,
    answers: Sequence[Answer],
    place: Place,
    *,
    fabric: bool,
    limits: Limits | None,
) -> Row:
    """One row, by the slowest rank that takes part; `fabric` says that the nodes are machines of their own.

    Times in µs, bandwidths in GB/s (decimal). `wrong` is None unless every rank checked its data.
    """
    active = [answer for answer in answers if answer["takes_part"]]
    times = [answer["time"] for answer in active]
    slowest = max(active, key=lambda answer: answer["time"])
    size, bus = slowest["size"], busbw(operation.op, slowest["size"], max(times), place.world)
    nic = nic_bandwidth(operation.op, bus, place.world, place.nodes) if fabric else None
    row = Row(
        op=operation.op,
        variant=operation.variant,
        mode=asked.mode,
        dtype=asked.dtype,
        algorithm=operation.algorithm,
        size=size,
        count=slowest["count"],
        time_us=Spread(max=micro(max(times)), avg=micro(sum(times) / len(times)), min=micro(min(times))),
        iteration_us=Iterations(
            p50=micro(slowest["p50"]),
            p95=micro(slowest["p95"]),
            p99=micro(slowest["p99"]),
            max=micro(slowest["max"]),
            cv=round(slowest["cv"], 4),
        ),
        algbw=round(algbw(size, max(times)), 6),
        busbw=round(bus, 6),
        nic_bandwidth=None if nic is None else round(nic, 6),
        wrong=_wrong(answers),
        warnings=[
            f"rank {rank}: device clock {micro(answer['time'])} µs, wall clock {micro(answer['wall'])} µs"
            for rank, answer in enumerate(answers)
            if answer["clocks_disagree"]
        ],
        ranks=[
            RankTime(rank=rank, time_us=micro(answer["time"]), wrong=answer["wrong"])
            for rank, answer in enumerate(answers)
            if answer["takes_part"]
        ],
    )
    if issubclass(operation, PointToPoint):
        seconds = {rank: answer["time"] for rank, answer in enumerate(answers)}
        more = fields(str(operation.variant), size, seconds, place.nodes, place.per_node, limits)
        row = Row.model_validate(row.model_dump() | more)
    return row


def _wrong(answers: Sequence[Answer]) -> int | None:
    found = [answer["wrong"] for answer in answers]
    return None if None in found else sum(number for number in found if number is not None)


def micro(seconds: float) -> float:
    return round(seconds * 1e6, 2)
