"""The plots, on matplotlib's axes: the same for the page (SVG) and for the picture (PNG).

Positions are in points and set by hand, not by matplotlib's layout: a browser has another font than matplotlib measures
with, and what is drawn must be the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from workloads.nccl.page.groups import Group, Series
from workloads.nccl.page.reference import Line

WIDTH = 360.0  # points: what a phone shows without shrinking the text
TEXT = 11.0
DIGIT = 7.0  # points that a digit is wide, in the wider ones of the fonts that browsers have


@dataclass(frozen=True)
class Palette:
    """Colours by role; `series` tell lines of one plot apart, also for eyes that do not see red and green."""

    ink: str = "#1c2127"
    soft: str = "#5c6773"
    grid: str = "#e3e7eb"
    bad: str = "#b3261e"
    series: tuple[str, ...] = ("#1f5fbf", "#b35900", "#6b4fa3", "#00796b")

    def line(self, index: int) -> str:
        return self.series[index % len(self.series)]


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: what it is, its value, and whether it is the one to look at."""

    label: str
    value: float
    bad: bool = False


def figure(height: float) -> Figure:
    """An empty figure, as wide as a phone, `height` points high."""
    return Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor="none")


def place(drawing: Figure, left: float, bottom: float, right: float, top: float) -> Axes:
    """Axes with margins in points."""
    width, height = drawing.get_size_inches() * 72
    return drawing.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height),
        facecolor="none",
    )


def sweep(axes: Axes, group: Group, rates: Sequence[Line], floor: Line | None, palette: Palette) -> None:
    """Bandwidth over size against line rate and floor; the lines' names stand at their right ends."""
    labels: list[tuple[float, str, str]] = []
    top = 0.0
    for index, series in enumerate(group.series):
        values = [group.figure(row) for row in series.rows]
        colour = palette.line(index)
        axes.plot(
            [row.size for row in series.rows],
            values,
            color=colour,
            linewidth=1.8,
            marker="o",
            markersize=3.2,
            markeredgewidth=0,
        )
        labels.append((values[-1], f"{series.label} {short(values[-1])}".strip(), colour))
        top = max(top, *values)
    for line in rates:
        axes.axhline(line.value, color=palette.soft, linewidth=1)
        labels.append((line.value, f"{line.label} {short(line.value)}", palette.soft))
        top = max(top, line.value)
    if floor:
        axes.axhline(floor.value, color=palette.bad, linewidth=1.1, dashes=(4, 3))
        labels.append((floor.value, f"{floor.label} {short(floor.value)}", palette.bad))
        top = max(top, floor.value)
    axes.set_ylim(0, top * 1.06 or 1)
    _sizes(axes, [row.size for series in group.series for row in series.rows], palette)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    _style(axes, palette, "GB/s")
    _ends(axes, labels)


def latency(axes: Axes, lines: Sequence[Series], palette: Palette) -> None:
    """Median time of a run over small sizes; logarithmic only where the times are far apart."""
    labels = []
    for index, series in enumerate(lines):
        values = [row.iteration_us.p50 for row in series.rows]
        colour = palette.line(index)
        axes.plot(
            [row.size for row in series.rows],
            values,
            color=colour,
            linewidth=1.6,
            marker="o",
            markersize=3,
            markeredgewidth=0,
        )
        labels.append((values[-1], f"{series.label} {short(values[-1])}", colour))
    times = [row.iteration_us.p50 for series in lines for row in series.rows]
    if min(times) * 20 < max(times) and min(times) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, max(times) * 1.15 or 1)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    _sizes(axes, [row.size for series in lines for row in series.rows], palette)
    _style(axes, palette, "µs")
    _ends(axes, labels)


def bars(axes: Axes, rows: Sequence[Bar], limit: float | None, palette: Palette) -> None:
    """Horizontal bars with their values behind them, the first on top; a line at what one can carry."""
    top = max([row.value for row in rows] + ([limit] if limit else []))
    for index, row in enumerate(rows):
        colour = palette.bad if row.bad else palette.line(0)
        axes.barh(index, row.value, height=0.62, color=colour, alpha=0.85, linewidth=0)
        axes.annotate(
            short(row.value),
            (row.value, index),
            xytext=(-5, 0),
            textcoords="offset points",
            va="center",
            ha="right",
            fontsize=TEXT - 1,
            color="#ffffff",
            fontweight="bold",
        )
    if limit:
        axes.axvline(limit, color=palette.soft, linewidth=1)
        axes.annotate(
            f"line rate {short(limit)}",
            (limit, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=TEXT - 1,
            color=palette.soft,
        )
    axes.set_xlim(0, top * 1.02)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    _style(axes, palette, None, grid="x")


def cells(
    axes: Axes,
    values: Sequence[Sequence[float | None]],
    down: Sequence[str],
    across: Sequence[str],
    palette: Palette,
    bad: float,
) -> None:
    """A heat map of shares of what is best (1 is best, None is not measured): pale is good, red is below `bad`."""
    for y, line in enumerate(values):
        for x, share in enumerate(line):
            if share is None:
                continue
            colour = palette.bad if share < bad else palette.line(0)
            # From `bad` up to 1 the blue fades: what stands out is what is slow.
            strength = 0.9 if share < bad else 0.18 + 0.5 * min(1.0, max(0.0, 1 - share) / (1 - bad))
            axes.add_patch(Rectangle((x + 0.04, y + 0.06), 0.92, 0.88, color=colour, alpha=strength, linewidth=0))
    axes.set_xlim(0, len(across))
    axes.set_ylim(len(down), 0)
    width, height = _points(axes)
    # Where not every name has room, every second one is written, or every third, …
    lines = range(0, len(down), ceil(len(down) * (TEXT + 3) / height))
    columns = range(0, len(across), ceil(len(across) * (max(map(len, across)) * DIGIT + 4) / width))
    axes.set_yticks([index + 0.5 for index in lines], [down[index] for index in lines])
    axes.set_xticks([index + 0.5 for index in columns], [across[index] for index in columns])
    _style(axes, palette, None, grid=None)


def short(value: float) -> str:
    """Three digits that count, without an exponent: 326, 46.0, 0.680, 4140."""
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= least:
            return f"{value:.{digits}f}"
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def _points(axes: Axes) -> tuple[float, float]:
    """Width and height of the axes."""
    drawing = axes.get_figure(root=True)
    assert drawing is not None, "axes here are always on a figure"
    width, height = drawing.get_size_inches() * 72
    share = axes.get_position()
    return share.width * width, share.height * height


def _tick(value: float) -> str:
    return f"{value:.4g}"


def size_tick(size: float) -> str:
    """`1K`, `32M`, `8G`."""
    for unit, letter in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if size >= unit:
            return f"{size / unit:.3g}{letter}"
    return f"{size:.0f}"


def _sizes(axes: Axes, sizes: Iterable[int], palette: Palette) -> None:
    known = sorted(set(sizes))
    axes.set_xscale("log", base=2)
    axes.set_xlim(known[0] * 0.8, known[-1] * 1.25)
    step = max(1, ceil(len(known) / 6))
    # Counted from the largest size, which is the one that is judged.
    axes.xaxis.set_major_locator(FixedLocator(known[::-1][::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_tick(value)))
    axes.spines["bottom"].set_color(palette.soft)


def _style(axes: Axes, palette: Palette, unit: str | None, grid: str | None = "y") -> None:
    axes.tick_params(length=0, labelsize=TEXT, labelcolor=palette.soft, pad=4)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom" and grid == "y")
        spine.set_color(palette.soft)
    if grid == "y":
        axes.yaxis.grid(True, color=palette.grid, linewidth=0.8)
    elif grid == "x":
        axes.xaxis.grid(True, color=palette.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    if unit:
        axes.annotate(
            unit,
            (0, 1),
            xycoords="axes fraction",
            xytext=(-4, 5),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=TEXT,
            color=palette.soft,
        )


def _ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Names right of the axes at the height of their lines, moved apart where they would overlap."""
    height = _points(axes)[1]
    wanted = [
        float(axes.transAxes.inverted().transform(axes.transData.transform((1.0, value)))[1]) for value, _, _ in labels
    ]
    for at, (_, text, colour) in zip(apart(wanted, (TEXT + 2.5) / height), labels, strict=True):
        axes.annotate(
            text,
            (1, at),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=TEXT,
            color=colour,
            annotation_clip=False,
        )


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """The positions nearest to `wanted` that keep their order and are at least `gap` apart, within 0 and 1 if possible.

    Pure: the classic of pushing up, then down from the top, where there is room.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    moved = [wanted[index] for index in order]
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + gap)
    if moved and moved[-1] > 1.02:
        moved[-1] = max(1.02, wanted[order[-1]])
        for index in range(len(moved) - 2, -1, -1):
            moved[index] = min(moved[index], moved[index + 1] - gap)
    result = [0.0] * len(moved)
    for index, value in zip(order, moved, strict=True):
        result[index] = value
    return result
