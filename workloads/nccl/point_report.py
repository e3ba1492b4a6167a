"""Point-to-point rows for people: what each pattern carried, against its limit, and each pair of it with its hosts."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from workloads.nccl.figures import figure
from workloads.nccl.limits import OP
from workloads.nccl.sizes import format_size

SHOWN = 16  # pairs of one measurement; of more, the slowest


def show_pairs(result: dict[str, Any], console: Console) -> None:
    """Print the largest size of every point-to-point measurement; nothing where there is none."""
    rows = _largest([row for row in result["rows"] if row["op"] == OP and row.get("pairs")])
    if not rows:
        return
    per_node = result["world"]["per_node"]
    console.print(_table(rows))
    nodes = sorted({end // per_node for row in rows for pair in row["pairs"] for end in _ends(pair)})
    first = {member["node"]: member for member in reversed(result.get("ranks") or [])}
    for node in nodes:
        where = f"{first[node]['host']}, {first[node]['ip']}" if node in first else "not in the result"
        last = (node + 1) * per_node - 1
        console.print(f"node {node}: {where}, ranks {node * per_node} to {last}", highlight=False, soft_wrap=True)
    for row in rows:
        if len(row["pairs"]) > SHOWN:
            console.print(f"{row['variant']}: the {SHOWN} slowest of {len(row['pairs'])}", highlight=False)


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row of each measurement: the one with the largest size."""
    best: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["variant"], row["mode"], row["dtype"])
        if key not in best or row["size"] > best[key]["size"]:
            best[key] = row
    return list(best.values())


def _table(rows: list[dict[str, Any]]) -> Table:
    sizes = sorted({row["size"] for row in rows})
    table = Table(
        title=f"point to point, {' and '.join(map(format_size, sizes))} to each receiver",
        caption="decimal; sums are all bytes over the slowest pair's time",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("from rank to rank", no_wrap=True)
    for name in ("time µs", "GB/s", "Gbit/s", "limit", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    several = len({(row["mode"], row["dtype"]) for row in rows}) > 1
    for row in rows:
        name = f"{row['variant']} {row['dtype']} {row['mode']}" if several else row["variant"]
        total, limit = row["total"], row["limit"]
        table.add_row(
            f"[bold]{name}[/], {_summary(row['pairs'])}",
            figure(row["time_us"]["max"]),
            f"[bold]{figure(total)}[/]",
            f"[bold]{figure(total * 8)}[/]",
            *((figure(limit * 8), f"{total / limit:.1%}") if limit else ("-", "-")),
        )
        for pair in _shown(row["pairs"]) if row["pairs"][1:] else []:
            bandwidth = pair["bandwidth"]
            sender, receiver = _ends(pair)
            table.add_row(
                f"  {sender} to {receiver}", figure(pair["time_us"]), figure(bandwidth), figure(bandwidth * 8)
            )
        table.add_section()
    return table


def _shown(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(pairs) <= SHOWN:
        return pairs
    slowest = sorted(pairs, key=lambda pair: pair["bandwidth"])[:SHOWN]
    return [pair for pair in pairs if pair in slowest]


def _summary(pairs: list[dict[str, Any]]) -> str:
    """How many send at once; a single one by its ends, without a line of its own."""
    return f"{len(pairs)} at once" if pairs[1:] else "{} to {}".format(*_ends(pairs[0]))


def _ends(pair: dict[str, Any]) -> tuple[int, int]:
    return pair["sender"], pair["receiver"]
