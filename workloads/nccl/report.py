"""Benchmark results on a terminal: progress, tables, notices, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from workloads.evidence.show import show_evidence
from workloads.nccl.result import BenchResult, MultiGpuResult, NcclResult, Pair, Row
from workloads.nccl.units import figure, format_size
from workloads.results.events import Event
from workloads.terminal.console import say, table_of
from workloads.terminal.progress import ProgressView

WIDE = 110
"""Columns of a terminal with room for the spread over the ranks and the tail of single runs."""
NARROW_COLUMNS = 8
"""Table columns that fit into 80 characters."""
MAX_WARNINGS = 10
MAX_PAIRS = 16
"""Pairs of one measurement that are shown; of more, the slowest."""
SHORT = {"throughput": "thru", "latency": "lat", "graph": "graph"}
PHASES = {
    "placement": "waiting for the nodes",
    "start": "starting the ranks",
    "rendezvous": "forming the process group",
    "reduce": "adding up over all devices",
}


class BenchView(ProgressView):
    """Progress of a benchmark or a multi-GPU check. The bar counts rows."""

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


def show(result: BenchResult, console: Console) -> None:
    """Print the result; only the reason if it failed before the first row."""
    if result.rows:
        console.print(_table(result, wide=console.width >= WIDE))
        show_pairs(result, console)
    if result.notice:
        say(console, result.notice, "yellow")
    if result.short_runs:
        say(console, result.short_runs)
    if result.spec.left_out:
        say(console, f"not measured, because sums of bytes are not exact: {', '.join(result.spec.left_out)}")
    show_fault(result, console)
    warnings = [f"{row.title} {format_size(row.size)}: {text}" for row in result.rows for text in row.warnings]
    for warning in warnings[:MAX_WARNINGS]:
        say(console, warning, "yellow")
    if len(warnings) > MAX_WARNINGS:
        say(console, f"… and {len(warnings) - MAX_WARNINGS} more warnings in the JSON (--json)", "yellow")
    show_evidence(result.evidence, console)
    if result.verdict is not None and result.verdict.machine is not None:
        from workloads.nccl.judge import view  # it loads the catalog, which a run on CPUs does not need

        view.show(result.verdict, console)
    else:
        show_reason(result, console)


def show_pairs(result: BenchResult, console: Console) -> None:
    """Print the largest size of every point-to-point measurement: its total against its limit, and each pair."""
    found = [row for row in largest(result.rows) if row.pairs]
    if not found or result.world is None:
        return
    per_node = result.world.per_node
    console.print(_pair_table(found))
    first = {member.node: member for member in reversed(result.ranks or [])}
    ends = {end for row in found for pair in row.pairs or [] for end in (pair.sender, pair.receiver)}
    for node in sorted({end // per_node for end in ends}):
        where = f"{first[node].host}, {first[node].ip}" if node in first else "not in the result"
        ranks = f"ranks {node * per_node} to {(node + 1) * per_node - 1}"
        say(console, f"node {node}: {where}, {ranks}")
    for row in found:
        if len(row.pairs or []) > MAX_PAIRS:
            say(console, f"{row.variant}: the {MAX_PAIRS} slowest of {len(row.pairs or [])}")


def largest(rows: Sequence[Row]) -> list[Row]:
    """Return the row with the largest size of each measurement, in the order of the measurements."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = (row.title, row.mode, row.dtype)
        found[key] = max(found.get(key, row), row, key=lambda each: each.size)
    return list(found.values())


def show_multigpu(result: MultiGpuResult, console: Console) -> None:
    """Print every tensor of every worker, then the verdict; only the reason if no tensor was read."""
    if result.workers:
        console.print(_tensor_table(result))
        say(console, str(result.ran))
    if result.notice:
        say(console, result.notice, "yellow")
    if result.machines == 1:
        say(console, "all workers on one machine: a functional proof", "yellow")
    show_fault(result, console)
    for worker in result.workers:
        if log := worker.log:
            nccl = f"NCCL {log.nccl_version}, network {log.plugin}, GPUDirect RDMA on NICs {log.gdrdma_hcas}"
            say(console, f"worker {worker.rank}: {nccl}")
    show_reason(result, console)


def show_fault(result: NcclResult, console: Console) -> None:
    """Print the fault that was injected into a job, if any."""
    if result.injected_fault:
        say(console, f"a fault was injected on purpose: {result.injected_fault}", "yellow")


def show_reason(result: NcclResult, console: Console) -> None:
    """Print the last line of a report."""
    say(console, result.reason, "red" if result.exit_code else "green")


def _table(result: BenchResult, wide: bool) -> Table:
    columns = _columns(result.rows, wide)
    caption = "time µs is the slowest rank's mean; GB/s are decimal"
    table = table_of(columns, ("operation", "type", "mode"), _heading(result), caption)
    table.collapse_padding = not wide
    previous = None
    for row in result.rows:
        kind = (row.title, row.mode, row.dtype)
        if previous not in (None, kind):
            table.add_section()
        previous = kind
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


def _columns(rows: Sequence[Row], wide: bool) -> dict[str, Callable[[Row], str | Text]]:
    """Return the columns that fit, by name; values that are equal in every row are in the heading.

    N/A is for None, as in nccl-tests.
    """
    per_nic = any(row.nic_bandwidth for row in rows)
    columns: list[tuple[str, bool, Callable[[Row], str | Text]]] = [
        ("operation", True, lambda row: row.title),
        ("type", len({row.dtype for row in rows}) > 1, lambda row: row.dtype),
        ("mode", len({row.mode for row in rows}) > 1, lambda row: SHORT[row.mode]),
        ("size", True, lambda row: format_size(row.size)),
        ("time µs", True, lambda row: figure(row.time_us.max)),
        ("min", wide, lambda row: figure(row.time_us.min)),
        ("avg", wide, lambda row: figure(row.time_us.avg)),
        ("p50", wide, lambda row: figure(row.iteration_us.p50)),
        ("p99", wide, lambda row: figure(row.iteration_us.p99)),
        ("cv %", wide, lambda row: f"{100 * row.iteration_us.cv:.1f}"),
        ("algbw", True, lambda row: figure(row.algbw)),
        ("busbw", True, lambda row: figure(row.busbw)),
        ("per NIC", per_nic, lambda row: "N/A" if row.nic_bandwidth is None else figure(row.nic_bandwidth)),
        ("#wrong", True, lambda row: Text(str(row.wrong), "red") if row.wrong else "N/A" if row.wrong is None else "0"),
    ]
    columns_shown = {name: cell for name, shown, cell in columns if shown}
    if not wide and len(columns_shown) > NARROW_COLUMNS:
        del columns_shown["algbw"]  # equals size over time, both of which are shown
    return columns_shown


def _heading(result: BenchResult) -> str:
    world, versions, spec = result.world, result.versions or {}, result.spec
    library = f"NCCL {versions['nccl']}" if versions.get("nccl") else str(result.backend)
    parts = [f"{world.ranks} ranks on {world.nodes} nodes" if world else "", library]
    for values in ({row.dtype for row in result.rows}, {row.mode for row in result.rows}):
        if len(values) == 1:
            parts += values
    parts.append(f"{spec.iterations} iterations")
    parts.append(f"NCCL_ALGO {spec.algo}" if spec.algo else "")
    parts.append(f"preset {spec.preset}" if spec.preset else "")
    return ", ".join(part for part in parts if part)


def _pair_table(rows: Sequence[Row]) -> Table:
    sizes = sorted({row.size for row in rows})
    table = table_of(
        ("from rank to rank", "time µs", "GB/s", "Gbit/s", "limit", "share"),
        text=("from rank to rank",),
        title=f"point to point, {' and '.join(map(format_size, sizes))} to each receiver",
        caption="decimal; sums are all bytes over the slowest pair's time",
    )
    several = len({(row.mode, row.dtype) for row in rows}) > 1
    for row in rows:
        name = f"{row.variant} {row.dtype} {SHORT[row.mode]}" if several else str(row.variant)
        pairs, total = row.pairs or [], row.total or 0.0
        count = f"{len(pairs)} at once" if pairs[1:] else _ends(pairs[0])
        table.add_row(
            Text.assemble((name, "bold"), f", {count}"),
            figure(row.time_us.max),
            Text(figure(total), "bold"),
            Text(figure(total * 8), "bold"),
            *((figure(row.limit * 8), f"{total / row.limit:.1%}") if row.limit else ("-", "-")),
        )
        slowest = sorted(pairs, key=lambda pair: pair.bandwidth)[:MAX_PAIRS]
        for pair in [pair for pair in pairs if pair in slowest] if pairs[1:] else []:
            cells = figure(pair.time_us), figure(pair.bandwidth), figure(pair.bandwidth * 8)
            table.add_row(f"  {_ends(pair)}", *cells)
        table.add_section()
    return table


def _ends(pair: Pair) -> str:
    return f"{pair.sender} to {pair.receiver}"


def _tensor_table(result: MultiGpuResult) -> Table:
    table = table_of(
        ("worker", "address", "tensor", "device", "before", "after"),
        text=("worker", "address", "tensor", "device", "after"),
        title=f"{len(result.workers)} workers of {result.spec.devices} tensors, {result.backend}",
        caption=f"every element must be {result.expected:g}",
    )
    for worker in result.workers:
        table.add_section()
        for index, tensor in enumerate(worker.tensors):
            after = " ".join(f"{value:g}" for value in tensor.values)
            right = all(value == result.expected for value in tensor.values)
            place = str(worker.rank), worker.ip, str(index), tensor.device
            table.add_row(*place, f"{tensor.start:g}", after if right else Text(after, "red"))
    return table
