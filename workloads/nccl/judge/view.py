"""A verdict for people: measured beside published, what was found, and one line at the end."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from infra.catalog.baselines import BASELINES
from infra.catalog.machines import CATALOG
from workloads.nccl.result import Finding, Verdict
from workloads.nccl.sizes import format_size

CAPTION = "busbw out of place, GB/s (decimal); a figure of low confidence judges nobody"
STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def show(verdict: Verdict, console: Console) -> None:
    """Print the verdict: comparisons, then all findings (those that fail first), then the word."""
    if verdict.comparisons:
        console.print(_comparisons(verdict))
        for source in dict.fromkeys(comparison.source for comparison in verdict.comparisons):
            console.print(f"published by {source}", markup=False, highlight=False, soft_wrap=True)
    for finding in sorted(verdict.findings, key=lambda finding: not finding.code):
        console.print(_line(finding), style="red" if finding.code else "yellow", markup=False, soft_wrap=True)
    machine = f"{verdict.machine}: " if verdict.machine else ""
    code = f" (exit {verdict.code})" if verdict.code else ""
    console.print(
        f"{verdict.outcome.upper()}{code}  {machine}{verdict.reason}",
        style=f"bold {STYLES[verdict.outcome]}",
        markup=False,
        soft_wrap=True,
    )


def _line(finding: Finding) -> str:
    return f"{finding.kind}: {finding.text}" + (f" [{finding.code}]" if finding.code else "")


def _table(caption: str, *names: str) -> Table:
    """A table whose first column is text and whose others are figures."""
    table = Table(caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(names):
        table.add_column(name, justify="right" if position else "left", no_wrap=True)
    return table


def _comparisons(verdict: Verdict) -> Table:
    table = _table(CAPTION, "operation", "size", "measured", "published", "share", "confidence")
    for comparison in verdict.comparisons:
        table.add_row(
            comparison.op,
            format_size(comparison.size),
            f"{comparison.measured:.1f}",
            f"{comparison.expected:g}",
            f"{comparison.share:.1%}",
            comparison.confidence,
        )
    return table


def show_floors(machine: str | None, console: Console) -> None:
    """Print the published figures of one machine type, or of all, and below them where they come from."""
    table = _table(CAPTION, "machine", "nodes", "size", "busbw", "floor", "confidence", "source")
    sources: dict[str, int] = {}
    for name in CATALOG if machine is None else [machine]:
        lines = BASELINES.get(name, ())
        table.add_row(f"[bold]{name}[/]" if lines else f"[bold]{name}[/]: none")
        for line in sorted(lines, key=lambda line: (line.nodes, line.op, line.size)):
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
        console.print(f"{number}  {source}", markup=False, highlight=False, soft_wrap=True)
