"""A run as a picture: loss and step time over its steps, where the time to the first step and all of it went."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workloads.nccl.page.figures import Palette, settings
from workloads.train.report import rate
from workloads.train.result import Result

WIDTH, HEIGHT, SCALE = 1200.0, 800.0, 1.5  # points; pixels in a point
TEXT = 11.0
LEAST = 0.012
"""Parts of a bar below this share of it are drawn, but not named."""
OTHER_COLOURS = ("#1f5fbf", "#b35900", "#6b4fa3", "#00796b", "#8a8f98", "#c2185b", "#5d4037", "#558b2f", "#37474f")


def picture(result: Result, kind: Literal["png", "svg"] = "png") -> bytes:
    """The picture, 1800 × 1200 pixels or as SVG; the same result gives the same picture."""
    palette = Palette()
    with settings():
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72 * SCALE, facecolor="#ffffff")
        _head(drawing, result, palette)
        curve = result.curve
        left = _axes(drawing, 70, 300, 500, 360, "loss", palette)
        if curve and curve.loss:
            steps, values = zip(*curve.loss, strict=True)
            left.plot(steps, values, color=palette.line(0), linewidth=1.8, marker=_marker(len(steps)), markersize=4)
            left.set_ylim(min(0.0, *values), max(values) * 1.08 or 1)
            _end(left, f"{values[-1]:.4f}", steps[-1], values[-1], palette.line(0))
        else:
            _empty(left, "no loss was recorded", palette)
        right = _axes(drawing, 660, 300, 500, 360, "step time, ms", palette)
        if curve and curve.step_s:
            _step_times(right, result, palette)
        else:
            _empty(right, "no step was timed", palette)
        if result.timeline:
            phases = {phase.name: phase.seconds for phase in result.timeline.phases}
            whole = result.timeline.ended - result.timeline.began
            _bar(drawing, 70, 158, f"to the first step: {_seconds(whole)}", phases, palette, OTHER_COLOURS[1:])
        if result.goodput:
            parts = result.goodput.parts_s
            title = f"goodput {100 * result.goodput.share:.1f} %: where {_seconds(result.goodput.wall_s)} went"
            _bar(drawing, 70, 52, title, parts, palette, OTHER_COLOURS)
        written = io.BytesIO()
        # Neither date nor program: the same run is the same file.
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        drawing.savefig(written, format=kind, metadata=metadata)
    return written.getvalue()


def _head(drawing: Figure, result: Result, palette: Palette) -> None:
    extra = result.spec.get("extra") or {}
    name = " ".join(str(part) for part in (result.model, extra.get("size"), extra.get("preset")) if part)
    _say(drawing, 30, f"{name or 'training'}: {result.spec['name']}", 20, palette.ink, bold=True)
    tone = palette.bad if result.exit_code else palette.ink
    _say(drawing, 58, textwrap.shorten(result.reason, 130, placeholder=" …"), 14, tone)
    told = []
    if result.figures:
        figures = result.figures
        told.append(f"{rate(figures.images_per_s)} img/s, {rate(figures.images_per_s_per_worker)} per worker")
        if figures.mfu is not None:
            told.append(f"MFU {100 * figures.mfu:.1f} %")
        told.append(f"data wait {100 * figures.data_wait:.1f} %")
        if figures.communication is not None:
            told.append(f"exposed communication {100 * max(0.0, figures.communication.exposed):.1f} %")
    gpus = sorted({worker.gpu or "CPU" for worker in result.workers or []})
    told.append(f"{result.world or 0} workers, {', '.join(gpus) or 'no device'}, {result.backend or 'no backend'}")
    _say(drawing, 82, " · ".join(told), 12, palette.soft)


def _step_times(axes: Axes, result: Result, palette: Palette) -> None:
    """Median of each stretch and the span to its longest; the axis is cut where warm-up would flatten the rest."""
    assert result.curve is not None
    begin, warm = result.resumed_at or 0, result.figures.warm_up_steps if result.figures else 0
    stretches = [(step, 1000 * middle, 1000 * longest) for step, middle, longest in result.curve.step_s]
    before = [longest for step, _, longest in stretches if step < begin + warm]
    steps, middle, longest = zip(*[row for row in stretches if row[0] >= begin + warm] or stretches, strict=True)
    # A single step that hung for a minute must not flatten all others.
    most = max(longest)
    top = min(most, 3000 * result.figures.step_s.p95) * 1.15 if result.figures else most * 1.15
    axes.fill_between(steps, middle, longest, color=palette.line(1), alpha=0.22, linewidth=0)
    axes.plot(steps, middle, color=palette.line(1), linewidth=1.8, marker=_marker(len(steps)), markersize=4)
    axes.set_ylim(0, top or 1)
    told = [f"longest {most:,.4g}"] if most > top else []
    if before and warm and len(before) < len(stretches):
        axes.set_xlim(begin - 0.02 * (steps[-1] - begin + 1), None)
        axes.axvspan(begin, begin + warm, color=palette.grid, alpha=0.8, linewidth=0)
        told.append(f"grey: {warm} steps of warm-up, up to {max(before):,.4g}")
    if told:
        axes.annotate(
            ", ".join(told),
            (1, 1),
            xycoords="axes fraction",
            xytext=(0, 6),
            textcoords="offset points",
            ha="right",
            fontsize=TEXT - 1,
            color=palette.soft,
        )
    if result.figures:
        p50, p95 = 1000 * result.figures.step_s.p50, 1000 * result.figures.step_s.p95
        for name, value in (("p50", p50), ("p95", p95)):
            axes.axhline(value, color=palette.soft, linewidth=0.9, dashes=(4, 3))
            gap = 11 if name == "p95" and p95 - p50 < top / 25 else 0
            _end(axes, f"{name} {value:,.4g}", None, value, palette.soft, up=gap)


def _bar(
    drawing: Figure,
    left: float,
    bottom: float,
    title: str,
    parts: Mapping[str, float],
    palette: Palette,
    colours: tuple[str, ...],
) -> None:
    """Seconds by name as one horizontal bar; names below it, those of slivers left out."""
    total = sum(parts.values())
    _say(drawing, HEIGHT - bottom - 54, title, 13, palette.ink, bold=True, left=left)
    if total <= 0:
        return
    axes = drawing.add_axes((left / WIDTH, (bottom + 14) / HEIGHT, (WIDTH - left - 40) / WIDTH, 28 / HEIGHT))
    axes.set_axis_off()
    axes.set_xlim(0, total)
    at, labels = 0.0, []
    for index, (name, seconds) in enumerate(parts.items()):
        colour = colours[index % len(colours)]
        axes.barh(0, seconds, left=at, height=1, color=colour, linewidth=0)
        if seconds >= LEAST * total:
            labels.append((name.replace("_", " "), seconds, colour))
        at += seconds
    x = left
    for name, seconds, colour in labels:
        text = f"{name} {_seconds(seconds)}"
        drawing.text(x / WIDTH, (bottom + 2) / HEIGHT, "■", fontsize=TEXT, color=colour, va="center")
        drawing.text((x + 12) / WIDTH, (bottom + 2) / HEIGHT, text, fontsize=TEXT, color=palette.ink, va="center")
        x += 12 + 6.6 * len(text) + 16


def _axes(
    drawing: Figure, left: float, bottom: float, width: float, height: float, title: str, palette: Palette
) -> Axes:
    axes = drawing.add_axes((left / WIDTH, bottom / HEIGHT, (width - 70) / WIDTH, height / HEIGHT), facecolor="none")
    drawing.text(
        left / WIDTH, (bottom + height + 14) / HEIGHT, title, fontsize=13, fontweight="bold", color=palette.ink
    )
    axes.tick_params(length=0, labelsize=TEXT, labelcolor=palette.soft, pad=4)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(palette.soft)
    axes.yaxis.grid(True, color=palette.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel("step", fontsize=TEXT, color=palette.soft)
    return axes


def _end(axes: Axes, text: str, x: float | None, y: float, colour: str, up: float = 0.0) -> None:
    """A name at the right end, at the height of its value."""
    axes.annotate(
        text,
        (1, y) if x is None else (x, y),
        xycoords=("axes fraction", "data") if x is None else "data",
        xytext=(6, up),
        textcoords="offset points",
        va="center",
        fontsize=TEXT,
        color=colour,
        annotation_clip=False,
    )


def _empty(axes: Axes, text: str, palette: Palette) -> None:
    axes.annotate(text, (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=TEXT, color=palette.soft)


def _marker(points: int) -> str:
    """Few points are seen one by one, many as a line."""
    return "o" if points <= 40 else ""


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.2g} s"
    return f"{seconds:.3g} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


def _say(
    drawing: Figure, down: float, text: str, size: float, colour: str, *, bold: bool = False, left: float = 70
) -> None:
    weight = "bold" if bold else "normal"
    drawing.text(left / WIDTH, 1 - down / HEIGHT, text, fontsize=size, color=colour, fontweight=weight, va="center")
