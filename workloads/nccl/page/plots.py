"""The page's plots with titles, captions and descriptions for screen readers, and the summary picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from infra.catalog.machines import Machine
from workloads.nccl.page import figures
from workloads.nccl.page.content import facts, headline
from workloads.nccl.page.figures import inline, short
from workloads.nccl.page.rows import Group, Level, floors, latencies, line_rates, machine_of, paired, rails, sweeps
from workloads.nccl.report import largest
from workloads.nccl.result import Pair, Result, Row
from workloads.nccl.units import format_size
from workloads.terminal.plots import INK, SOFT, encoded, style

SLOW = 0.90
"""Share of the median below which a pair or a rail is red."""
SLOW_RANK = 0.95
MAX_BARS = 16
MAX_COLUMNS = 32

WIDTH, HEIGHT = 1200.0, 675.0  # points, 16:9
MAX_PLOTS = 6
TONES = {"pass": "#1b6e3c", "warn": "#8a5a00", "fail": "#b3261e", "unjudged": "#3f4a56"}
SUMMARY = ("Machine", "World", "Library", "Data", "Started", "Job")


@dataclass(frozen=True)
class Plot:
    """One figure of the page."""

    title: str
    caption: str
    svg: Markup


def all_plots(result: Result, machine: Machine | None) -> dict[str, list[Plot]]:
    """Return the page's plots by section."""
    with style():
        return {
            "bandwidth": [_bandwidth(group, f"sweep-{i}", result, machine) for i, group in enumerate(sweeps(result))],
            "latency": _small_sizes(result),
            "ranks": _ranks(result),
            "pairs": _point_to_point(result),
        }


def picture(result: Result, machine: str | None = None) -> bytes:
    """Return the summary as a PNG of 1800 × 1012 pixels. The same result gives the same picture."""
    known = machine_of(result, machine)
    with style():
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=108, facecolor="#ffffff")
        head = headline(result)
        tone = TONES[head.status]
        drawing.add_artist(Rectangle((0, 0), 12 / WIDTH, 1, color=tone, transform=drawing.transFigure, linewidth=0))
        found = dict(facts(result, known))
        summary = " · ".join(found[key] for key in SUMMARY if key in found)
        sentence = textwrap.wrap(head.sentence, 92, max_lines=2, placeholder=" …")
        lines = [
            (head.badge, 22, tone, "bold"),
            *((text, 18, INK, "normal") for text in sentence),
            (textwrap.shorten(head.functional or "", 150, placeholder=" …"), 13, INK, "bold"),
            (textwrap.shorten(summary, 160, placeholder=" …"), 12, SOFT, "normal"),
        ]
        top = 22.0
        for text, size, color, weight in lines:
            if text:
                at = 40 / WIDTH, 1 - top / HEIGHT
                drawing.text(*at, text, fontsize=size, color=color, fontweight=weight, va="top")
                top += size * 1.4
        groups = sweeps(result)
        pairs = [group for group in groups if group.total][:1]  # always shown
        chosen = [group for group in groups if not group.total][: MAX_PLOTS - len(pairs)] + pairs
        columns = 3 if len(chosen) > 2 else 2
        drawing.set_layout_engine("constrained", rect=(30 / WIDTH, 0.01, 1 - 60 / WIDTH, 1 - top / HEIGHT - 0.03))
        axes = drawing.subplots(2 if len(chosen) > 3 else 1, columns, squeeze=False).flatten()
        for group, place in zip(chosen, axes, strict=False):
            _sweep(place, group, result, known)
            legend = place.get_legend()
            legend.set_title(group.heading, prop={"weight": "bold", "size": 12})
            legend.set_alignment("left")
        for unused in axes[len(chosen) :]:
            unused.set_axis_off()
        return encoded(drawing, "png")


def _sweep(axes: Axes, group: Group, result: Result, machine: Machine | None) -> list[Level]:
    """Draw bandwidth over size, and return the line rates and the floor drawn with it."""
    levels = [*line_rates(group, result, machine), *floors(group, result, machine)]
    lines = {name or "measured": [(row.size, group.figure(row)) for row in rows] for name, rows in group.lines.items()}
    figures.curves(axes, "GB/s", lines, levels)
    return levels


def _bandwidth(group: Group, identity: str, result: Result, machine: Machine | None) -> Plot:
    drawing, axes = figures.figure(240)
    levels = _sweep(axes, group, result, machine)
    caption = " ".join(f"{level.name[0].upper()}{level.name[1:]}: {level.source}." for level in levels)
    reached = ", ".join(
        f"{name} {short(group.figure(rows[-1]))} GB/s at {format_size(rows[-1].size)}".strip()
        for name, rows in group.lines.items()
    )
    against = "".join(f"; {level.name} {short(level.value)} GB/s" for level in levels)
    return Plot(
        group.heading, caption, inline(drawing, identity, f"{group.title}, bandwidth over size: {reached}{against}")
    )


def _small_sizes(result: Result) -> list[Plot]:
    """Return latency over small sizes, at most four operations per plot."""
    found = list(latencies(result).items())
    count = ceil(len(found) / 4)
    plots = []
    for index in range(count):
        part = dict(found[index::count])
        drawing, axes = figures.figure(230)
        lines = {name: [(row.size, row.iteration_us.p50) for row in rows] for name, rows in part.items()}
        figures.curves(axes, "µs", lines)
        modes = sorted({row.mode for rows in part.values() for row in rows})
        words = ", ".join(f"{name} {short(points[-1][1])} µs" for name, points in lines.items())
        plots.append(
            Plot(
                "Median time of a run" + (f" ({index + 1} of {count})" if count > 1 else ""),
                f"Measured in {' and '.join(modes)} mode.",
                inline(drawing, f"latency-{index}", f"Median time over small sizes, at the largest: {words}"),
            )
        )
    return plots


def _ranks(result: Result) -> list[Plot]:
    """Return each rank's time against the median of all ranks, at each operation's largest size."""
    rows = [row for row in largest(result.rows) if row.mode == "throughput" and not row.pairs]
    members = sorted({time.rank for row in rows for time in row.ranks})
    if not rows or len(members) < 2:
        return []
    share = ceil(len(members) / MAX_COLUMNS)
    columns = [members[index : index + share] for index in range(0, len(members), share)]
    values: list[list[float | None]] = []
    for row in rows:
        times = {time.rank: time.time_us for time in row.ranks}
        middle = median(times.values())
        worst = [max((times[rank] for rank in column if rank in times), default=None) for column in columns]
        values.append([None if time is None else middle / time for time in worst])
    drawing, axes = figures.figure(40 + 22 * len(rows))
    figures.cells(axes, values, [row.name for row in rows], [str(column[0]) for column in columns], SLOW_RANK)
    each = "Each column is a rank" if share == 1 else f"Each column is the slowest of {share} ranks"
    return [
        Plot(
            "Time of each rank",
            f"{each}, each line an operation at its largest size. Pale: the median of all ranks."
            " Red: at least 5 % slower.",
            inline(drawing, "ranks", "Heat map of the ranks' times; the table below names the slowest rank"),
        )
    ]


def _point_to_point(result: Result) -> list[Plot]:
    """Return bars for each pair and each rail, and a matrix of all pairs."""
    groups = paired(result)
    plots = [_pairs(title, rows, f"pairs-{index}", result) for index, (title, rows) in enumerate(groups.items())]
    plots += [_rails(direction, found) for direction, found in rails(result).items()]
    return plots + _matrix([row for rows in groups.values() for row in rows], result)


def _pairs(title: str, rows: Sequence[Row], identity: str, result: Result) -> Plot:
    pairs = [pair for row in rows for pair in row.pairs or []]
    middle = median(pair.bandwidth for pair in pairs)
    by_speed = sorted(pairs, key=lambda pair: pair.bandwidth)
    chosen, legend = pairs, "Red: below 90 % of the median pair."
    if len(pairs) > MAX_BARS:
        chosen, legend = by_speed[:MAX_BARS], f"The {MAX_BARS} slowest of {len(pairs)}. {legend}"
    limits = {row.limit / len(row.pairs) if row.limit and row.pairs else None for row in rows}
    found = [(_ends(pair), pair.bandwidth) for pair in chosen]
    order = "one direction after the other" if len(rows) > 1 else "all at once"
    slowest = by_speed[0]
    hosts = f"{result.host(slowest.sender)} → {result.host(slowest.receiver)}"
    caption = f"At {format_size(rows[0].size)}, {order}. Slowest: {_ends(slowest)} ({hosts}). {legend}"
    return _bars(f"{title}: GB/s of each pair", caption, identity, found, SLOW * middle, limits)


def _rails(direction: str, found: Sequence[tuple[int, Row]]) -> Plot:
    rows = [(f"rail {rail}", row.total if row.total is not None else row.busbw) for rail, row in found]
    slow = SLOW * median(value for _, value in rows)
    caption = f"At {format_size(found[0][1].size)}, one rail after the other. Red: below 90 % of the median rail."
    limits = {row.limit for _, row in found}
    return _bars(f"rails {direction}: GB/s of each alone", caption, f"rails-{direction}", rows, slow, limits)


def _bars(
    title: str, caption: str, identity: str, rows: Sequence[tuple[str, float]], slow: float, limits: set[float | None]
) -> Plot:
    drawing, axes = figures.figure(52 + 19 * len(rows))
    figures.bars(axes, rows, slow, limits.pop() if len(limits) == 1 else None)
    words = ", ".join(f"{name} {short(value)}" for name, value in rows)
    return Plot(title, caption, inline(drawing, identity, f"{title}: {words}"))


def _matrix(rows: Sequence[Row], result: Result) -> list[Plot]:
    """Return all pairs of the one-way measurements: senders down, receivers across; nodes if the ranks are too many.

    With more nodes than columns, a cell is several nodes.
    """
    measured = [pair for row in rows if row.pairs and not (row.variant or "").endswith("duplex") for pair in row.pairs]
    world = result.world
    if world is None or len(measured) < 4:
        return []
    nodes = ceil(world.nodes / MAX_COLUMNS)  # per cell
    share = 1 if world.ranks <= MAX_COLUMNS else world.per_node * nodes
    # A cell is its slowest measurement, because the matrix is to show slow pairs.
    slowest: dict[tuple[int, int], float] = {}
    for pair in measured:
        cell = (pair.sender // share, pair.receiver // share)
        slowest[cell] = min(slowest.get(cell, pair.bandwidth), pair.bandwidth)
    middle = median(slowest.values())
    count = ceil(world.ranks / share)
    values = [[slowest[y, x] / middle if (y, x) in slowest else None for x in range(count)] for y in range(count)]
    names = [str(index * nodes) for index in range(count)]
    drawing, axes = figures.figure(60 + 300 * min(1.0, count / 16))
    figures.cells(axes, values, names, names, SLOW)
    what = "rank" if share == 1 else "node"
    return [
        Plot(
            f"All pairs of {what}s" + (f", {nodes} by {nodes} in a cell" if nodes > 1 else ""),
            "Senders down, receivers across; one direction at a time, at the largest size. Each cell is its slowest"
            " measurement. Pale: the median pair. Red: below 90 % of it. Empty: not measured.",
            inline(drawing, "matrix", f"Heat map of {len(slowest)} pairs of {what}s"),
        )
    ]


def _ends(pair: Pair) -> str:
    return f"{pair.sender} → {pair.receiver}"
