"""A benchmark's result for people: a table, the notices, the verdict. Reads the result's model only."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from workloads.client.view import ProgressView
from workloads.events import Event
from workloads.nccl.evidence.show import show_evidence
from workloads.nccl.figures import figure as figure
from workloads.nccl.point_report import show_pairs
from workloads.nccl.result import Result, Row
from workloads.nccl.sizes import format_size

WIDE = 110  # columns from which on a terminal has room for the spread over the ranks and the tail
MOST_WARNINGS = 10
SHORT = {"throughput": "thru", "latency": "lat", "graph": "graph"}
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
            case "waiting":
                self.say(f"waiting for the nodes for {event['seconds']} s: {event['text']}")
            case "plan":
                self.begin(event["rows"])
                self.say(f"measuring on {event['ranks']} ranks")
            case "row":
                name = f"{event['op']} {event['variant'] or ''}".strip()
                self.advance(f"{name} {format_size(event['size'])}")


def title(row: Row) -> str:
    """`all_reduce`, `p2p pairs up`."""
    return f"{row.op} {row.variant}" if row.variant else row.op


def show(document: dict[str, Any], console: Console) -> None:
    """Print the result: nothing but the reason where it failed before the first row."""
    result = Result.model_validate(document)
    if result.rows:
        console.print(_table(result, wide=console.width >= WIDE))
        show_pairs(document, console)
    if result.notice:
        console.print(result.notice, style="yellow", soft_wrap=True)
    if left_out := result.spec.get("left_out"):
        console.print(f"not measured, since bytes hold no exact sum: {', '.join(left_out)}", soft_wrap=True)
    if result.injected_fault:
        console.print(f"a fault was injected on purpose: {result.injected_fault}", style="yellow")
    warnings = [f"{title(row)} {format_size(row.size)}: {warning}" for row in result.rows for warning in row.warnings]
    for warning in warnings[:MOST_WARNINGS]:
        console.print(warning, style="yellow", soft_wrap=True)
    if len(warnings) > MOST_WARNINGS:
        console.print(f"… and {len(warnings) - MOST_WARNINGS} warnings more, in the JSON (--json)", style="yellow")
    show_evidence(document, console)
    console.print(result.reason, style="red" if result.exit_code else "green", markup=False, soft_wrap=True)


def _table(result: Result, wide: bool) -> Table:
    table = Table(
        title=_heading(result),
        caption="time µs is the slowest rank's mean; GB/s are decimal",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    # A column that says the same in every row is in the heading instead.
    modes, dtypes = ({row.mode for row in result.rows}, {row.dtype for row in result.rows})
    nics = any(row.nic_bandwidth is not None for row in result.rows)
    table.add_column("operation", no_wrap=True)
    for name, shown in (("type", len(dtypes) > 1), ("mode", len(modes) > 1)):
        if shown:
            table.add_column(name, no_wrap=True)
    spread = ("min", "avg", "p50", "p99", "cv %") if wide else ()
    for name in ("size", "time µs", *spread, "algbw", "busbw", *(("per NIC",) if nics else ()), "#wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    before = None
    for row in result.rows:
        kind = (title(row), row.mode, row.dtype)
        if before not in (None, kind):
            table.add_section()
        before = kind
        table.add_row(
            title(row),
            *((row.dtype,) if len(dtypes) > 1 else ()),
            *((SHORT[row.mode],) if len(modes) > 1 else ()),
            format_size(row.size),
            figure(row.time_us.max),
            *(_spread(row) if wide else ()),
            figure(row.algbw),
            figure(row.busbw),
            *(("N/A" if row.nic_bandwidth is None else figure(row.nic_bandwidth),) if nics else ()),
            _wrong(row.wrong),
        )
    return table


def _heading(result: Result) -> str:
    world, versions = result.world, result.versions or {}
    library = f"NCCL {versions['nccl']}" if versions.get("nccl") else str(result.backend)
    parts = [f"{world.ranks} ranks on {world.nodes} nodes" if world else "", library]
    for values in ({row.dtype for row in result.rows}, {row.mode for row in result.rows}):
        if len(values) == 1:
            parts += values
    parts.append(f"{result.spec['iterations']} iterations")
    if algo := result.spec.get("algo"):
        parts.append(f"NCCL_ALGO {algo}")
    if preset := result.spec.get("preset"):
        parts.append(f"preset {preset}")
    return ", ".join(part for part in parts if part)


def _spread(row: Row) -> tuple[str, ...]:
    times = (row.time_us.min, row.time_us.avg, row.iteration_us.p50, row.iteration_us.p99)
    return (*map(figure, times), f"{100 * row.iteration_us.cv:.1f}")


def _wrong(wrong: int | None) -> str:
    """N/A where nothing was checked, as nccl-tests writes it: that is not zero."""
    if wrong is None:
        return "N/A"
    return f"[red]{wrong}[/]" if wrong else "0"
