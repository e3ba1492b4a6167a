"""Plots with matplotlib, the same for the page (inline SVG in the page's font and colors) and for the picture (PNG)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from workloads.nccl.page.rows import Level
from workloads.nccl.units import format_size
from workloads.terminal.plots import BAD, GRID, INK, LINES, SOFT, encoded

WIDTH = 360.0  # points: what a phone shows without shrinking the text
MAX_TICKS = 16  # names on an axis of a heat map
ON_BAR = "#ffffff"
VARIABLES = {INK: "ink", SOFT: "soft", GRID: "grid", BAD: "bad", ON_BAR: "on-bar"}
VARIABLES |= zip(LINES, ("one", "two", "three", "four"), strict=True)
"""The page's CSS variable of each color: they follow the reader's color scheme."""
Points = Sequence[tuple[int, float]]
"""(bytes, value) of a line, by increasing size."""


def figure(height: float) -> tuple[Figure, Axes]:
    """Return a figure as wide as a phone and `height` points high, and its axes."""
    drawing = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor="none", layout="constrained")
    return drawing, drawing.subplots()


def curves(axes: Axes, unit: str, lines: Mapping[str, Points], levels: Iterable[Level] = ()) -> None:
    """Draw values over size, and horizontal lines at levels; logarithmic if times differ by a factor of 20."""
    for name, points in lines.items():
        known, found = zip(*points, strict=True)
        axes.plot(known, found, label=f"{name} {short(found[-1])}", marker="o", markersize=3.2)
    for level in levels:
        color, width, dash = (BAD, 1.1, "--") if level.name == "floor" else (SOFT, 1.0, "-")
        name = f"{level.name} {short(level.value)}"
        axes.axhline(level.value, color=color, linewidth=width, linestyle=dash, label=name)
    sizes = sorted({size for points in lines.values() for size, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] * 0.8, sizes[-1] * 1.25)
    # Ticks count from the largest size, which is the one that is judged.
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -max(1, ceil(len(sizes) / 6))]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: re.sub(" |i?B", "", format_size(size))))
    values = [value for points in lines.values() for _, value in points]
    if unit == "µs" and 0 < min(values) * 20 < max(values):
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.set_ylabel(unit)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def bars(axes: Axes, rows: Sequence[tuple[str, float]], slow: float, limit: float | None) -> None:
    """Draw horizontal bars with their values, the first on top, red below `slow`, and a line at the limit of each."""
    values = [value for _, value in rows]
    colors = [BAD if value < slow else LINES[0] for value in values]
    drawn = axes.barh(range(len(rows)), values, height=0.62, color=colors, alpha=0.85)
    axes.bar_label(drawn, list(map(short, values)), label_type="center", color=ON_BAR, fontsize=10, fontweight="bold")
    if limit:
        axes.axvline(limit, color=SOFT, linewidth=1, label=f"line rate {short(limit)}")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_xlim(0, max(*values, limit or 0) * 1.02)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def cells(
    axes: Axes,
    values: Sequence[Sequence[float | None]],
    down: Sequence[str],
    across: Sequence[str],
    bad: float,
) -> None:
    """Draw a heat map of shares of the best (1; None: not measured): pale is good, red is below `bad`."""
    shares = np.array(values, dtype=float)
    # Blue fades from `bad` up to 1, so that slow cells stand out.
    strength = np.where(shares < bad, 0.9, 0.18 + 0.5 * np.clip((1 - shares) / (1 - bad), 0, 1))
    strength = np.nan_to_num(strength)
    slow = np.where(np.isnan(shares), np.nan, shares < bad)
    colors = ListedColormap([LINES[0], BAD])
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


def inline(drawing: Figure, name: str, description: str) -> Markup:
    """Return the figure as an `<svg>` element, with ids that begin with `name` and a text for screen readers."""
    text = encoded(drawing, "svg").decode()
    text = text[text.index("<svg") :]
    # matplotlib's style element would apply to the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    text = re.sub(r">\s+<", "><", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None, "matplotlib writes a viewBox"
    label = html.escape(description, quote=True)
    opening = f'<svg class="plot" id="{name}" role="img" aria-label="{label}" {view[0]}>'
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, text))
