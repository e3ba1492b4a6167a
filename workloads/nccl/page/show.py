"""A comparison for people, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from workloads.exits import Exit
from workloads.nccl.page.compare import SMALL, Change, Compared
from workloads.nccl.report import figure
from workloads.nccl.sizes import format_size

UNITS = {"busbw": "GB/s", "latency": "µs"}
CLOSEST = 5  # rows that are shown where none moved: what came nearest to it


def show(compared: Compared, console: Console) -> None:
    """What moved, the worst first; where nothing did, what came closest."""
    moved = [*compared.slower, *compared.faster[::-1]]
    rows = moved or sorted(compared.changes, key=lambda one: one.speed)[:CLOSEST]
    if rows:
        console.print(_table(rows, "rows that moved" if moved else "nothing moved; the slowest of what did not"))
    for key in compared.missing:
        console.print(f"missing in B: {key}", style="red", markup=False, soft_wrap=True)
    for key in compared.added:
        console.print(f"only in B: {key}", markup=False, soft_wrap=True)
    for text in compared.remarks:
        console.print(text, style="yellow", markup=False, soft_wrap=True)
    console.print(compared.reason, style="red" if compared.code != Exit.OK else "green", markup=False, soft_wrap=True)


def _table(rows: Sequence[Change], title: str) -> Table:
    table = Table(
        title=title,
        caption=(
            f"A, B and change: from {format_size(SMALL)} up busbw (the slowest rank's mean), below and in latency mode"
            " the median run; beside: the change by the other of the two; cv: the runs' own spread"
        ),
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("row", overflow="fold")
    for name in ("size", "A", "B", "", "change", "beside", "cv"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for one in rows:
        style = {"slower": "red", "faster": "green", "no": ""}[one.moved]
        table.add_row(
            one.key.name,
            format_size(one.key.size),
            figure(one.before),
            figure(one.after),
            UNITS[one.figure],
            f"{one.percent:+.1f} %",
            f"{((one.median_speed if one.figure == 'busbw' else one.mean_speed) - 1) * 100:+.1f} %",
            f"{one.cv * 100:.1f} %",
            style=style,
        )
    return table
