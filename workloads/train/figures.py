"""Figures of a training run, from the measurements of every rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low
from typing import Any, Literal

from workloads.results.documents import percentile
from workloads.train.options import Single
from workloads.train.result import (
    Communication,
    Curve,
    Outcome,
    Scaling,
    StepTime,
    Straggler,
    TrainFigures,
    TrainWorker,
)
from workloads.train.timeline import Clock, from_clock

MOST_POINTS = 400
"""Points of a curve in the result: as many as a plot can show."""
LEAST_LAG, LEAST_LAG_S = 0.1, 1e-3
"""A late rank takes longer than the usual one by this share of it, and by this time, which a scheduler may take."""
OFTEN, FEWEST_STEPS = 0.8, 20
"""A straggler is late in this share of the steps, of which there are this many at least."""


# Dense bf16 peaks in FLOP/s of SXM modules: the rates behind published MFU figures of ConvNeXt (2026-11). An H200
# computes like an H100.
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank's part of the last attempt. `step_s[i]` and `wait_s[i]` are of step number i of the attempt.

    `step_s` spans from the end of the previous step to the step's end on the device. It includes `wait_s`, in which
    the loop waited for the data source while the device had nothing to do, and excludes compilation, checkpoints and
    evaluations. `waiting_s` is the part from the rank's own gradients to the end of their reduction, empty if it is not
    known.
    """

    worker: TrainWorker
    step_s: list[float]
    wait_s: list[float]
    waiting_s: list[float]
    peak_memory: int | None


@dataclass(frozen=True, kw_only=True)
class AttemptTimes:
    """Measurements of the last attempt, which trained from `first_step` on.

    The first `warm_up` steps (allocations, clocks) are not in the averages. `losses` are [step, mean loss over all
    ranks of the steps since the previous one] of the whole run. `units` of a sample are what rates count. `single` is
    the rate of one worker alone.
    """

    clock: Clock
    ranks: list[RankTimes]
    batch: int
    first_step: int
    warm_up: int
    losses: list[tuple[int, float]]
    unit: Literal["images", "tokens"] = "images"
    units: int = 1
    flops_per_sample: float | None = None
    communication: Communication | None = None
    single: Single | None = None

    @property
    def slowest_steps(self) -> list[float]:
        """Seconds of each step on its slowest rank."""
        return [max(times) for times in zip(*(rank.step_s for rank in self.ranks), strict=True)]


def fields(measured: AttemptTimes) -> dict[str, Any]:
    """Return the measured fields of an Outcome."""
    clock, losses = measured.clock, measured.losses
    trained = max((sum(rank.step_s) for rank in measured.ranks), default=0.0)
    return {
        "unit": measured.unit,
        "units_per_sample": measured.units,
        "loss": losses[-1][1] if losses else None,
        "figures": figures(measured),
        "curve": curve(measured),
        "timeline": from_clock(clock),
        "workers": [placed(rank, measured.warm_up) for rank in measured.ranks],
        "seconds": {"start_up": round(clock.worker - clock.submitted, 3), "train": round(trained, 3)},
    }


def metrics(outcome: Outcome) -> dict[str, float]:
    """Return a finished run's figures as Ray Train's metrics, without those that were not measured."""
    values: dict[str, float | None] = {"step": outcome.step, "loss": outcome.loss, **(outcome.evaluation or {})}
    if (measured := outcome.figures) is not None:
        rates = {"units_per_s", "units_per_s_per_worker", "steps_per_s", "mfu", "data_wait"}
        values |= measured.model_dump(include=rates | {"compile_s", "warm_up_s", "peak_memory"})
        values |= {f"step_{name}_s": value for name, value in measured.step_s if name != "mean"}
        if measured.communication:
            values["exposed_communication"] = measured.communication.exposed
    return {name: float(value) for name, value in values.items() if value is not None}


def figures(measured: AttemptTimes) -> TrainFigures | None:
    """Return the figures over the steps after the warm-up, or None if there was no such step."""
    ranks, clock, warm_up = measured.ranks, measured.clock, measured.warm_up
    slowest = measured.slowest_steps[warm_up:]
    if not slowest:
        return None
    units = measured.batch * measured.units * len(slowest)
    # A global batch ends with its slowest rank, so the rank with the longest total time counts.
    seconds = max(sum(rank.step_s[warm_up:]) for rank in ranks)
    rate = units / seconds
    gpu, *others = {rank.worker.gpu for rank in ranks}
    sample_flops = measured.flops_per_sample
    flops = None if sample_flops is None else sample_flops / measured.units
    most = peak(gpu) if gpu and not others else None
    memory = [rank.peak_memory for rank in ranks if rank.peak_memory is not None]
    scaling = None
    if (single := measured.single) is not None:
        efficiency = rate / (len(ranks) * single.units_per_s)
        scaling = Scaling(efficiency=efficiency, single_units_per_s=single.units_per_s, file=single.file)
    return TrainFigures(
        steps=len(slowest),
        warm_up_steps=warm_up,
        units=units,
        units_per_s=rate,
        units_per_s_per_worker=rate / len(ranks),
        steps_per_s=len(slowest) / seconds,
        step_s=StepTime(
            mean=fmean(slowest), p50=percentile(slowest, 50), p95=percentile(slowest, 95), max=max(slowest)
        ),
        flops_per_unit=flops,
        peak_flops=most,
        mfu=rate / len(ranks) * flops / most if most is not None and flops is not None else None,
        data_wait=max(sum(rank.wait_s[warm_up:]) / sum(rank.step_s[warm_up:]) for rank in ranks),
        compile_s=max(0.0, clock.compiled - clock.restored) if clock.compiled and clock.restored else None,
        warm_up_s=max(sum(rank.step_s[:warm_up]) for rank in ranks),
        peak_memory=max(memory) if memory else None,
        communication=measured.communication,
        scaling=scaling,
        stragglers=stragglers(ranks, warm_up),
    )


def peak(gpu: str) -> float | None:
    """Return the dense bf16 peak in FLOP/s of a GPU by its CUDA name ("NVIDIA H200"), or None if it is unknown.

    The table is of SXM modules: PCIe cards have similar names and lower peaks.
    """
    words = gpu.replace("-", " ").upper().split()
    if "PCIE" in words or "NVL" in words:
        return None
    return next((rate for name, rate in PEAKS.items() if name in words), None)


def placed(rank: RankTimes, warm_up: int) -> TrainWorker:
    """Return the worker with the medians of its steps after the warm-up, if there are any."""
    step_s, wait_s, waiting_s = rank.step_s[warm_up:], rank.wait_s[warm_up:], rank.waiting_s[warm_up:]
    if not waiting_s:
        return rank.worker
    own = [step - data - waiting for step, data, waiting in zip(step_s, wait_s, waiting_s, strict=True)]
    medians = {"compute_s": median(own), "data_s": median(wait_s), "waiting_s": median(waiting_s)}
    return rank.worker.model_copy(update=medians)


def stragglers(ranks: Sequence[RankTimes], warm_up: int) -> list[Straggler] | None:
    """Return the ranks that the others wait for, the slowest first; None if they are not known, or with too few steps.

    Compares each rank's own time, a step without the wait for the reduction, with the same step's lower median over all
    ranks. So a cause that slows more than half of the ranks names none of them, and neither does noise, which rarely
    repeats.
    """
    if len(ranks) < 2 or len(ranks[0].waiting_s) - warm_up < FEWEST_STEPS:
        return None
    own = [[step - waiting for step, waiting in zip(rank.step_s, rank.waiting_s, strict=True)] for rank in ranks]
    usual = [median_low(step) for step in zip(*own, strict=True)]
    usual_data = [median_low(step) for step in zip(*(rank.wait_s for rank in ranks), strict=True)]
    slow = []
    for rank, times in zip(ranks, own, strict=True):
        late = [time - other for time, other in zip(times, usual, strict=True)][warm_up:]
        often = sum(
            lag >= max(LEAST_LAG * other, LEAST_LAG_S) for lag, other in zip(late, usual[warm_up:], strict=True)
        )
        if often < OFTEN * len(late):
            continue
        lag = median(late)
        data = median(wait - other for wait, other in zip(rank.wait_s[warm_up:], usual_data[warm_up:], strict=True))
        slow.append(
            Straggler(
                rank=rank.worker.rank,
                host=rank.worker.host,
                own_s=median(times[warm_up:]),
                usual_s=median(usual[warm_up:]),
                share=lag / median(rank.step_s[warm_up:]),
                cause="data" if data > lag / 2 else "compute",
            )
        )
    return sorted(slow, key=lambda one: -one.share)


def communication(reduced: Sequence[Sequence[float]], local: Sequence[Sequence[float]]) -> Communication:
    """Return the share of a pass that the reduction of the gradients adds, by the slowest rank's medians.

    Seconds of passes with and without it, by rank. The first pass of each kind warms up (another graph, another layout
    of the gradients) and does not count.
    """
    with_s, without_s = (max(median(times[1:]) for times in by_rank) for by_rank in (reduced, local))
    return Communication(exposed=1 - without_s / with_s, with_s=with_s, without_s=without_s, passes=len(reduced[0]) - 1)


def curve(measured: AttemptTimes) -> Curve:
    """Return loss and step times for a plot, thinned to about MOST_POINTS points each."""
    losses, times = measured.losses, measured.slowest_steps
    # A stretch does not mix warm-up and measured steps.
    warm = min(measured.warm_up, len(times))
    both = [*stretches(warm), *((warm + start, warm + stop) for start, stop in stretches(len(times) - warm))]
    steps = [
        (measured.first_step + stop - 1, median(times[start:stop]), max(times[start:stop])) for start, stop in both
    ]
    parts = [losses[start:stop] for start, stop in stretches(len(losses))]
    return Curve(loss=[(part[-1][0], fmean(value for _, value in part)) for part in parts], step_s=steps)


def stretches(count: int, most: int = MOST_POINTS) -> list[tuple[int, int]]:
    """Split `count` things into at most `most` stretches [start, stop) whose lengths differ by at most one."""
    parts = min(count, most)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
