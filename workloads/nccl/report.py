"""A benchmark's result for people: a table, the notice, the verdict. Reads the result's JSON only."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from workloads.client.view import ProgressView
from workloads.events import Event
from workloads.nccl.sizes import format_size

WIDE = 100  # columns from which on a terminal has room for the minimum, the mean and the tail
PHASES = {
    "placement": "waiting for the nodes",
    "start": "starting the ranks",
    "rendezvous": "forming the process group",
}


class BenchView(ProgressView):
    """The bar counts rows."""

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say(PHASES[event["name"]])
            case "plan":
                self.begin(event["rows"])
                self.say(f"measuring on {event['ranks']} ranks")
            case "row":
                self.advance(f"{title(event)} {format_size(event['size'])}")


def title(row: dict[str, Any]) -> str:
    return f"{row['op']} {row['variant']}" if row["variant"] else str(row["op"])


def show(result: dict[str, Any], console: Console) -> None:
    """Print the result: nothing but the reason where it failed before the first row."""
    if result["rows"]:
        console.print(_table(result, wide=console.width >= WIDE))
    if notice := result.get("notice"):
        console.print(notice, style="yellow", soft_wrap=True)
    if fault := result.get("injected_fault"):
        console.print(f"a fault was injected on purpose: {fault}", style="yellow")
    for row in result["rows"]:
        for warning in row["warnings"]:
            console.print(f"{title(row)} {format_size(row['size'])}: {warning}", style="yellow", soft_wrap=True)
    console.print(result["reason"], style="red" if result["exit_code"] else "green", markup=False, soft_wrap=True)


def _table(result: dict[str, Any], wide: bool) -> Table:
    world, versions = result["world"], result["versions"]
    library = f"NCCL {versions['nccl']}" if versions["nccl"] else result["backend"]
    table = Table(
        title=(
            f"{world['ranks']} ranks on {world['nodes']} nodes, {library}, {result['spec']['dtype']},"
            f" {result['spec']['iterations']} iterations"
        ),
        caption="time µs is the slowest rank's; GB/s are decimal",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("operation", no_wrap=True)
    details = ("min", "avg", "p99") if wide else ()
    for name in ("size", "time µs", *details, "algbw", "busbw", "#wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    before = None
    for row in result["rows"]:
        if before not in (None, title(row)):
            table.add_section()
        before = title(row)
        time = row["time_us"]
        table.add_row(
            before,
            format_size(row["size"]),
            figure(time["max"]),
            *(map(figure, (time["min"], time["avg"], row["iteration_us"]["p99"])) if wide else ()),
            figure(row["algbw"]),
            figure(row["busbw"]),
            f"[red]{row['wrong']}[/]" if row["wrong"] else "0",
        )
    return table


def figure(value: float) -> str:
    """Four significant digits without an exponent: 371.9, 12.35, 0.0421, 12022."""
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if value >= 1 else f"{value:.4f}"
