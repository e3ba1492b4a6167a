"""A training run for people: a bar over its steps, and the figures at its end. Reads the result's JSON only."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.table import Table

from workloads.client.view import ProgressView
from workloads.events import Event
from workloads.train.result import Figures, Goodput, Result, Timeline

QUIET_S = 10.0
"""Where there is no bar, the loss is told this often."""
LEAST_S = 0.05
"""Phases and bad parts shorter than this are not worth a word on a terminal; the JSON has them."""


class TrainView(ProgressView):
    """The bar counts steps; each finished epoch is also a line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.told = time.monotonic()

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say("starting the workers")
            case "plan":
                self.begin(event["steps"], event["step"])
                resumed = f", from {_where(event)}" if event["step"] else ""
                self.say(f"training on {event['workers']} workers{resumed}")
            case "look":
                text = f"step {event['step']}: loss {event['loss']:.4f}, {_time(event['seconds'])} a step"
                self.progress.update(self.task, completed=event["step"], description=text)
                if not self.console.is_terminal and time.monotonic() - self.told >= QUIET_S:
                    self.told = time.monotonic()
                    self.note(text)
            case "epoch":
                accuracy = f", test accuracy {event['accuracy']:.4f}" if "accuracy" in event else ""
                self.note(f"epoch {event['epoch']}: loss {event['loss']:.4f}{accuracy}, {event['seconds']:.2f} s")
            case "failure":
                kind = "machines were taken away" if event["preemption"] else "failed"
                self.note(f"ranks {', '.join(map(str, event['ranks']))} {kind}: going on from the last checkpoint")
            case "preempted":
                self.note(f"{event['reason']}: a checkpoint was written at step {event['step']}, going on from it")


def show(document: dict[str, Any], console: Console) -> None:
    """Print the figures, or nothing but the reason where training did not begin."""
    result = Result.model_validate(document)
    if result.world and result.step:
        console.print(_heading(result), highlight=False, soft_wrap=True)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name, text in lines(result):
            table.add_row(name, text)
        console.print(table, highlight=False)
    console.print(result.reason, style="red" if result.exit_code else "green", markup=False, soft_wrap=True)


def lines(result: Result) -> list[tuple[str, str]]:
    """What there is to say, by name; what one would look for and was not measured is said to be missing."""
    found: list[tuple[str, str]] = []
    if result.figures:
        found += _figures(result.figures, result.world or 1)
    elif result.step:
        found.append(("speed", "not measured: no step after the warm-up"))
    if (compiled := (result.task or {}).get("compile")) is not None:
        found.append(("graphs", _graphs(compiled)))
    if result.gradients_equal is not None:
        found.append(("gradients", f"equal on all ranks, bit for bit, at {result.gradients_equal} steps"))
    if result.curve and result.curve.loss:
        found.append(("loss", f"{result.curve.loss[0][1]:.4f} at first, {result.loss:.4f} in the end"))
    if result.timeline:
        found.append(("first step", timeline_line(result.timeline)))
    if result.goodput:
        found.append(("goodput", goodput_line(result.goodput)))
    if result.survival and (result.survival.get("failures") or result.survival.get("preemptions")):
        survival = result.survival
        lost = f"{survival['lost_steps']} steps lost"
        found.append(("survived", f"{survival['failures']} failures, {survival['preemptions']} preemptions, {lost}"))
    found.append(("checkpoints", f"{result.spec['storage']}/{result.spec['name']}"))
    return found


def _figures(figures: Figures, world: int) -> list[tuple[str, str]]:
    step = figures.step_s
    mfu = f"{100 * figures.mfu:.1f} % of the GPU's bf16 peak" if figures.mfu is not None else _no_mfu(figures)
    each, steps = rate(figures.images_per_s_per_worker), f"{figures.steps_per_s:.2f} steps/s"
    measured = f"{figures.steps} steps after {figures.warm_up_steps} of warm-up"
    found = [
        ("speed", f"{rate(figures.images_per_s)} img/s over {world} workers, {each} each, {steps}"),
        ("step", f"p50 {_time(step.p50)}, p95 {_time(step.p95)}, max {_time(step.max)} ({measured})"),
        ("MFU", mfu),
        ("data", f"waited for {100 * figures.data_wait:.1f} % of the time"),
    ]
    if (comm := figures.communication) is not None:
        exposed = f"{100 * comm.exposed:.1f} % of a pass exposed" if comm.exposed > 0 else "none exposed"
        passes = f"{_time(comm.with_s)} with it, {_time(comm.without_s)} without, {comm.passes} passes each"
        found.append(("gradients' reduction", f"{exposed}: {passes}"))
    compiled = f"{_time(figures.compile_s)} to compile, " if figures.compile_s is not None else ""
    found.append(("before", f"{compiled}{_time(figures.warm_up_s)} of warm-up, in no average"))
    if figures.peak_memory is not None:
        found.append(("peak memory", f"{figures.peak_memory / 2**30:.1f} GiB on the fullest GPU"))
    if (scaling := figures.scaling) is not None:
        alone = f"{world} × {rate(scaling.single_images_per_s)} img/s ({scaling.file})"
        found.append(("scaling", f"{100 * scaling.efficiency:.1f} % of {alone}"))
    return found


def timeline_line(timeline: Timeline) -> str:
    """`after 45.3 s: cluster formed 2.1 s, …`."""
    parts = [f"{phase.name} {_time(phase.seconds)}" for phase in timeline.phases if phase.seconds >= LEAST_S]
    return f"after {_time(timeline.ended - timeline.began)}: {', '.join(parts)}"


def goodput_line(goodput: Goodput) -> str:
    """`52.3 % of 66.0 s; start 20.1 s, …`, the largest loss first."""
    bad = {name: s for name, s in goodput.parts_s.items() if name != "productive" and s >= LEAST_S}
    parts = [f"{name.replace('_', ' ')} {_time(bad[name])}" for name in sorted(bad, key=lambda name: -bad[name])]
    lost = f"; {', '.join(parts)}" if parts else ""
    return f"{100 * goodput.share:.1f} % of {_time(goodput.wall_s)}{lost}"


def rate(images_per_s: float) -> str:
    """Four digits that count, no more: 12,345 or 12.34."""
    return f"{images_per_s:,.0f}" if images_per_s >= 1000 else f"{images_per_s:.4g}"


def _graphs(compiled: dict[str, Any]) -> str:
    if compiled["way"] == "off":
        return "none: not compiled"
    parts = f"{compiled['parts']} after the split at DDP's buckets"
    return f"{compiled['graphs']} compiled by {compiled['backend']}, {parts}; {compiled['graph_breaks']} graph breaks"


def _heading(result: Result) -> str:
    preset = (result.spec.get("extra") or {}).get("preset")
    size = (result.spec.get("extra") or {}).get("size")
    parts = [
        " ".join(filter(None, [result.model, size])),
        f"preset {preset}" if preset else "",
        f"{result.step} of {result.steps} steps of {result.batch} images on {result.world} workers ({result.backend})",
        f"from step {result.resumed_at}" if result.resumed_at is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _no_mfu(figures: Figures) -> str:
    if figures.flops_per_image is None:
        return "none: nobody counted this model's operations"
    return "none: no peak is known for this device"


def _time(seconds: float) -> str:
    """`25.9 ms`, `1.25 s`, `12.5 s`, `3 min 20 s`."""
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _where(event: Event) -> str:
    """Where a resumed run goes on: at an epoch where it stopped at the end of one."""
    step, done, epochs = event["step"], event["done"], event.get("epochs")
    if done and epochs and step == event["steps"] // epochs * done:
        return f"epoch {done + 1}"
    return f"step {step}"
