"""A benchmark's result for people: a table, the notices, the verdict. Reads the result's model only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from workloads.client.view import ProgressView
from workloads.events import Event
from workloads.nccl.evidence.show import show_evidence
from workloads.nccl.figures import figure as figure
from workloads.nccl.point_report import show_pairs
from workloads.nccl.result import Result, Row
from workloads.nccl.sizes import format_size

WIDE = 110  # columns from which on a terminal has room for the spread over the ranks and the tail
CROWDED = 8  # columns that 80 characters have room for
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
    show_evidence(result.evidence, console)
    if result.verdict is not None and result.verdict.machine is not None:
        from workloads.nccl.judge import view  # it knows the catalog, which a run on CPUs need not load

        view.show(result.verdict, console)
    else:
        console.print(result.reason, style="red" if result.exit_code else "green", markup=False, soft_wrap=True)


def _table(result: Result, wide: bool) -> Table:
    table = Table(
        title=_heading(result),
        caption="time µs is the slowest rank's mean; GB/s are decimal",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=not wide,
    )
    columns = _columns(result.rows, wide)
    for name, (justify, _) in columns.items():
        table.add_column(name, justify=justify, no_wrap=True)
    before = None
    for row in result.rows:
        kind = (title(row), row.mode, row.dtype)
        if before not in (None, kind):
            table.add_section()
        before = kind
        table.add_row(*(cell(row) for _, cell in columns.values()))
    return table


def _columns(rows: Sequence[Row], wide: bool) -> dict[str, tuple[JustifyMethod, Callable[[Row], str]]]:
    """The columns that there is room for; what says the same in every row is in the heading instead."""
    left: JustifyMethod = "left"
    right: JustifyMethod = "right"
    found: dict[str, tuple[JustifyMethod, Callable[[Row], str]]] = {"operation": (left, title)}
    if len({row.dtype for row in rows}) > 1:
        found["type"] = (left, lambda row: row.dtype)
    if len({row.mode for row in rows}) > 1:
        found["mode"] = (left, lambda row: SHORT[row.mode])
    found["size"] = (right, lambda row: format_size(row.size))
    found["time µs"] = (right, lambda row: figure(row.time_us.max))
    if wide:
        found["min"] = (right, lambda row: figure(row.time_us.min))
        found["avg"] = (right, lambda row: figure(row.time_us.avg))
        found["p50"] = (right, lambda row: figure(row.iteration_us.p50))
        found["p99"] = (right, lambda row: figure(row.iteration_us.p99))
        found["cv %"] = (right, lambda row: f"{100 * row.iteration_us.cv:.1f}")
    found["algbw"] = (right, lambda row: figure(row.algbw))
    found["busbw"] = (right, lambda row: figure(row.busbw))
    if any(row.nic_bandwidth is not None for row in rows):
        found["per NIC"] = (right, lambda row: "N/A" if row.nic_bandwidth is None else figure(row.nic_bandwidth))
    found["#wrong"] = (right, lambda row: _wrong(row.wrong))
    if not wide and len(found) > CROWDED:
        del found["algbw"]  # size over time, both of which are there
    return found


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


def _wrong(wrong: int | None) -> str:
    """N/A where nothing was checked, as nccl-tests writes it: that is not zero."""
    if wrong is None:
        return "N/A"
    return f"[red]{wrong}[/]" if wrong else "0"
