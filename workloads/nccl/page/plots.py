"""The page's plots: which there are for a result, with title, caption and what a screen reader says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from markupsafe import Markup

from infra.catalog.machines import Machine
from workloads.nccl.page import figures
from workloads.nccl.page.figures import Bar
from workloads.nccl.page.groups import Group, largest, latencies, name, paired, rails, sweeps
from workloads.nccl.page.reference import Line, floor, line_rates
from workloads.nccl.page.svg import THEMED, inline
from workloads.nccl.result import Member, Pair, Result, Row
from workloads.nccl.sizes import format_size

SLOW = 0.90
"""A pair or a rail below this share of the median of those beside it is drawn in red."""
MOST_BARS = 16
MOST_COLUMNS = 32
BAR = 19.0  # points from one bar to the next


@dataclass(frozen=True)
class Plot:
    """One figure of the page."""

    title: str
    caption: str
    svg: Markup


def bandwidth(result: Result, machine: Machine | None) -> list[Plot]:
    """Bandwidth over size, one plot for each operation."""
    plots = []
    for index, group in enumerate(sweeps(result)):
        rates, least = line_rates(group, result, machine), floor(group, result, machine)
        drawing = figures.figure(230)
        figures.sweep(figures.place(drawing, 40, 24, 96, 22), group, rates, least, THEMED)
        plots.append(
            Plot(
                f"{group.title}: {'sum of all pairs' if group.total else 'busbw'}",
                sources([*rates, *([least] if least else [])]),
                inline(drawing, f"sweep-{index}", describe(group, rates, least)),
            )
        )
    return plots


def describe(group: Group, rates: Sequence[Line], least: Line | None) -> str:
    """A plot in words."""
    reached = ", ".join(
        f"{series.label} {figures.short(group.figure(series.last))} GB/s at {format_size(series.last.size)}".strip()
        for series in group.series
    )
    against = "".join(f"; {line.label} {figures.short(line.value)} GB/s" for line in [*rates, *filter(None, [least])])
    return f"{group.title}, bandwidth over size: {reached}{against}"


def sources(lines: Sequence[Line]) -> str:
    """Where a plot's lines come from: one sentence for each."""
    return " ".join(f"{line.label[0].upper()}{line.label[1:]}: {line.source}." for line in lines)


def small_sizes(result: Result) -> list[Plot]:
    """Latency over small sizes, at most four operations in a plot."""
    lines = latencies(result)
    count = ceil(len(lines) / 4)
    plots = []
    for index in range(count):
        part = lines[index::count]
        drawing = figures.figure(210)
        figures.latency(figures.place(drawing, 40, 24, 124, 22), part, THEMED)
        modes = sorted({row.mode for series in part for row in series.rows})
        words = ", ".join(f"{series.label} {figures.short(series.last.iteration_us.p50)} µs" for series in part)
        plots.append(
            Plot(
                "Median time of a run" + (f" ({index + 1} of {count})" if count > 1 else ""),
                f"Measured in {' and '.join(modes)} mode.",
                inline(drawing, f"latency-{index}", f"Median time over small sizes, at the largest: {words}"),
            )
        )
    return plots


def ranks(result: Result) -> list[Plot]:
    """Who is slow: each rank's time against the median of all ranks, at each operation's largest size."""
    rows = [row for row in largest(result) if row.mode == "throughput" and not row.pairs]
    members = sorted({time.rank for row in rows for time in row.ranks})
    if not rows or len(members) < 2:
        return []
    share = ceil(len(members) / MOST_COLUMNS)
    columns = [members[index : index + share] for index in range(0, len(members), share)]
    values: list[list[float | None]] = []
    for row in rows:
        times = {time.rank: time.time_us for time in row.ranks}
        middle = median(times.values())
        worst = [max((times[rank] for rank in column if rank in times), default=None) for column in columns]
        values.append([None if time is None else middle / time for time in worst])
    drawing = figures.figure(30 + 22 * len(rows))
    axes = figures.place(drawing, 96, 24, 8, 4)
    figures.cells(axes, values, [name(row) for row in rows], [str(column[0]) for column in columns], THEMED, 0.95)
    each = "Each column is a rank" if share == 1 else f"Each column is the slowest of {share} ranks"
    return [
        Plot(
            "Time of each rank",
            f"{each}, each line an operation at its largest size. Pale: like the median of all ranks."
            " Red: at least 5 % slower.",
            inline(drawing, "ranks", "Heat map of the ranks' times; the table beside it names the slowest rank"),
        )
    ]


def point_to_point(result: Result) -> list[Plot]:
    """Bars for each pair and each rail, and a matrix of all pairs."""
    members = {member.rank: member for member in result.ranks or []}
    groups = paired(result)
    plots = [_pairs(title, rows, f"pairs-{index}", members) for index, (title, rows) in enumerate(groups.items())]
    plots += [_rails(direction, found) for direction, found in rails(result).items()]
    return plots + _matrix([row for rows in groups.values() for row in rows], result)


def _pairs(title: str, rows: Sequence[Row], identity: str, members: Mapping[int, Member]) -> Plot:
    pairs = [pair for row in rows for pair in row.pairs or []]
    middle = median(pair.bandwidth for pair in pairs)
    chosen = pairs
    beside = "Red: below 90 % of the median pair."
    if len(pairs) > MOST_BARS:
        chosen = sorted(pairs, key=lambda pair: pair.bandwidth)[:MOST_BARS]
        beside = f"The {MOST_BARS} slowest of {len(pairs)}. {beside}"
    limits = {row.limit / len(row.pairs) if row.limit and row.pairs else None for row in rows}
    found = [Bar(f"{p.sender} → {p.receiver}", p.bandwidth, p.bandwidth < SLOW * middle) for p in chosen]
    slowest = min(pairs, key=lambda pair: pair.bandwidth)
    together = "one direction after the other" if len(rows) > 1 else "all at once"
    caption = f"At {format_size(rows[0].size)}, {together}. Slowest: {_pair(slowest, members)}. {beside}"
    return _bars(f"{title}: GB/s of each pair", caption, identity, found, limits.pop() if len(limits) == 1 else None)


def _rails(direction: str, found: Sequence[tuple[int, Row]]) -> Plot:
    values = [row.total if row.total is not None else row.busbw for _, row in found]
    middle = median(values)
    rows = [Bar(f"rail {rail}", value, value < SLOW * middle) for (rail, _), value in zip(found, values, strict=True)]
    limits = {row.limit for _, row in found}
    limit = limits.pop() if len(limits) == 1 else None
    caption = f"At {format_size(found[0][1].size)}, one rail after the other. Red: below 90 % of the median rail."
    return _bars(f"rails {direction}: GB/s of each alone", caption, f"rails-{direction}", rows, limit)


def _bars(title: str, caption: str, identity: str, rows: Sequence[Bar], limit: float | None) -> Plot:
    drawing = figures.figure(46 + BAR * len(rows))
    left = 12 + figures.DIGIT * max(len(row.label) for row in rows)
    figures.bars(figures.place(drawing, left, 24, 12, 20), rows, limit, THEMED)
    words = ", ".join(f"{row.label} {figures.short(row.value)}" for row in rows)
    return Plot(title, caption, inline(drawing, identity, f"{title}: {words}"))


def _matrix(rows: Sequence[Row], result: Result) -> list[Plot]:
    """All pairs of the one-way measurements: senders down, receivers across; nodes where the ranks are too many.

    With more nodes than columns a cell stands for several.
    """
    measured = [pair for row in rows if row.pairs and not (row.variant or "").endswith("duplex") for pair in row.pairs]
    world = result.world
    if world is None or len(measured) < 4:
        return []
    nodes = ceil(world.nodes / MOST_COLUMNS)  # in a cell
    share = 1 if world.ranks <= MOST_COLUMNS else world.per_node * nodes
    # The slowest of all measurements of a cell: a matrix that shows the best would hide what is looked for.
    slowest: dict[tuple[int, int], float] = {}
    for pair in measured:
        cell = (pair.sender // share, pair.receiver // share)
        slowest[cell] = min(slowest.get(cell, pair.bandwidth), pair.bandwidth)
    middle = median(slowest.values())
    count = ceil(world.ranks / share)
    values = [[_share(slowest.get((y, x)), middle) for x in range(count)] for y in range(count)]
    names = [str(index * nodes) for index in range(count)]
    drawing = figures.figure(60 + 300 * min(1.0, count / 16))
    figures.cells(figures.place(drawing, 40, 24, 8, 8), values, names, names, THEMED, SLOW)
    what = "rank" if share == 1 else "node"
    return [
        Plot(
            f"All pairs of {what}s" + (f", {nodes} by {nodes} in a cell" if nodes > 1 else ""),
            "Senders down, receivers across; one direction at a time, at the largest size. Each cell is the slowest"
            " that was seen. Pale: like the median pair. Red: below 90 % of it. Empty: not measured.",
            inline(drawing, "matrix", f"Heat map of {len(slowest)} pairs of {what}s"),
        )
    ]


def _share(value: float | None, middle: float) -> float | None:
    return None if value is None else value / middle


def _pair(pair: Pair, members: Mapping[int, Member]) -> str:
    ranks = f"{pair.sender} → {pair.receiver}"
    if pair.sender not in members or pair.receiver not in members:
        return ranks
    return f"{ranks} ({members[pair.sender].host} → {members[pair.receiver].host})"
