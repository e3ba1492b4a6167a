"""Rows of a result grouped into plots, and the line rates and floors to draw with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.baselines import MARGIN
from infra.catalog.machines import CATALOG, Machine
from workloads.nccl.judge.expectation import floor_of, line_rate, machine_named
from workloads.nccl.point_patterns import Variant
from workloads.nccl.presets import ALGORITHMS
from workloads.nccl.report import largest
from workloads.nccl.result import Result, Row
from workloads.nccl.units import format_size

LATENCY_SIZE = 64 * 2**10
"""Bytes up to which the time of a run is latency more than bandwidth."""
Lines = Mapping[str, Sequence[Row]]
"""Rows of increasing size by the name of their line, which is empty if a plot has one line only."""


@dataclass(frozen=True)
class Group:
    """One plot. `total` is whether its figure is the sum over all pairs instead of busbw."""

    title: str
    op: str
    lines: Lines
    total: bool

    def figure(self, row: Row) -> float:
        """Return what the plot shows of a row, GB/s (decimal)."""
        return row.total if self.total and row.total is not None else row.busbw

    @property
    def heading(self) -> str:
        return f"{self.title}: {'sum of all pairs' if self.total else 'busbw'}"


@dataclass(frozen=True)
class Level:
    """A horizontal line of a plot: its name, its height in GB/s (decimal), and its source."""

    name: str
    value: float
    source: str


def sweeps(result: Result) -> list[Group]:
    """Group bandwidth over size: a plot for each operation and pattern. Rails have their own plot; see `rails`."""
    plots: dict[tuple[str, str], dict[str, list[Row]]] = {}
    several = len({row.dtype for row in result.rows}) > 1
    for row in result.rows:
        variant = _variant(row)
        if row.mode == "latency" or variant.rail is not None:
            continue
        parts = (
            {"duplex": "both ways"}.get(variant.direction, variant.direction),
            row.dtype if several else "",
            row.mode if row.mode != "throughput" else "",
        )
        plots.setdefault((row.op, variant.pattern), {}).setdefault(" ".join(filter(None, parts)), []).append(row)
    return [
        Group(
            title=f"{op} {pattern}".strip(),
            op=op,
            lines={name: sorted(rows, key=lambda row: row.size) for name, rows in lines.items()},
            total=all(row.total is not None for rows in lines.values() for row in rows),
        )
        for (op, pattern), lines in plots.items()
    ]


def latencies(result: Result) -> Lines:
    """Return small sizes, a line for each operation: in latency mode if measured, otherwise in throughput mode.

    Of a point-to-point pattern, only the first direction: the others take as long, and three lines hide each other.
    """
    lines: dict[str, dict[str, list[Row]]] = {}
    for row in result.rows:
        variant = _variant(row)
        small = row.size <= LATENCY_SIZE and row.dtype == result.rows[0].dtype
        if small and variant.direction in ("", "up") and variant.rail is None:
            lines.setdefault(f"{row.op} {variant.pattern}".strip(), {}).setdefault(row.mode, []).append(row)
    return {
        name: sorted(modes.get("latency") or modes.get("throughput") or modes["graph"], key=lambda row: row.size)
        for name, modes in lines.items()
    }


def rails(result: Result) -> dict[str, list[tuple[int, Row]]]:
    """Return (rail, row at the largest size) in the rails' order, by direction."""
    found: dict[str, dict[int, Row]] = {}
    for row in largest(result.rows):
        variant = _variant(row)
        if variant.rail is not None:
            found.setdefault(variant.direction, {}).setdefault(variant.rail, row)
    return {direction: sorted(rows.items()) for direction, rows in found.items()}


def shown(result: Result) -> list[Row]:
    """Return the row at the largest size of every measurement, without the rails, which have their own plot."""
    return [row for row in largest(result.rows) if _variant(row).rail is None]


def paired(result: Result) -> dict[str, list[Row]]:
    """Return the shown rows with several pairs, by pattern: both single directions together, duplex separately."""
    found: dict[str, list[Row]] = {}
    for row in shown(result):
        if row.pairs:
            variant = _variant(row)
            ways = {"": "", "duplex": ", both ways"}.get(variant.direction, ", one way")
            found.setdefault(f"{row.op} {variant.pattern}{ways}", []).append(row)
    return {title: rows for title, rows in found.items() if sum(len(row.pairs or []) for row in rows) > 2}


def machine_of(result: Result, name: str | None) -> Machine | None:
    """Return the catalog's entry for `name`, by default for the machine in the verdict; None without either.

    WorkloadError if the catalog has no such name.
    """
    if name is not None:
        return machine_named(name)
    return CATALOG.get(result.verdict.machine or "") if result.verdict else None


def line_rates(group: Group, result: Result, machine: Machine | None) -> list[Level]:
    """Return the most that the NICs can carry in this plot's figure; none if no NIC is used or known.

    Source: workloads.md §1.1 (nccl-tests doc/PERFORMANCE.md): any ring's busbw is at most the sum of one node's NICs;
    in all_to_all, (n − g) of n parts leave the node.
    """
    limits = sorted({rows[-1].limit for rows in group.lines.values() if rows[-1].limit is not None})
    if limits:
        names = ["line rate", *["both ways"] * (len(limits) - 1)]
        return [Level(name, value, "the NICs in use") for name, value in zip(names, limits, strict=True)]
    world = result.world
    if machine is None or world is None or world.nodes < 2 or result.proves != "fabric":
        return []
    node = line_rate(machine)
    nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s in a {machine.name}"
    if group.op in ALGORITHMS["ring"][1]:
        beyond = " (trees and NVLS may exceed it: they carry less over each NIC)" if group.op == "all_reduce" else ""
        return [Level("line rate", node, f"{nics}, the ceiling of any ring{beyond}")]
    if group.op == "all_to_all" and world.ranks > world.per_node:
        share = (world.ranks - 1) / (world.ranks - world.per_node)
        return [Level("line rate", node / world.per_node * share, f"{nics}, of which each rank has its share")]
    return []


def floors(group: Group, result: Result, machine: Machine | None) -> list[Level]:
    """Return the minimum to pass at the largest size that has one, in the verdict or otherwise in the catalog."""
    compared = [one for one in result.verdict.comparisons if one.op == group.op] if result.verdict else []
    if group.total:
        return []
    if compared:
        best = max(compared, key=lambda one: one.size)
        return [_floor(best.expected, best.size, best.source)]
    if machine is None or result.world is None or result.proves != "fabric":
        return []
    known = floor_of(machine.baselines, group.op, result.world.nodes, sys.maxsize, frozenset())
    return [_floor(known.busbw, known.size, known.source)] if known and known.gates else []


def _floor(expected: float, size: int, source: str) -> Level:
    text = f"{MARGIN * 100:.0f} % of {expected:g} GB/s published at {format_size(size)}: {source}"
    return Level("floor", expected * MARGIN, text)


def _variant(row: Row) -> Variant:
    """Return a row's pattern, rail and direction. A collective has no pattern; without a direction, all is pattern."""
    try:
        return Variant.parse(row.variant or "")
    except ValueError:
        return Variant(row.variant or "", "")
