"""Verdict and floors on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from infra.catalog.machines import Machine
from workloads.nccl.result import Verdict
from workloads.nccl.units import format_size
from workloads.terminal.console import say, table_of

CAPTION = "busbw out of place, GB/s (decimal); figures of low confidence do not gate"
STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def show(verdict: Verdict, console: Console) -> None:
    """Print the comparisons, all findings (failures first), then the verdict."""
    columns = ("operation", "size", "measured", "published", "share", "confidence")
    table = table_of(columns, text=("operation",), caption=CAPTION)
    for comparison in verdict.comparisons:
        table.add_row(
            comparison.op,
            format_size(comparison.size),
            f"{comparison.measured:.1f}",
            f"{comparison.expected:g}",
            f"{comparison.share:.1%}",
            comparison.confidence,
        )
    if verdict.comparisons:
        console.print(table)
    for source in dict.fromkeys(comparison.source for comparison in verdict.comparisons):
        say(console, f"published by {source}")
    for finding in sorted(verdict.findings, key=lambda finding: not finding.code):
        code = f" [{finding.code}]" if finding.code else ""
        say(console, f"{finding.kind}: {finding.text}{code}", "red" if code else "yellow")
    machine = f"{verdict.machine}: " if verdict.machine else ""
    code = f" (exit {verdict.code})" if verdict.code else ""
    text = f"{verdict.outcome.upper()}{code}  {machine}{verdict.reason}"
    say(console, text, f"bold {STYLES[verdict.outcome]}")


def show_floors(machines: Sequence[Machine], console: Console) -> None:
    """Print the published figures of these machine types, and below them their sources."""
    columns = ("machine", "nodes", "size", "busbw", "floor", "confidence", "source")
    table = table_of(columns, text=("machine",), caption=CAPTION)
    sources: dict[str, int] = {}
    for machine in machines:
        table.add_row(Text.assemble((machine.name, "bold"), "" if machine.baselines else ": none"))
        for line in sorted(machine.baselines, key=lambda line: (line.nodes, line.op, line.size)):
            source = f"{line.source}. {line.note}" if line.note else line.source
            table.add_row(
                f"  {line.op}" + (f" {line.algorithm}" if line.algorithm else ""),
                str(line.nodes),
                format_size(line.size),
                f"{line.busbw:g}",
                f"{line.floor:g}" if line.gates else "",
                line.confidence,
                str(sources.setdefault(source, len(sources) + 1)),
            )
        table.add_section()
    console.print(table)
    for source, number in sources.items():
        say(console, f"{number}  {source}")
