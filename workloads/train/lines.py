"""Text of a training run: its progress, its figures, its ranks. Pure, without rich: ranks of torchrun print it."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.results.events import Event
from workloads.train.figures import FEWEST_STEPS
from workloads.train.options import ConvNeXtOptions, GPTOptions
from workloads.train.result import Goodput, Straggler, Timeline, TrainFigures, TrainResult, TrainWorker

SHOWN = 3  # stragglers; the JSON has all of them
LEAST_S = 0.05
"""Phases and parts shorter than this are left out on a terminal; the JSON has them."""
PER_S = {"images": "img/s", "tokens": "tokens/s"}


def progress(event: Event) -> str | None:
    """Return the line of an event of the training loop, or None for one of another kind."""
    match event["kind"]:
        case "note":
            text: str = event["text"]
            return text
        case "plan":
            resumed = f", from {_where(event)}" if event["step"] else ""
            return f"training on {event['workers']} workers{resumed}"
        case "look":
            return f"step {event['step']}: loss {event['loss']:.4f}, {duration(event['seconds'])} a step"
        case "epoch":
            name, extra = f"epoch {event['epoch']}", ""
            if "accuracy" in event:
                extra = f", test accuracy {event['accuracy']:.4f}"
            if "validation_loss" in event:
                name = f"step {event['step']}"
                extra = f", validation loss {event['validation_loss']:.4f}"
            return f"{name}: loss {event['loss']:.4f}{extra}, {event['seconds']:.2f} s"
    return None


def lines(result: TrainResult) -> list[tuple[str, str]]:
    """Return the lines of the report by name, with the reason for an expected figure that was not measured."""
    rows: list[tuple[str, str]] = []
    if result.figures:
        rows += _figures(result.figures, result.world or 1, PER_S[result.unit])
        rows += _ranks(result.workers or [], result.figures.stragglers)
    elif result.step:
        rows.append(("speed", "not measured: no step after the warm-up"))
    if (compiled := (result.task or {}).get("compile")) is not None:
        rows.append(("graphs", _graphs(compiled)))
    if result.gradients_equal is not None:
        rows.append(("gradients", f"equal on all ranks, bit for bit, at {result.gradients_equal} steps"))
    if result.curve and result.curve.loss and result.loss is not None:
        rows.append(("loss", f"{result.curve.loss[0][1]:.4f} at first, {result.loss:.4f} in the end"))
    if result.timeline:
        rows.append(("first step", timeline_line(result.timeline)))
    if result.goodput:
        rows.append(("goodput", goodput_line(result.goodput)))
    if (survival := result.survival) and (survival.failures or survival.preemptions):
        lost = f"{survival.lost_steps} steps lost"
        rows.append(("survived", f"{survival.failures} failures, {survival.preemptions} preemptions, {lost}"))
    rows += [("skipped", f"checkpoint {label}: {why}") for label, why in (result.skipped or {}).items()]
    rows.append(("checkpoints", f"{result.spec.checkpoint_dir}/{result.spec.name}"))
    return rows


def _figures(figures: TrainFigures, world: int, per_s: str) -> list[tuple[str, str]]:
    step = figures.step_s
    if figures.mfu is not None:
        mfu = f"{100 * figures.mfu:.1f} % of the GPU's bf16 peak"
    else:
        unknown = "FLOP of this model" if figures.flops_per_unit is None else "peak of this device"
        mfu = f"none: the {unknown} is unknown"
    each, steps = rate(figures.units_per_s_per_worker), f"{figures.steps_per_s:.2f} steps/s"
    measured = f"{figures.steps} steps after {figures.warm_up_steps} of warm-up"
    rows = [
        ("speed", f"{rate(figures.units_per_s)} {per_s} over {world} workers, {each} each, {steps}"),
        ("step", f"p50 {duration(step.p50)}, p95 {duration(step.p95)}, max {duration(step.max)} ({measured})"),
        ("MFU", mfu),
        ("data", f"waited for {100 * figures.data_wait:.1f} % of the time"),
    ]
    if (comm := figures.communication) is not None:
        exposed = f"{100 * comm.exposed:.1f} % of a pass exposed" if comm.exposed > 0 else "none exposed"
        passes = f"{duration(comm.with_s)} with it, {duration(comm.without_s)} without, {comm.passes} passes each"
        rows.append(("gradients' reduction", f"{exposed}: {passes}"))
    compiled = f"{duration(figures.compile_s)} to compile, " if figures.compile_s is not None else ""
    rows.append(("before", f"{compiled}{duration(figures.warm_up_s)} of warm-up, not in the averages"))
    if figures.peak_memory is not None:
        rows.append(("peak memory", f"{figures.peak_memory / 2**30:.1f} GiB on the fullest GPU"))
    if (scaling := figures.scaling) is not None:
        alone = f"{world} × {rate(scaling.single_units_per_s)} {per_s} ({scaling.file})"
        rows.append(("scaling", f"{100 * scaling.efficiency:.1f} % of {alone}"))
    return rows


def _ranks(workers: Sequence[TrainWorker], stragglers: Sequence[Straggler] | None) -> list[tuple[str, str]]:
    """Return the lines about differences between ranks, and about unhealthy GPUs."""
    rows = []
    times = [(worker.compute_s, worker.waiting_s) for worker in workers]
    compute, waiting = ([value for value in part if value is not None] for part in zip(*times, strict=True))
    if len(compute) > 1:
        spans = [f"{duration(min(part))} to {duration(max(part))}" for part in (compute, waiting)]
        unknown = f"; fewer than {FEWEST_STEPS} steps show no straggler" if stragglers is None else ""
        rows.append(("ranks", f"compute {spans[0]} of a step, wait for the reduction {spans[1]}{unknown}"))
    for slow in (stragglers or [])[:SHOWN]:
        own = f"takes {duration(slow.own_s)} itself, usual are {duration(slow.usual_s)}: longer for its {slow.cause}"
        share = f"the others wait {100 * slow.share:.1f} % of a step"
        rows.append(("straggler", f"rank {slow.rank} on {slow.host} {own}; {share}"))
    if more := len((stragglers or [])[SHOWN:]):
        rows.append(("straggler", f"and {more} more"))
    for worker in workers:
        if worker.health and (troubles := worker.health.troubles):
            rows.append(("GPU", f"rank {worker.rank} on {worker.host}: {', '.join(troubles)}"))
    return rows


def timeline_line(timeline: Timeline) -> str:
    """Return `after 45.3 s: cluster formed 2.1 s, …`."""
    parts = [f"{phase.name} {duration(phase.seconds)}" for phase in timeline.phases if phase.seconds >= LEAST_S]
    return f"after {duration(timeline.ended - timeline.began)}: {', '.join(parts)}"


def goodput_line(goodput: Goodput) -> str:
    """Return `52.3 % of 66.0 s; start 20.1 s, …`, the largest loss first."""
    bad = {name: s for name, s in goodput.parts_s.items() if name != "productive" and s >= LEAST_S}
    parts = [f"{name.replace('_', ' ')} {duration(bad[name])}" for name in sorted(bad, key=lambda name: -bad[name])]
    lost = f"; {', '.join(parts)}" if parts else ""
    return f"{100 * goodput.share:.1f} % of {duration(goodput.wall_s)}{lost}"


def rate(units_per_s: float) -> str:
    """Return a rate with four significant digits: 12,345 or 12.34."""
    return f"{units_per_s:,.0f}" if units_per_s >= 1000 else f"{units_per_s:.4g}"


def _graphs(compiled: object) -> str:
    match compiled:
        case {"way": "off"}:
            return "none: not compiled"
        case {"graphs": graphs, "backend": backend, "parts": parts, "graph_breaks": breaks}:
            return f"{graphs} compiled by {backend}, {parts} after the split at DDP's buckets; {breaks} graph breaks"
    return "unknown: the result was written by another version"


def title(result: TrainResult) -> list[str]:
    """Return the model, its size and the preset, where the run has them."""
    match result.spec:
        case ConvNeXtOptions(size=size, preset=preset):
            return [result.model, size, preset]
        case GPTOptions(size=size, parallel=parallel):
            return [result.model, size, parallel]
    return [result.model]


def heading(result: TrainResult) -> str:
    """Return the model, the progress and the hardware of the training."""
    model, *rest = title(result)
    batch = f"{(result.batch or 0) * result.units_per_sample:,} {result.unit}"
    parts = [
        " ".join([model, *rest[:1]]),
        f"preset {rest[1]}" if isinstance(result.spec, ConvNeXtOptions) else "".join(rest[1:]),
        f"{result.step} of {result.steps} steps of {batch} on {result.world} workers ({result.backend})",
        f"from step {result.resumed_at}" if result.resumed_at is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """Return `25.9 ms`, `1.25 s`, `12.5 s` or `3 min 20 s`."""
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _where(event: Event) -> str:
    """Return where a resumed run continues: the epoch if it stopped at the end of one, otherwise the step."""
    step, done, epochs = event["step"], event["done"], event.get("epochs")
    if done and epochs and step == event["steps"] // epochs * done:
        return f"epoch {done + 1}"
    return f"step {step}"
