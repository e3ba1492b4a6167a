"""The figures of a training run, from what every rank recorded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from workloads.statistics import percentile
from workloads.train.convnext.flops import mfu, peak
from workloads.train.records import Clock, Probe, RankRecord, Record
from workloads.train.result import Communication, Curve, Figures, Scaling, StepTime

MOST_POINTS = 400
"""Points of a curve in the result: as many as a plot can show."""


@dataclass(frozen=True)
class Single:
    """What one worker did alone, for the scaling efficiency: images/s, and the result it was read from."""

    images_per_s: float
    file: str


def figures(record: Record, single: Single | None = None) -> Figures | None:
    """The figures over the steps after the warm-up; None where there was no such step."""
    ranks = record["ranks"]
    warm_up = _warm_up(ranks)
    slowest = slowest_steps(ranks)[warm_up:]
    if not slowest:
        return None
    images = record["batch"] * len(slowest)
    # A global batch is done when its last rank is: the rank that took longest for all of them counts.
    seconds = max(sum(rank["step_s"][warm_up:]) for rank in ranks)
    rate = images / seconds
    flops = record["flops_per_sample"]
    most = _peak(ranks)
    memory = [rank["peak_memory"] for rank in ranks if rank["peak_memory"] is not None]
    return Figures(
        steps=len(slowest),
        warm_up_steps=warm_up,
        images=images,
        images_per_s=rate,
        images_per_s_per_worker=rate / record["world"],
        steps_per_s=len(slowest) / seconds,
        step_s=StepTime(
            mean=fmean(slowest), p50=percentile(slowest, 50), p95=percentile(slowest, 95), max=max(slowest)
        ),
        flops_per_image=flops,
        peak_flops=most,
        mfu=mfu(rate / record["world"], flops, most) if most is not None and flops is not None else None,
        data_wait=max(_share(rank["wait_s"][warm_up:], rank["step_s"][warm_up:]) for rank in ranks),
        compile_s=_compile_s(record["clock"]),
        warm_up_s=max(sum(rank["step_s"][:warm_up]) for rank in ranks),
        peak_memory=max(memory) if memory else None,
        communication=communication(record["probe"]),
        scaling=scaling(rate, record["world"], single),
    )


def slowest_steps(ranks: Sequence[RankRecord]) -> list[float]:
    """The seconds of each step on the rank that was slowest in it; the steps that every rank finished."""
    return [max(times) for times in zip(*(rank["step_s"] for rank in ranks), strict=False)]


def communication(probe: Probe | None) -> Communication | None:
    """The share of a pass that the reduction adds to it, by the slowest rank's medians; None: not measured.

    The first pass of each kind warms up (another graph, another layout of the gradients) and does not count.
    """
    if probe is None:
        return None
    with_s, without_s = _slowest_median(probe["with_s"]), _slowest_median(probe["without_s"])
    if with_s is None or without_s is None:
        return None
    passes = min(len(times) for times in (*probe["with_s"], *probe["without_s"])) - 1
    return Communication(exposed=1 - without_s / with_s, with_s=with_s, without_s=without_s, passes=passes)


def scaling(images_per_s: float, world: int, single: Single | None) -> Scaling | None:
    """How much of `world` times a single worker's rate is left; None without that rate."""
    if single is None:
        return None
    return Scaling(
        efficiency=images_per_s / (world * single.images_per_s),
        single_images_per_s=single.images_per_s,
        file=single.file,
    )


def curve(record: Record) -> Curve:
    """Loss and step times for a plot, thinned to at most MOST_POINTS points each."""
    losses = record["losses"]
    ranks = record["ranks"]
    steps = []
    if ranks:
        times = slowest_steps(ranks)
        first = ranks[0]["first_step"]
        # A stretch is either of the warm-up or measured: the one must not hide in the other.
        warm = min(_warm_up(ranks), len(times))
        parts = [*stretches(warm), *((warm + a, warm + b) for a, b in stretches(len(times) - warm))]
        for start, stop in parts:
            stretch = times[start:stop]
            steps.append((first + stop - 1, median(stretch), max(stretch)))
    loss = []
    for start, stop in stretches(len(losses)):
        part = losses[start:stop]
        loss.append((part[-1][0], fmean(value for _, value in part)))
    return Curve(loss=loss, step_s=steps)


def stretches(count: int, most: int = MOST_POINTS) -> list[tuple[int, int]]:
    """`count` things in at most `most` stretches [start, stop) of lengths that differ by one at most, all covered."""
    parts = min(count, most)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def _warm_up(ranks: Sequence[RankRecord]) -> int:
    """The longest warm-up of any rank: a step counts only where it is warm on all."""
    return max((rank["warm_up"] for rank in ranks), default=0)


def _peak(ranks: Sequence[RankRecord]) -> float | None:
    """The dense bf16 peak of the ranks' GPU in FLOP/s; None where they differ or it is in no data sheet we read."""
    gpus = {rank["gpu"] for rank in ranks}
    gpu = ranks[0]["gpu"]
    return peak(gpu, "bf16") if len(gpus) == 1 and gpu is not None else None


def _compile_s(clock: Clock) -> float | None:
    compiled = clock["compiled"]
    return None if compiled is None else max(0.0, compiled - clock["restored"])


def _slowest_median(by_rank: Sequence[Sequence[float]]) -> float | None:
    medians = [median(times[1:]) for times in by_rank if len(times) > 1]
    return max(medians) if medians and len(medians) == len(by_rank) else None


def _share(part: Sequence[float], whole: Sequence[float]) -> float:
    total = sum(whole)
    return sum(part) / total if total else 0.0
