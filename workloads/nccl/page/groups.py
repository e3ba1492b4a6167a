"""Which rows of a result belong into one plot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workloads.nccl.result import Result, Row

RAIL = re.compile(r"rail (\d+) (\S+)")
DIRECTIONS = {"up": "up", "down": "down", "duplex": "both ways"}
LATENCY_SIZE = 64 * 2**10
"""Up to this size, in bytes, the time of a run is latency more than bandwidth."""


@dataclass(frozen=True)
class Series:
    """One line of a plot: rows of growing size. `label` is empty where the plot has one line only."""

    label: str
    rows: list[Row]

    @property
    def last(self) -> Row:
        return self.rows[-1]


@dataclass(frozen=True)
class Group:
    """One plot. `total` says that its figure is the sum over all pairs, not busbw."""

    title: str
    op: str
    series: list[Series]
    total: bool

    def figure(self, row: Row) -> float:
        """What the plot shows of a row, GB/s (decimal)."""
        return row.total if self.total and row.total is not None else row.busbw

    @property
    def last(self) -> Row:
        """The row at the largest size of the first line."""
        return self.series[0].last


def name(row: Row) -> str:
    """`all_reduce`, `p2p pairs up`, `all_reduce, latency mode`."""
    plain = f"{row.op} {row.variant}" if row.variant else row.op
    return plain if row.mode == "throughput" else f"{plain}, {row.mode} mode"


def pattern(row: Row) -> tuple[str, str]:
    """A variant's pattern and direction: `pairs up` is ("pairs", "up"); what has no direction is all pattern."""
    words = (row.variant or "").split(" ")
    if words[-1] in DIRECTIONS:
        return " ".join(words[:-1]), words[-1]
    return row.variant or "", ""


def sweeps(result: Result) -> list[Group]:
    """Bandwidth over size: a plot for each operation and pattern; rails have a plot of their own (`rails`)."""
    plots: dict[tuple[str, str], dict[str, list[Row]]] = {}
    dtypes = {row.dtype for row in result.rows}
    for row in result.rows:
        if row.mode == "latency" or _rail(row):
            continue
        kind, direction = pattern(row)
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
    """Small sizes, a line for each operation: in latency mode where it was measured, else as it was.

    Of a point-to-point pattern only the first direction: the others are as long, and three lines hide each other.
    """
    lines: dict[str, dict[str, list[Row]]] = {}
    for row in result.rows:
        kind, direction = pattern(row)
        if (
            direction in ("", "up")
            and row.size <= LATENCY_SIZE
            and not _rail(row)
            and row.dtype == result.rows[0].dtype
        ):
            title = f"{row.op} {kind}".strip()
            lines.setdefault(title, {}).setdefault(row.mode, []).append(row)
    return [
        Series(title, _by_size(modes.get("latency") or modes.get("throughput") or next(iter(modes.values()))))
        for title, modes in lines.items()
    ]


def rails(result: Result) -> dict[str, list[tuple[int, Row]]]:
    """By direction: (rail, row at the largest size), in the rails' order."""
    found: dict[str, dict[int, Row]] = {}
    for row in result.rows:
        if match := _rail(row):
            of_direction = found.setdefault(match[2], {})
            number = int(match[1])
            if number not in of_direction or of_direction[number].size < row.size:
                of_direction[number] = row
    return {direction: sorted(rows.items()) for direction, rows in found.items()}


def largest(result: Result) -> list[Row]:
    """The row at the largest size of every measurement, in the result's order."""
    found: dict[tuple[str, str | None, str, str], Row] = {}
    for row in result.rows:
        key = (row.op, row.variant, row.mode, row.dtype)
        if key not in found or found[key].size < row.size:
            found[key] = row
    return list(found.values())


def shown(result: Result) -> list[Row]:
    """`largest` without the single rails, which have plots of their own and would fill any table."""
    return [row for row in largest(result) if not _rail(row)]


def paired(result: Result) -> dict[str, list[Row]]:
    """Of those, the ones that know several pairs, by pattern: both single directions together, duplex apart."""
    found: dict[str, list[Row]] = {}
    for row in shown(result):
        if row.pairs:
            kind, direction = pattern(row)
            ways = {"": "", "duplex": "both ways"}.get(direction, "one way")
            found.setdefault(", ".join(filter(None, (f"{row.op} {kind}".strip(), ways))), []).append(row)
    return {title: rows for title, rows in found.items() if sum(len(row.pairs or []) for row in rows) > 2}


def _rail(row: Row) -> re.Match[str] | None:
    return RAIL.fullmatch(row.variant or "")


def _by_size(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.size)
