"""Plots with matplotlib, the same for the page (inline SVG in the page's font and colors) and for the picture (PNG)."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from workloads.nccl.page.rows import Group, Line, Series

WIDTH = 360.0  # points: what a phone shows without shrinking the text
TEXT = 11.0  # points
MAX_TICKS = 16  # names on an axis of a heat map


@dataclass(frozen=True)
class Palette:
    """Colors by role. `series` distinguishes lines for color-blind readers as well."""

    ink: str = "#1c2127"
    soft: str = "#5c6773"
    grid: str = "#e3e7eb"
    bad: str = "#b3261e"
    series: tuple[str, ...] = ("#1f5fbf", "#b35900", "#6b4fa3", "#00796b")

    def line(self, index: int) -> str:
        return self.series[index % len(self.series)]


THEMED = Palette("#a0a001", "#a0a002", "#a0a003", "#a0a004", ("#a0a005", "#a0a006", "#a0a007", "#a0a008"))
"""Placeholders for the page's CSS variables, which matplotlib cannot write; `inline` replaces them."""
ON_BAR = "#ffffff"
VARIABLES = ("ink", "soft", "grid", "bad", "one", "two", "three", "four")


@dataclass(frozen=True)
class Bar:
    """One horizontal bar; `bad` highlights it."""

    label: str
    value: float
    bad: bool = False


@contextmanager
def settings(palette: Palette | None = None) -> Iterator[None]:
    """Use matplotlib's defaults instead of the user's configuration, with this report's style for a palette."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "rdma-ray",
                "font.family": "DejaVu Sans",
                "text.parse_math": False,  # host names may contain dollar signs
            }
        )
        if palette is not None:
            mpl.rcParams.update(_style(palette))
        yield


def _style(palette: Palette) -> dict[Any, Any]:
    """Return matplotlib's parameters for a palette."""
    hidden = {f"axes.spines.{side}": False for side in ("left", "right", "top")}
    sizes = ("axes.labelsize", "font.size", "legend.fontsize", "xtick.labelsize", "ytick.labelsize")
    soft = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **hidden,
        **dict.fromkeys(sizes, TEXT),
        **dict.fromkeys(soft, palette.soft),
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.prop_cycle": cycler(color=palette.series),
        "figure.constrained_layout.use": True,
        "figure.facecolor": "none",
        "grid.color": palette.grid,
        "legend.borderaxespad": 0.2,
        "legend.columnspacing": 1.2,
        "legend.frameon": False,
        "legend.handlelength": 1.2,
        "lines.linewidth": 1.8,
        "lines.marker": "o",
        "lines.markersize": 3.2,
        "text.color": palette.ink,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
    }


def figure(height: float) -> tuple[Figure, Axes]:
    """Return a figure as wide as a phone and `height` points high, and its axes."""
    drawing = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
    return drawing, drawing.subplots()


def sweep(axes: Axes, group: Group, rates: Sequence[Line], floor: Line | None, palette: Palette) -> None:
    """Draw bandwidth over size, with line rate and floor."""
    for series in group.series:
        values = [group.figure(row) for row in series.rows]
        label = f"{series.label or 'measured'} {short(values[-1])}"
        axes.plot([row.size for row in series.rows], values, label=label)
    for line in rates:
        axes.axhline(line.value, color=palette.soft, linewidth=1, marker="", label=f"{line.label} {short(line.value)}")
    if floor:
        label = f"{floor.label} {short(floor.value)}"
        axes.axhline(floor.value, color=palette.bad, linewidth=1.1, linestyle="--", marker="", label=label)
    _size_axis(axes, (row.size for series in group.series for row in series.rows))
    _value_axis(axes, "GB/s")


def latency(axes: Axes, lines: Sequence[Series]) -> None:
    """Draw the median time of a run over small sizes; logarithmic if the times differ by a factor of 20."""
    for series in lines:
        values = [row.iteration_us.p50 for row in series.rows]
        axes.plot([row.size for row in series.rows], values, label=f"{series.label} {short(values[-1])}")
    times = [row.iteration_us.p50 for series in lines for row in series.rows]
    _size_axis(axes, (row.size for series in lines for row in series.rows))
    _value_axis(axes, "µs", logarithmic=0 < min(times) * 20 < max(times))


def bars(axes: Axes, rows: Sequence[Bar], limit: float | None, palette: Palette) -> None:
    """Draw horizontal bars with their values, the first on top, and a line at the limit of each."""
    colors = [palette.bad if row.bad else palette.line(0) for row in rows]
    drawn = axes.barh(range(len(rows)), [row.value for row in rows], height=0.62, color=colors, alpha=0.85)
    values = [short(row.value) for row in rows]
    axes.bar_label(drawn, values, label_type="center", color=ON_BAR, fontsize=TEXT - 1, fontweight="bold")
    if limit:
        axes.axvline(limit, color=palette.soft, linewidth=1, marker="", label=f"line rate {short(limit)}")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_xlim(0, max([row.value for row in rows] + [limit or 0]) * 1.02)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def cells(
    axes: Axes,
    values: Sequence[Sequence[float | None]],
    down: Sequence[str],
    across: Sequence[str],
    palette: Palette,
    bad: float,
) -> None:
    """Draw a heat map of shares of the best (1; None: not measured): pale is good, red is below `bad`."""
    shares = np.array(values, dtype=float)
    # Blue fades from `bad` up to 1, so that slow cells stand out.
    strength = np.where(shares < bad, 0.9, 0.18 + 0.5 * np.clip((1 - shares) / (1 - bad), 0, 1))
    strength = np.nan_to_num(strength)
    slow = np.where(np.isnan(shares), np.nan, shares < bad)
    colors = ListedColormap([palette.line(0), palette.bad])
    axes.pcolormesh(slow, cmap=colors, vmin=0, vmax=1, snap=True).set_alpha(
        strength  # type: ignore[arg-type]  # an array is allowed, its annotation is narrower
    )
    axes.invert_yaxis()
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    # Label every n-th row or column if not all names fit.
    for axis, names in ((axes.yaxis, down), (axes.xaxis, across)):
        ticks = range(0, len(names), ceil(len(names) / MAX_TICKS))
        axis.set_ticks([index + 0.5 for index in ticks], [names[index] for index in ticks])


def short(value: float) -> str:
    """Format a number with three significant digits and no exponent: 326, 46.0, 0.680, 4140."""
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= least:
            return f"{value:.{digits}f}"
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def size_tick(size: float) -> str:
    """Format bytes as `1K`, `32M` or `8G`."""
    for unit, letter in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if size >= unit:
            return f"{size / unit:.3g}{letter}"
    return f"{size:.0f}"


def _size_axis(axes: Axes, sizes: Iterable[int]) -> None:
    known = sorted(set(sizes))
    axes.set_xscale("log", base=2)
    axes.set_xlim(known[0] * 0.8, known[-1] * 1.25)
    # Ticks count from the largest size, which is the one that is judged.
    axes.xaxis.set_major_locator(FixedLocator(known[:: -max(1, ceil(len(known) / 6))]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_tick(value)))


def _value_axis(axes: Axes, unit: str, *, logarithmic: bool = False) -> None:
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.set_ylabel(unit)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def inline(drawing: Figure, name: str, description: str) -> Markup:
    """Return the figure as an `<svg>` element, with ids that begin with `name` and a text for screen readers."""
    written = io.BytesIO()
    drawing.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue().decode()
    text = text[text.index("<svg") :]
    # matplotlib's style element would apply to the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    for number, variable in enumerate(VARIABLES, start=1):
        text = text.replace(f"#a0a00{number}", f"var(--{variable})")
    text = text.replace(ON_BAR, "var(--on-bar)")
    text = re.sub(r">\s+<", "><", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None, "matplotlib writes a viewBox"
    label = html.escape(description, quote=True)
    opening = f'<svg class="plot" id="{name}" role="img" aria-label="{label}" {view[0]}>'
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, text))
