"""Measured against published: which row is judged, by which figure, and how far apart they are. Pure.

The rule. Of each operation and type the row of the largest size counts, out of place, and only from 1 GiB on: never an
average over a sweep, never the better column. Its floor is the published figure for that machine, operation and number
of nodes at the nearest size that is not above the measured one, so that a larger message is never excused by a smaller
one's figure. A figure for a named algorithm counts where NCCL used that algorithm, or where nothing says which it used;
then the highest counts. Of two publications about the same thing the lower one is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infra.catalog.baselines import Baseline
from workloads.nccl.bandwidth import busbw
from workloads.nccl.evidence.facts import LogFacts
from workloads.nccl.judge.measurement import Figures, MeasuredRow, Run
from workloads.nccl.result import Comparison

MIN_SIZE = 2**30
FAIL_BELOW = 0.90
WARN_BELOW = 0.95

# NCCL's function names, and those of this program and nccl-tests.
_FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}


def column(row: MeasuredRow) -> Figures | None:
    """The figures that count: those out of place, as the published ones are."""
    return row.out_of_place


def headline(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """The largest row of each operation and type; of several at that size, the slowest."""
    best: dict[tuple[str, str], MeasuredRow] = {}
    for row in rows:
        other = best.get((row.op, row.dtype))
        if other is None or (row.size, _time(row)) > (other.size, _time(other)):
            best[row.op, row.dtype] = row
    return list(best.values())


def _time(row: MeasuredRow) -> float:
    figures = column(row)
    return figures.time_us if figures else 0.0


def large_enough(size: int) -> bool:
    """Whether a row of so many bytes says what a fabric can: smaller messages are ruled by latency."""
    return size >= MIN_SIZE


def measured(row: MeasuredRow, ranks: int) -> float | None:
    """Bus bandwidth, GB/s (decimal), from size and time; None where the column was not measured."""
    figures = column(row)
    return None if figures is None else busbw(row.op, row.size, figures.time_us / 1e6, ranks)


def algorithms_of(op: str, run: Run, facts: LogFacts | None) -> frozenset[str]:
    """What NCCL is known to have used for `op` at its largest size (`ring`, `nvlstree`); empty where nothing says.

    A log that names algorithms without their operations cannot tell what this one used, unless it names only one.
    """
    if facts is not None:
        choices = [choice for choice in facts.choices if choice.op == _FUNCTIONS.get(op)]
        largest = max((choice.size for choice in choices), default=0)
        names = {choice.algorithm for choice in choices if choice.size == largest}
        if not facts.choices:
            names = {name.split("/")[0] for name in facts.algorithms}
        if len(names) == 1:
            return frozenset(name.lower().replace("_", "") for name in names)
    return frozenset({run.algorithm}) if run.algorithm else frozenset()


def floor_of(floors: Iterable[Baseline], op: str, nodes: int, size: int, algorithms: frozenset[str]) -> Baseline | None:
    """The published figure that a row is judged by, by the rule above; None where there is none."""
    fitting = [
        floor
        for floor in floors
        if (floor.op, floor.nodes) == (op, nodes)
        and floor.size <= size
        and (floor.algorithm is None or not algorithms or floor.algorithm in algorithms)
    ]
    # Figures that may judge come before those that may not, whatever their size.
    fitting = [floor for floor in fitting if floor.gates] or fitting
    nearest = max((floor.size for floor in fitting), default=0)
    lowest: dict[str | None, Baseline] = {}
    for floor in fitting:
        if floor.size == nearest and (floor.algorithm not in lowest or floor.busbw < lowest[floor.algorithm].busbw):
            lowest[floor.algorithm] = floor
    return max(lowest.values(), key=lambda floor: floor.busbw, default=None)


def compare(row: MeasuredRow, value: float, floor: Baseline) -> Comparison:
    """The row's busbw (GB/s) beside the published one."""
    named = f", {floor.algorithm}" if floor.algorithm else ""
    return Comparison(
        op=row.op,
        size=row.size,
        measured=round(value, 3),
        expected=floor.busbw,
        # Six digits: a share of 0.9 is not made 0.8999… by the way floats are divided.
        share=round(value / floor.busbw, 6),
        source=f"{floor.source}{named}",
        confidence=floor.confidence,
    )
