"""Rows of a result grouped into plots, and the line rates and floors to draw with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from infra.catalog.baselines import BASELINES
from infra.catalog.machines import CATALOG, Machine
from workloads.exits import WorkloadError
from workloads.nccl.judge.expectation import FAIL_BELOW
from workloads.nccl.presets import ALGORITHMS
from workloads.nccl.report import largest
from workloads.nccl.result import Result, Row
from workloads.nccl.sizes import format_size

RAIL = re.compile(r"rail (\d+) (\S+)")
DIRECTIONS = {"up": "up", "down": "down", "duplex": "both ways"}
LATENCY_SIZE = 64 * 2**10
"""Bytes up to which the time of a run is latency more than bandwidth."""


@dataclass(frozen=True)
class Series:
    """One line of a plot: rows of increasing size. `label` is empty if the plot has one line only."""

    label: str
    rows: list[Row]

    @property
    def last(self) -> Row:
        return self.rows[-1]


@dataclass(frozen=True)
class Group:
    """One plot. `total` is whether its figure is the sum over all pairs instead of busbw."""

    title: str
    op: str
    series: list[Series]
    total: bool

    def figure(self, row: Row) -> float:
        """Return what the plot shows of a row, GB/s (decimal)."""
        return row.total if self.total and row.total is not None else row.busbw

    @property
    def heading(self) -> str:
        return f"{self.title}: {'sum of all pairs' if self.total else 'busbw'}"


@dataclass(frozen=True)
class Line:
    """A horizontal line of a plot: its name, its height in GB/s (decimal), and its source."""

    label: str
    value: float
    source: str


def sweeps(result: Result) -> list[Group]:
    """Group bandwidth over size: a plot for each operation and pattern. Rails have their own plot; see `rails`."""
    plots: dict[tuple[str, str], dict[str, list[Row]]] = {}
    dtypes = {row.dtype for row in result.rows}
    for row in result.rows:
        if row.mode == "latency" or _rail(row):
            continue
        kind, direction = _pattern(row)
        parts = (
            DIRECTIONS.get(direction, ""),
            row.dtype if len(dtypes) > 1 else "",
            row.mode if row.mode != "throughput" else "",
        )
        plots.setdefault((row.op, kind), {}).setdefault(" ".join(filter(None, parts)), []).append(row)
    return [
        Group(
            title=f"{op} {kind}".strip(),
            op=op,
            series=[Series(label, _by_size(rows)) for label, rows in lines.items()],
            total=all(row.total is not None for rows in lines.values() for row in rows),
        )
        for (op, kind), lines in plots.items()
    ]


def latencies(result: Result) -> list[Series]:
    """Return small sizes, a line for each operation: in latency mode if measured, otherwise in throughput mode.

    Of a point-to-point pattern, only the first direction: the others take as long, and three lines hide each other.
    """
    lines: dict[str, dict[str, list[Row]]] = {}
    for row in result.rows:
        kind, direction = _pattern(row)
        small = row.size <= LATENCY_SIZE and row.dtype == result.rows[0].dtype
        if small and direction in ("", "up") and not _rail(row):
            lines.setdefault(f"{row.op} {kind}".strip(), {}).setdefault(row.mode, []).append(row)
    return [
        Series(title, _by_size(modes.get("latency") or modes.get("throughput") or next(iter(modes.values()))))
        for title, modes in lines.items()
    ]


def rails(result: Result) -> dict[str, list[tuple[int, Row]]]:
    """Return (rail, row at the largest size) in the rails' order, by direction."""
    found: dict[str, dict[int, Row]] = {}
    for row in largest(result.rows):
        if match := _rail(row):
            found.setdefault(match[2], {}).setdefault(int(match[1]), row)
    return {direction: sorted(rows.items()) for direction, rows in found.items()}


def shown(result: Result) -> list[Row]:
    """Return the row at the largest size of every measurement, without the rails, which have their own plot."""
    return [row for row in largest(result.rows) if not _rail(row)]


def paired(result: Result) -> dict[str, list[Row]]:
    """Return the shown rows with several pairs, by pattern: both single directions together, duplex separately."""
    found: dict[str, list[Row]] = {}
    for row in shown(result):
        if row.pairs:
            kind, direction = _pattern(row)
            ways = {"": "", "duplex": "both ways"}.get(direction, "one way")
            found.setdefault(", ".join(filter(None, (f"{row.op} {kind}".strip(), ways))), []).append(row)
    return {title: rows for title, rows in found.items() if sum(len(row.pairs or []) for row in rows) > 2}


def machine_of(result: Result, name: str | None) -> Machine | None:
    """Return the catalog's entry for `name`, by default for the machine in the verdict; None without either.

    WorkloadError if the catalog has no such name.
    """
    machine = name or (result.verdict.machine if result.verdict else None)
    if machine in CATALOG:
        return CATALOG[machine]
    if name is None:
        return None
    raise WorkloadError(f"--machine {name}: no such machine. Known: {', '.join(sorted(CATALOG))}")


def line_rates(group: Group, result: Result, machine: Machine | None) -> list[Line]:
    """Return the most that the NICs can carry in this plot's figure; none if no NIC is used or known.

    Source: workloads.md §1.1 (nccl-tests doc/PERFORMANCE.md): any ring's busbw is at most the sum of one node's NICs;
    in all_to_all, (n − g) of n parts leave the node.
    """
    limits = sorted({series.last.limit for series in group.series if series.last.limit is not None})
    if limits:
        names = ["line rate", *["both ways"] * (len(limits) - 1)]
        return [Line(name, value, "the NICs in use") for name, value in zip(names, limits, strict=True)]
    world = result.world
    if machine is None or world is None or world.nodes < 2 or result.proves != "fabric":
        return []
    node = machine.nics * machine.gbps_per_nic / 8
    nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s in a {machine.name}"
    if group.op in ALGORITHMS["ring"][1]:
        beyond = " (trees and NVLS may exceed it: they carry less over each NIC)" if group.op == "all_reduce" else ""
        return [Line("line rate", node, f"{nics}, the ceiling of any ring{beyond}")]
    if group.op == "all_to_all" and world.ranks > world.per_node:
        share = (world.ranks - 1) / (world.ranks - world.per_node)
        return [Line("line rate", node / world.per_node * share, f"{nics}, of which each rank has its share")]
    return []


def floor(group: Group, result: Result, machine: Machine | None) -> Line | None:
    """Return the minimum to pass at the largest size that has a floor, in the verdict or otherwise in the catalog."""
    compared = [one for one in result.verdict.comparisons if one.op == group.op] if result.verdict else []
    if group.total:
        return None
    if compared:
        best = max(compared, key=lambda one: one.size)
        return _floor(best.expected, best.size, best.source)
    if machine is None or result.world is None or result.proves != "fabric":
        return None
    nodes = result.world.nodes
    known = [
        line for line in BASELINES.get(machine.name, ()) if line.op == group.op and line.nodes == nodes and line.gates
    ]
    if not known:
        return None
    lowest = max(known, key=lambda line: (line.size, -line.busbw))
    return _floor(lowest.busbw, lowest.size, lowest.source)


def _floor(expected: float, size: int, source: str) -> Line:
    text = f"{FAIL_BELOW * 100:.0f} % of {expected:g} GB/s published at {format_size(size)}: {source}"
    return Line("floor", expected * FAIL_BELOW, text)


def _pattern(row: Row) -> tuple[str, str]:
    """Return a variant's pattern and direction: `pairs up` is ("pairs", "up"); without a direction, all is pattern."""
    words = (row.variant or "").split(" ")
    if words[-1] in DIRECTIONS:
        return " ".join(words[:-1]), words[-1]
    return row.variant or "", ""


def _rail(row: Row) -> re.Match[str] | None:
    return RAIL.fullmatch(row.variant or "")


def _by_size(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.size)
