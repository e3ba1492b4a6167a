"""Figures of a training run, from what every rank recorded, and the fields of its result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from workloads.statistics import percentile
from workloads.train.convnext.flops import mfu, peak
from workloads.train.options import Single
from workloads.train.result import (
    Communication,
    Curve,
    Figures,
    Probe,
    RankRecord,
    Record,
    Scaling,
    StepTime,
)
from workloads.train.timeline import from_clock

MOST_POINTS = 400
"""Points of a curve in the result: as many as a plot can show."""


def fields(record: Record, total_s: float, single: Single | None = None) -> dict[str, Any]:
    """Return the fields of a Result that come from a Record. `total_s` is the driver's whole time."""
    clock, losses = record.clock, record.losses
    resumed, epoch_steps = record.resumed_from, record.epoch_steps
    trained = max((sum(rank.step_s) for rank in record.ranks), default=0.0)
    same = ("world", "device", "batch", "steps", "step", "epoch_steps", "stopped", "parameters", "task")
    return {name: getattr(record, name) for name in same} | {
        "resumed_at": resumed,
        "resumed_from": resumed // epoch_steps if resumed is not None and epoch_steps else None,
        "loss": losses[-1][1] if losses else None,
        "accuracy": record.evaluation.get("accuracy"),
        "evaluation": record.evaluation or None,
        "epochs": record.history,
        "gradients_equal": record.gradients,
        "figures": figures(record, single),
        "curve": curve(record),
        "timeline": from_clock(clock),
        "workers": [rank.worker for rank in record.ranks],
        "seconds": {
            "start_up": round(clock.worker - clock.submitted, 3),
            "train": round(trained, 3),
            "total": round(total_s, 3),
        },
    }


def metrics(record: Record) -> dict[str, float]:
    """Return a finished run's figures as Ray Train's metrics, without those that were not measured."""
    found: dict[str, float | None] = {"step": record.step, **record.evaluation}
    if record.losses:
        found["loss"] = record.losses[-1][1]
    if (measured := figures(record)) is not None:
        same = ("images_per_s", "images_per_s_per_worker", "steps_per_s", "mfu", "data_wait", "compile_s", "warm_up_s")
        found |= {name: getattr(measured, name) for name in (*same, "peak_memory")}
        found |= {f"step_{name}_s": getattr(measured.step_s, name) for name in ("p50", "p95", "max")}
        if measured.communication:
            found["exposed_communication"] = measured.communication.exposed
    return {name: float(value) for name, value in found.items() if value is not None}


def figures(record: Record, single: Single | None = None) -> Figures | None:
    """Return the figures over the steps after the warm-up, or None if there was no such step."""
    ranks, clock = record.ranks, record.clock
    warm_up = _warm_up(ranks)
    slowest = slowest_steps(ranks)[warm_up:]
    if not slowest:
        return None
    images = record.batch * len(slowest)
    # A global batch ends with its slowest rank, so the rank with the longest total time counts.
    seconds = max(sum(rank.step_s[warm_up:]) for rank in ranks)
    rate = images / seconds
    flops, most = record.flops_per_sample, _peak(ranks)
    memory = [rank.peak_memory for rank in ranks if rank.peak_memory is not None]
    return Figures(
        steps=len(slowest),
        warm_up_steps=warm_up,
        images=images,
        images_per_s=rate,
        images_per_s_per_worker=rate / record.world,
        steps_per_s=len(slowest) / seconds,
        step_s=StepTime(
            mean=fmean(slowest), p50=percentile(slowest, 50), p95=percentile(slowest, 95), max=max(slowest)
        ),
        flops_per_image=flops,
        peak_flops=most,
        mfu=mfu(rate / record.world, flops, most) if most is not None and flops is not None else None,
        data_wait=max(_share(rank.wait_s[warm_up:], rank.step_s[warm_up:]) for rank in ranks),
        compile_s=max(0.0, clock.compiled - clock.restored) if clock.compiled and clock.restored else None,
        warm_up_s=max(sum(rank.step_s[:warm_up]) for rank in ranks),
        peak_memory=max(memory) if memory else None,
        communication=communication(record.probe),
        scaling=scaling(rate, record.world, single),
    )


def slowest_steps(ranks: Sequence[RankRecord]) -> list[float]:
    """Return the seconds of each step on its slowest rank, for the steps that every rank finished."""
    return [max(times) for times in zip(*(rank.step_s for rank in ranks), strict=False)]


def communication(probe: Probe | None) -> Communication | None:
    """Return the share of a pass that the reduction adds, by the slowest rank's medians, or None if not measured.

    The first pass of each kind warms up (another graph, another layout of the gradients) and does not count.
    """
    if probe is None:
        return None
    with_s, without_s = _slowest_median(probe.with_s), _slowest_median(probe.without_s)
    if with_s is None or without_s is None:
        return None
    passes = min(len(times) for times in (*probe.with_s, *probe.without_s)) - 1
    return Communication(exposed=1 - without_s / with_s, with_s=with_s, without_s=without_s, passes=passes)


def scaling(images_per_s: float, world: int, single: Single | None) -> Scaling | None:
    """Return the rate over `world` times a single worker's, or None without that rate."""
    if single is None:
        return None
    efficiency = images_per_s / (world * single.images_per_s)
    return Scaling(efficiency=efficiency, single_images_per_s=single.images_per_s, file=single.file)


def curve(record: Record) -> Curve:
    """Return loss and step times for a plot, thinned to about MOST_POINTS points each."""
    losses, ranks, steps = record.losses, record.ranks, []
    if ranks:
        times, first = slowest_steps(ranks), ranks[0].first_step
        # A stretch does not mix warm-up and measured steps.
        warm = min(_warm_up(ranks), len(times))
        for start, stop in [*stretches(warm), *((warm + a, warm + b) for a, b in stretches(len(times) - warm))]:
            stretch = times[start:stop]
            steps.append((first + stop - 1, median(stretch), max(stretch)))
    parts = [losses[start:stop] for start, stop in stretches(len(losses))]
    return Curve(loss=[(part[-1][0], fmean(value for _, value in part)) for part in parts], step_s=steps)


def stretches(count: int, most: int = MOST_POINTS) -> list[tuple[int, int]]:
    """Split `count` things into at most `most` stretches [start, stop) whose lengths differ by at most one."""
    parts = min(count, most)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def _warm_up(ranks: Sequence[RankRecord]) -> int:
    """Return the longest warm-up of any rank: a step counts only if it is warm on all of them."""
    return max((rank.warm_up for rank in ranks), default=0)


def _peak(ranks: Sequence[RankRecord]) -> float | None:
    """Return the dense bf16 peak of the ranks' GPU in FLOP/s, or None if it is unknown or the GPUs differ."""
    gpus = {rank.worker.gpu for rank in ranks}
    gpu = ranks[0].worker.gpu
    return peak(gpu, "bf16") if len(gpus) == 1 and gpu is not None else None


def _slowest_median(by_rank: Sequence[Sequence[float]]) -> float | None:
    medians = [median(times[1:]) for times in by_rank if len(times) > 1]
    return max(medians) if medians and len(medians) == len(by_rank) else None


def _share(part: Sequence[float], whole: Sequence[float]) -> float:
    total = sum(whole)
    return sum(part) / total if total else 0.0
