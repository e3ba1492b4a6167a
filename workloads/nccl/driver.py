"""Driver of a benchmark: runs on the cluster as a Ray job, forms the gang, measures every row, prints the result.

python -m workloads.nccl.driver OPTIONS_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.evidence.facts import counted
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.answer import RankAnswer, RowRequest, Timing
from workloads.nccl.gang import BenchGang
from workloads.nccl.kinds import RankPosition, kind_of, selected
from workloads.nccl.limits import guarded, pair_figures
from workloads.nccl.options import BenchOptions, GangOptions
from workloads.nccl.point_patterns import Limits
from workloads.nccl.presets import WITHOUT_ALGORITHM
from workloads.nccl.result import BenchResult, Iterations, RankTime, Row, RowKey, Spread, World, micro
from workloads.nccl.units import REDUCTIONS, algbw, busbw, format_size, nic_bandwidth
from workloads.results.documents import JobResult
from workloads.results.events import emit

ONE_HOST = "all ranks on one host: a functional proof, not a fabric measurement"


def main(text: str) -> int:
    """Run the benchmark with these options, and return the process's exit code."""
    options = BenchOptions.from_json(text)
    gang = BenchGang(options)

    def measure(found: dict[str, Any]) -> tuple[Exit, str]:
        rows: list[Row] = found.setdefault("rows", [])
        with gang:
            found |= describe(gang)
            began = time.monotonic()
            for row in measure_all(options, gang):
                rows.append(row)
                emit("row", **row.model_dump(mode="json", exclude={"ranks", "pairs"}))
            found["seconds"] = gang.seconds | {"sweep": round(time.monotonic() - began, 3)}
        return conclude(rows)

    return run(options, measure, lambda **found: guarded(BenchResult(evidence=gang.evidence, **found)))


def run(
    options: GangOptions, measure: Callable[[dict[str, Any]], tuple[Exit, str]], result: Callable[..., JobResult]
) -> int:
    """Connect to Ray, measure, emit the result even after an error, and return its exit code.

    `measure` returns the exit code and the reason, and adds further fields of the result to its argument.
    """
    ray.init(logging_level=logging.WARNING)
    started = time.time()
    found: dict[str, Any] = {"spec": options, "injected_fault": options.inject_fault}
    try:
        code, reason = measure(found)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except (RayTaskError, RayActorError) as error:
        # The rank prints its traceback; the last line is the reason.
        code, reason = Exit.ERROR, f"a rank failed: {last_line(error)}"
    document = result(started=started, finished=time.time(), exit_code=int(code), reason=reason, **found)
    emit("result", result=document.model_dump(mode="json", by_alias=True))
    return document.exit_code


def describe(gang: BenchGang) -> dict[str, Any]:
    """Return the result's fields about the ranks: versions, placement, environment, and the validity of the figures."""
    notice = None
    if not gang.fabric:
        notice = ONE_HOST if gang.machines == 1 else f"{gang.nodes} nodes on only {gang.machines} machines"
    environments = gang.call("environment", what="reading the environment")
    return {
        "backend": "nccl" if gang.options.use_gpu else "gloo",
        "world": World(nodes=gang.nodes, per_node=gang.per_node, ranks=len(gang.actors), machines=gang.machines),
        "proves": "fabric" if gang.fabric else "function",
        "notice": notice,
        "versions": gang.call("versions", what="reading the versions")[0],
        "environment": environments[0],
        # A different environment often explains a slow rank.
        "environment_differs_on": [rank for rank, found in enumerate(environments) if found != environments[0]],
        "ranks": gang.members,
    }


def measure_all(options: BenchOptions, gang: BenchGang) -> Iterator[Row]:
    """Measure and yield every row of the sweep."""
    place = RankPosition(0, len(gang.actors), gang.per_node)
    todo = plan(options, place)
    emit("plan", rows=len(todo), ranks=len(gang.actors))
    if options.use_gpu:
        log_choices(gang, todo)
    for row in todo:
        what = f"{row.title} {format_size(row.size)} {row.dtype} in {row.mode} mode"
        answers = gang.call("measure", row, what=what)
        yield summarize(row, answers, place, fabric=gang.fabric, limits=options.limits)


def log_choices(gang: BenchGang, rows: Sequence[RowKey]) -> None:
    """Make NCCL log its choice of algorithm for each operation, type and size, in separate runs before the sweep.

    The choices depend on nothing else of a row. Operations of plain sends and receives have none.
    """
    if not any(gang.call("log_choices", True, what="NCCL's log")):
        return
    once = {(row.op, row.dtype, row.size): row for row in rows if row.op not in WITHOUT_ALGORITHM}
    for row in once.values():
        gang.call("run_once", row, what=f"the first {row.title} of {format_size(row.size)} {row.dtype}")
    gang.call("log_choices", False, what="NCCL's log")


def plan(options: BenchOptions, place: RankPosition) -> list[RowRequest]:
    """Return the rows to measure, in order, without sums of uint8; options.left_out lists those."""
    kinds = selected(options.ops, options.patterns, place)
    runs = options.model_dump(include={"iterations", "warmup", "check"})
    return [
        RowRequest(op=kind.op, variant=kind.variant, mode=mode, dtype=dtype, size=size, **runs)
        for kind, mode, dtype, size in product(kinds, options.modes, options.dtypes, options.sizes)
        if dtype != "uint8" or kind.op not in REDUCTIONS
    ]


def summarize(
    row: RowRequest, answers: Sequence[RankAnswer], place: RankPosition, *, fabric: bool, limits: Limits | None
) -> Row:
    """Return a row of the result from all ranks' answers, by the slowest rank that takes part.

    `wrong` is None unless every rank checked its data. `fabric` is whether the nodes are different machines.
    """
    kind = kind_of(row.op, row.variant)
    times = [answer.timing.mean for answer in answers]
    active = {rank: answer for rank, answer in enumerate(answers) if answer.takes_part}
    slowest = max(active.values(), key=lambda answer: answer.timing.mean)
    seconds, size = slowest.timing.mean, slowest.size
    bus = busbw(row.op, size, seconds, place.world)
    nic = nic_bandwidth(row.op, bus, place.world, place.nodes) if fabric else None
    wrong = [answer.wrong for answer in answers if answer.wrong is not None]
    pairs, total, limit = None, None, None
    if kind.measured is not None:
        pairs, total, limit = pair_figures(kind.measured, size, times, place.nodes, place.per_node, limits)
    return Row(
        **row.key.model_dump(exclude={"size"}),
        size=size,
        algorithm=kind.algorithm,
        count=slowest.count,
        time_us=Spread(
            max=micro(seconds),
            avg=micro(fmean(times[rank] for rank in active)),
            min=micro(min(times[rank] for rank in active)),
        ),
        iteration_us=Iterations.of(slowest.timing.per_iteration),
        algbw=round(algbw(size, seconds), 6),
        busbw=round(bus, 6),
        nic_bandwidth=None if nic is None else round(nic, 6),
        wrong=sum(wrong) if len(wrong) == len(answers) else None,
        warnings=[text for rank, answer in enumerate(answers) for text in doubts(rank, answer.timing)],
        ranks=[RankTime(rank=rank, time_us=micro(times[rank]), wrong=answer.wrong) for rank, answer in active.items()],
        pairs=pairs,
        total=total,
        limit=limit,
    )


def doubts(rank: int, timing: Timing) -> Iterator[str]:
    """Yield the reasons to doubt one rank's times."""
    if timing.clocks_disagree:
        yield f"rank {rank}: device clock {micro(timing.span)} µs, wall clock {micro(timing.wall)} µs for all runs"
    if timing.late:
        yield f"rank {rank}: {timing.late} of {len(timing.per_iteration)} runs include a launch: the host was slower"


def conclude(rows: Sequence[Row]) -> tuple[Exit, str]:
    """Return the exit code and the reason. The driver has no baselines, so only wrong data fails a run."""
    bad = [row for row in rows if row.wrong]
    if bad:
        first = bad[0]
        where = f"{first.op} at {format_size(first.size)} ({first.wrong} elements)"
        return Exit.WRONG_DATA, (
            f"wrong data in {len(bad)} of {len(rows)} rows, first in {where}:"
            " the figures of this run mean nothing until the cause is found"
        )
    count = counted(len(rows), "row")
    if unchecked := sum(row.wrong is None for row in rows):
        return Exit.OK, f"{count}, the data of {unchecked} of them not checked"
    return Exit.OK, f"{count}, every element right"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
