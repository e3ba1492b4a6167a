"""Picture of a run: loss and step time over its steps, the time to its first step, and its goodput."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workloads.results.files import write_file
from workloads.terminal.plots import BAD, GRID, INK, LINES, SOFT, encoded, style
from workloads.train.lines import PER_S, duration, rate, title
from workloads.train.result import TrainResult

LEAST = 0.012
"""Share of a bar below which a part has no label."""
COLORS = (*LINES, "#8a8f98", "#c2185b", "#5d4037", "#558b2f", "#37474f")


def picture(result: TrainResult, kind: Literal["png", "svg"] = "png") -> bytes:
    """Draw a result, as 1800 × 1200 pixels or as SVG. The same result is always the same file."""
    with style():
        drawing = Figure(figsize=(1200 / 72, 800 / 72), dpi=108)
        _head(drawing, result)
        grid = drawing.add_gridspec(
            4, 2, height_ratios=(300, 60, 28, 28), left=0.06, right=0.92, top=0.83, bottom=0.07, hspace=0.65, wspace=0.3
        )
        _loss(drawing.add_subplot(grid[0, 0]), result)
        _step_times(drawing.add_subplot(grid[0, 1]), result)
        _ranks(drawing.add_subplot(grid[1, :]), result)
        if (timeline := result.timeline) is not None:
            phases = {phase.name: phase.seconds for phase in timeline.phases}
            name = f"to the first step: {duration(timeline.ended - timeline.began)}"
            _bar(drawing.add_subplot(grid[2, :]), name, phases, COLORS[1:])
        if (goodput := result.goodput) is not None:
            name = f"goodput {100 * goodput.share:.1f} %: where {duration(goodput.wall_s)} went"
            _bar(drawing.add_subplot(grid[3, :]), name, goodput.parts_s, COLORS)
        return encoded(drawing, kind)


def write_report(result: TrainResult, folder: Path) -> list[Path]:
    """Write run.png and result.json to `folder`, and return their paths."""
    return [
        write_file(folder / "run.png", picture(result)),
        write_file(folder / "result.json", result.as_json() + "\n"),
    ]


def _head(drawing: Figure, result: TrainResult) -> None:
    name = f"{' '.join(title(result))}: {result.spec.name}"
    drawing.text(0.06, 0.962, name, fontsize=20, fontweight="bold", va="center")
    reason = textwrap.shorten(result.reason, 130, placeholder=" …")
    drawing.text(0.06, 0.928, reason, fontsize=14, color=BAD if result.exit_code else INK, va="center")
    facts = []
    if figures := result.figures:
        each = rate(figures.units_per_s_per_worker)
        facts.append(f"{rate(figures.units_per_s)} {PER_S[result.unit]}, {each} per worker")
        if figures.mfu is not None:
            facts.append(f"MFU {100 * figures.mfu:.1f} %")
        facts.append(f"data wait {100 * figures.data_wait:.1f} %")
        if figures.communication is not None:
            facts.append(f"exposed communication {100 * max(0.0, figures.communication.exposed):.1f} %")
    gpus = sorted({worker.gpu or "CPU" for worker in result.workers or []})
    facts.append(f"{result.world or 0} workers, {', '.join(gpus) or 'no device'}, {result.backend or 'no backend'}")
    drawing.text(0.06, 0.898, " · ".join(facts), fontsize=12, color=SOFT, va="center")


def _loss(axes: Axes, result: TrainResult) -> None:
    _label(axes, "loss")
    if not result.curve or not result.curve.loss:
        _empty(axes, "no loss was recorded")
        return
    steps, values = zip(*result.curve.loss, strict=True)
    axes.plot(steps, values, color=COLORS[0], marker=_marker(len(steps)), markersize=4)
    axes.set_ylim(min(0.0, *values), max(values) * 1.08 or 1)
    _end(axes, f"{values[-1]:.4f}", steps[-1], values[-1], COLORS[0])
    held_out = [
        (row["step"], row["validation_loss"])
        for row in result.epochs or []
        if {"step", "validation_loss"} <= row.keys()
    ]
    if held_out:
        axes.plot(*zip(*held_out, strict=True), color=COLORS[1], marker="o", markersize=4)
        axes.set_title(f"validation {held_out[-1][1]:.4f}", loc="right", fontsize=10, color=COLORS[1])


def _step_times(axes: Axes, result: TrainResult) -> None:
    """Draw the median of each stretch and the span to its longest step. Warm-up does not scale the axis."""
    _label(axes, "step time, ms")
    if not result.curve or not result.curve.step_s:
        _empty(axes, "no step was timed")
        return
    figures = result.figures
    begin, warm = result.resumed_at or 0, figures.warm_up_steps if figures else 0
    stretches = [(step, 1000 * middle, 1000 * longest) for step, middle, longest in result.curve.step_s]
    before = [longest for step, _, longest in stretches if step < begin + warm]
    steps, middle, longest = zip(*[row for row in stretches if row[0] >= begin + warm] or stretches, strict=True)
    # A single step that hung for a minute must not flatten all others.
    most = max(longest)
    top = min(most, 3000 * figures.step_s.p95) * 1.15 if figures else most * 1.15
    axes.fill_between(steps, middle, longest, color=COLORS[1], alpha=0.22, linewidth=0)
    axes.plot(steps, middle, color=COLORS[1], marker=_marker(len(steps)), markersize=4)
    axes.set_ylim(0, top or 1)
    notes = [f"longest {most:,.4g}"] if most > top else []
    if before and warm and len(before) < len(stretches):
        axes.set_xlim(begin - 0.02 * (steps[-1] - begin + 1), None)
        axes.axvspan(begin, begin + warm, color=GRID, alpha=0.8, linewidth=0)
        notes.append(f"gray: {warm} steps of warm-up, up to {max(before):,.4g}")
    axes.set_title(", ".join(notes), loc="right", fontsize=10, fontweight="normal", color=SOFT)
    if figures:
        p50, p95 = 1000 * figures.step_s.p50, 1000 * figures.step_s.p95
        for name, value in (("p50", p50), ("p95", p95)):
            axes.axhline(value, color=SOFT, linewidth=0.9, dashes=(4, 3))
            _end(
                axes, f"{name} {value:,.4g}", None, value, SOFT, up=11 if name == "p95" and p95 - p50 < top / 25 else 0
            )


def _ranks(axes: Axes, result: TrainResult) -> None:
    """Draw what a step is on each rank: own work, the wait for data, the wait for the others. Stragglers are red."""
    axes.set_title("a step of each rank, ms: compute (blue), data (violet), wait for the reduction (gray)")
    timed = [worker for worker in result.workers or [] if worker.compute_s is not None]
    if not timed:
        _empty(axes, "no step was timed")
        axes.set_axis_off()
        return
    found = (result.figures.stragglers if result.figures else None) or []
    slow = {straggler.rank for straggler in found}
    if found:
        more = f" and {len(found) - 1} more" if found[1:] else ""
        name = f"the others wait for rank {found[0].rank} on {found[0].host}{more}"
        axes.set_title(name, loc="right", fontsize=10, fontweight="normal", color=BAD)
    below = [0.0] * len(timed)
    for name, color in (("compute_s", COLORS[0]), ("data_s", COLORS[2]), ("waiting_s", GRID)):
        values = [1000 * getattr(worker, name) for worker in timed]
        own = [BAD if name != "waiting_s" and worker.rank in slow else color for worker in timed]
        axes.bar([worker.rank for worker in timed], values, bottom=below, color=own, width=0.8)
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3))


def _bar(axes: Axes, name: str, parts: Mapping[str, float], colors: tuple[str, ...]) -> None:
    """Draw seconds by name as one horizontal bar, with a legend of all but the smallest parts."""
    axes.set_axis_off()
    axes.set_title(name)
    total = sum(parts.values())
    if total <= 0:
        return
    axes.set_xlim(0, total)
    at, handles = 0.0, []
    for index, (part, seconds) in enumerate(parts.items()):
        bar = axes.barh(0, seconds, left=at, height=1, color=colors[index % len(colors)], linewidth=0)
        if seconds >= LEAST * total:
            bar.set_label(f"{part.replace('_', ' ')} {duration(seconds)}")
            handles.append(bar)
        at += seconds
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, -0.05), ncols=len(handles),
        borderpad=0, borderaxespad=0, handlelength=0.8, handletextpad=0.4, columnspacing=1.2,
    )  # fmt: skip


def _label(axes: Axes, name: str) -> None:
    axes.set_title(name)
    axes.set_xlabel("step")
    for axis, whole, form in ((axes.xaxis, True, ",.0f"), (axes.yaxis, False, ",.6g")):
        axis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: format(value, form)))


def _end(axes: Axes, text: str, x: float | None, y: float, color: str, up: float = 0.0) -> None:
    """Write a name right of `x`, or of the axes, at the height of its value."""
    place: dict[str, Any] = {"xy": (1, y), "xycoords": ("axes fraction", "data")}
    if x is not None:
        place = {"xy": (x, y), "xycoords": "data"}
    axes.annotate(
        text, xytext=(6, up), textcoords="offset points", va="center", color=color, annotation_clip=False, **place
    )


def _empty(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=SOFT)


def _marker(points: int) -> str:
    """Return markers for few points; many are a line."""
    return "o" if points <= 40 else ""
