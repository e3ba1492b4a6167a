"""A benchmark's result for people: a table, the notice, the verdict. Reads the result's JSON only."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from workloads.client.run import View
from workloads.events import Event
from workloads.nccl.sizes import format_size

PHASES = {
    "placement": "waiting for the nodes",
    "start": "starting the ranks",
    "rendezvous": "forming the process group",
}


class BenchView(View):
    """A progress bar over the rows on a terminal, plain lines elsewhere; always on `console` (stderr)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("starting the driver", total=None)

    def __enter__(self) -> View:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self._say(PHASES[event["name"]])
            case "plan":
                self.progress.update(self.task, total=event["rows"])
                self._say(f"measuring on {event['ranks']} ranks")
            case "row":
                self.progress.update(self.task, advance=1, description=f"{title(event)} {format_size(event['size'])}")

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def _say(self, text: str) -> None:
        self.progress.update(self.task, description=text)
        if not self.console.is_terminal:
            self.line(text)


def title(row: dict[str, Any]) -> str:
    return f"{row['op']} {row['variant']}" if row["variant"] else str(row["op"])


def show(result: dict[str, Any], console: Console) -> None:
    """Print the result: nothing but the reason where it failed before the first row."""
    if result["rows"]:
        console.print(_table(result))
    if notice := result.get("notice"):
        console.print(notice, style="yellow", soft_wrap=True)
    if fault := result.get("injected_fault"):
        console.print(f"a fault was injected on purpose: {fault}", style="yellow")
    for row in result["rows"]:
        for warning in row["warnings"]:
            console.print(f"{title(row)} {format_size(row['size'])}: {warning}", style="yellow", soft_wrap=True)
    console.print(result["reason"], style="red" if result["exit_code"] else "green", markup=False, soft_wrap=True)


def _table(result: dict[str, Any]) -> Table:
    world, versions = result["world"], result["versions"]
    library = f"NCCL {versions['nccl']}" if versions["nccl"] else result["backend"]
    table = Table(
        title=(
            f"{world['ranks']} ranks on {world['nodes']} nodes, {library}, {result['spec']['dtype']},"
            f" {result['spec']['iterations']} iterations"
        ),
        caption="time is the slowest rank's; GB/s are decimal",
    )
    table.add_column("operation")
    for name in ("size", "time µs", "min", "avg", "p99", "algbw GB/s", "busbw GB/s", "#wrong"):
        table.add_column(name, justify="right")
    before = None
    for row in result["rows"]:
        if before not in (None, title(row)):
            table.add_section()
        before = title(row)
        time = row["time_us"]
        table.add_row(
            before,
            format_size(row["size"]),
            *(f"{value:.1f}" for value in (time["max"], time["min"], time["avg"], row["iteration_us"]["p99"])),
            f"{row['algbw']:.3f}",
            f"{row['busbw']:.3f}",
            f"[red]{row['wrong']}[/]" if row["wrong"] else "0",
        )
    return table
