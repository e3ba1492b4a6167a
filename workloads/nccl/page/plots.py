"""Plots of a result's rows, with line rates and floors, drawn by matplotlib for the page and the picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import ceil, nan
from statistics import median
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from infra.catalog.baselines import MARGIN
from infra.catalog.machines import CATALOG
from workloads.nccl.judge.expectation import Expectation, ceiling
from workloads.nccl.point_patterns import Variant
from workloads.nccl.report import largest
from workloads.nccl.result import BenchResult, Pair, Row
from workloads.nccl.units import format_size, written_size
from workloads.terminal.plots import BAD, GRID, INK, LINES, SOFT, encoded, style

LATENCY_SIZE = 64 * 2**10  # bytes up to which the time of a run is latency more than bandwidth
SLOW_RANK = 0.95  # share of the median below which a rank is red
MAX_CELLS = 32  # in a line of a heat map
VARIABLES = {INK: "ink", SOFT: "soft", GRID: "grid", BAD: "bad"}
VARIABLES |= zip(LINES, ("one", "two", "three", "four"), strict=True)
"""The page's CSS variable of each color: they follow the reader's color scheme."""
BOLD = {"weight": "bold", "size": 12}
LEGEND: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "alignment": "left",
    "title_fontproperties": BOLD,
}
Level = tuple[str, float, str]
"""Name, GB/s (decimal) and source of a horizontal line."""
Groups = dict[str, list[Row]]
"""Rows of increasing size by the name of their plot, or of their line, which is empty if a plot has only one."""
Drawn = tuple[str, str, Figure, str]
"""Title, caption, figure, and text for screen readers."""


def all_plots(result: BenchResult) -> dict[str, list[tuple[str, str, Markup]]]:
    """Return title, caption and SVG of the page's plots by section."""
    sections = {"bandwidth": _bandwidths, "latency": _latencies, "ranks": _ranks}
    with style():
        return {
            section: [(drawn[0], drawn[1], _svg(f"{section}-{i}", *drawn[2:])) for i, drawn in enumerate(draw(result))]
            for section, draw in sections.items()
        }


def sweeps(result: BenchResult) -> dict[str, Groups]:
    """Return bandwidth over size: rows by title of their plot and name of their line, without rails."""
    several = len({row.dtype for row in result.rows}) > 1

    def line(row: Row) -> str:
        return f"{row.name.removeprefix(_name(row)).strip(', ')} {row.dtype if several else ''}".strip()

    rows = [row for row in without_rails(result.rows) if row.mode != "latency"]
    plots = _grouped(rows, lambda row: f"{_name(row)}: {'busbw' if row.total is None else 'sum of all pairs'}")
    return {title: _grouped(plot, line) for title, plot in plots.items()}


def without_rails(rows: Iterable[Row]) -> list[Row]:
    """Return all rows except those of single rails, which have a separate plot."""
    return [row for row in rows if variant_of(row).rail is None]


def variant_of(row: Row) -> Variant:
    """Return a row's pattern, rail and direction. A collective has no pattern; without a direction, all is pattern."""
    try:
        return Variant.parse(row.variant or "")
    except ValueError:
        return Variant(row.variant or "", "")


def levels(lines: Groups, result: BenchResult) -> list[Level]:
    """Return the reference levels of a plot.

    These are the most that the NICs can carry, and the floor in the verdict at the largest size that has one.
    """
    rows, world, verdict = [line[-1] for line in lines.values()], result.world, result.verdict
    limits, op = sorted({row.limit for row in rows if row.limit is not None}), rows[0].op
    found = [("duplex" if number else "line rate", at, "the NICs in use") for number, at in enumerate(limits)]
    machine = CATALOG.get(verdict.machine or "") if verdict and result.proves == "fabric" and not limits else None
    if machine and world and not machine.unsupported and world.per_node == machine.gpus:
        limit = ceiling(op, Expectation(machine=machine.name, nodes=world.nodes), frozenset({"ring"}))
        nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s per {machine.name}"
        found += [("line rate", limit, nics)] if limit else []
    judged = [one for one in verdict.comparisons if one.op == op] if verdict else []
    for one in sorted(judged, key=lambda one: one.size)[-1:]:
        text = f"{MARGIN * 100:.0f} % of {one.expected:g} GB/s published at {format_size(one.size)}: {one.source}"
        found.append(("floor", one.expected * MARGIN, text))
    return found


def curves(axes: Axes, lines: Groups, against: Iterable[Level] = (), title: str = "", *, latency: bool = False) -> str:
    """Draw bandwidth or latency over size, and lines at levels. Return the legend: each name, and the last value.

    A latency is the median single run; its axis is logarithmic if the latencies differ by a factor of 20.
    """
    for name, rows in lines.items():
        values = [row.iteration_us.p50 if latency else _rate(row) for row in rows]
        label = f"{name or 'measured'} {_short(values[-1])}"
        axes.plot([row.size for row in rows], values, label=label, marker="o", markersize=3.2)
    least, most = axes.dataLim.intervaly
    for name, at, _ in against:
        color, dash = (BAD, "--") if name == "floor" else (SOFT, "-")
        axes.axhline(at, color=color, linewidth=1, linestyle=dash, label=f"{name} {_short(at)}")
    sizes = sorted({row.size for rows in lines.values() for row in rows})
    ticks = sizes[:: -ceil(len(sizes) / 6)]  # from the largest size, which is the one that is judged
    axes.set(xscale="log", xlim=(sizes[0] * 0.8, sizes[-1] * 1.25), ylabel="µs" if latency else "GB/s")
    axes.set_xticks(ticks, [written_size(size) for size in ticks])
    if latency and 0 < least * 20 < most:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", nbins=5)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:.4g}")
    legend = axes.legend(title=title, ncols=1 if latency else 2, **LEGEND)
    return ", ".join(text.get_text() for text in legend.get_texts())


def _bandwidths(result: BenchResult) -> Iterator[Drawn]:
    for title, lines in sweeps(result).items():
        drawing, axes = _figure(240)
        words = curves(axes, lines, against := levels(lines, result))
        caption = " ".join(f"{name.capitalize()}: {source}." for name, _, source in against)
        yield title, caption, drawing, f"{title} over size, at the largest in GB/s: {words}"


def _latencies(result: BenchResult) -> Iterator[Drawn]:
    """Draw small sizes, at most four measurements per plot.

    Of a point-to-point pattern, only the first direction: the others take as long, and three lines hide each other.
    """
    rows = [row for row in without_rails(result.rows) if row.size <= LATENCY_SIZE and row.dtype == result.rows[0].dtype]
    lines = _grouped([row for row in rows if variant_of(row).direction in ("", "up")], lambda row: row.name)
    count = ceil(len(lines) / 4)
    for index in range(count):
        drawing, axes = _figure(260)
        words = curves(axes, dict(list(lines.items())[index::count]), latency=True)
        title = "Median time of a run" + (f" ({index + 1} of {count})" if count > 1 else "")
        yield title, "", drawing, f"Median time over small sizes, at the largest in µs: {words}"


def _ranks(result: BenchResult) -> Iterator[Drawn]:
    """Draw each rank's time against the median of all ranks, at each operation's largest size."""
    rows = [row for row in largest(result.rows) if row.mode == "throughput" and not row.pairs]
    members = sorted({time.rank for row in rows for time in row.ranks})
    if len(members) < 2:
        return
    share = ceil(len(members) / MAX_CELLS)
    columns = [members[index : index + share] for index in range(0, len(members), share)]
    values = []
    for row in rows:
        times = {time.rank: time.time_us for time in row.ranks}
        slowest = [max((times[rank] for rank in column if rank in times), default=nan) for column in columns]
        values.append([median(times.values()) / time for time in slowest])
    drawing, axes = _figure(40 + 22 * len(rows))
    blues = LinearSegmentedColormap.from_list("", [(LINES[0], 0.68), (LINES[0], 0.18)]).with_extremes(under=(BAD, 0.9))
    axes.pcolormesh(np.array(values), cmap=blues, vmin=SLOW_RANK, vmax=1, snap=True)
    axes.invert_yaxis()
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [row.name for row in rows])
    labeled = range(0, len(columns), ceil(len(columns) / 8))
    axes.set_xticks([index + 0.5 for index in labeled], [str(columns[index][0]) for index in labeled])
    each = "a rank" if share == 1 else f"the slowest of {share} ranks"
    caption = f"Each column is {each}. Pale: the median of all ranks. Red: at least 5 % slower."
    yield "Time of each rank", caption, drawing, "Heat map: the table below names the slowest rank"


def bars(result: BenchResult) -> dict[str, list[tuple[str, float, float | None, Row, Pair]]]:
    """Return the name, GB/s and limit of each pair and rail, with its row and slowest pair, by pattern.

    Both single directions of a pattern are together, so that a slow direction stands out.
    """
    values: dict[str, list[tuple[str, float, float | None, Row, Pair]]] = {}
    for row in sorted(largest(result.rows), key=lambda row: variant_of(row).rail is not None):
        pairs, variant = row.pairs or [], variant_of(row)
        if pairs and variant.rail is not None:
            bar = f"rail {variant.rail}", _rate(row), row.limit, row, min(pairs, key=lambda pair: pair.bandwidth)
            values.setdefault(f"rails {variant.direction}: GB/s of each alone", []).append(bar)
            continue
        ways = {"": "", "duplex": ", both ways"}.get(variant.direction, ", one way")
        for pair in pairs:
            limit = row.limit and row.limit / len(pairs)
            bar = f"{pair.sender} → {pair.receiver}", pair.bandwidth, limit, row, pair
            values.setdefault(f"{_name(row)}{ways}: GB/s of each pair", []).append(bar)
    return values


def _name(row: Row) -> str:
    return f"{row.op} {variant_of(row).pattern}".strip()


def _rate(row: Row) -> float:
    return row.busbw if row.total is None else row.total


def _grouped(rows: Iterable[Row], name: Callable[[Row], str]) -> Groups:
    groups: Groups = {}
    for row in sorted(rows, key=lambda row: row.size):
        groups.setdefault(name(row), []).append(row)
    return groups


def _short(value: float) -> str:
    """Format a number with three significant digits: 326, 46.0, 0.680, 4140."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def _figure(height: float) -> tuple[Figure, Axes]:
    """Return a figure of a height in points, as wide as a phone shows without shrinking the text, and its axes."""
    drawing = Figure(figsize=(5, height / 72), dpi=72, facecolor="none", layout="constrained")
    return drawing, drawing.subplots()


def _svg(name: str, drawing: Figure, words: str) -> Markup:
    """Return the figure as an `<svg>` element, with ids that begin with `name`."""
    text = encoded(drawing, "svg").decode()
    # Without matplotlib's style element, which would apply to the whole page, and its font.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>|font-family: [^;\"]*;? ?|(?<=>)\s+(?=<)", "", text, flags=re.S)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    opening = Markup('<svg class="plot" id="{}" role="img" aria-label="{}" ').format(name, words)
    return opening + Markup(text[text.index("viewBox") :])
