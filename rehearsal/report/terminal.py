"""Report of a rehearsal on the terminal. Every screen carries the rehearsal banner."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rehearsal.report.labels import BANNER, by_sort, cloud, counted, display_name, gist, kind, span
from rehearsal.report.outcome import Change, Outcome
from rehearsal.report.schedule import OrderingEdge

_STYLES = {"create": "green", "update": "cyan", "replace": "bold red", "delete": "red"}


def show(outcome: Outcome, console: Console) -> None:
    """Print the whole outcome."""
    console.print()
    console.rule(f"[bold magenta]{BANNER}[/]")
    _phases(outcome, console)
    if outcome.changes:
        _changes(outcome, console)
    if outcome.graph.managed:
        _kinds(outcome, console)
        _waves(outcome, console)
        _prediction(outcome, console)
    _ordering(outcome.prediction.unexplained, console)
    for leftover in sorted(outcome.leftovers):
        console.print(f"[red]left over after destroy:[/] {escape(leftover)}", soft_wrap=True)
    for note in outcome.notes:
        console.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)
    verdict = "[green]passed[/]" if outcome.ok else "[red]failed[/]"
    console.print(f"[bold]REHEARSAL of stack {escape(outcome.stack)} {verdict}[/] in {span(outcome.seconds)}")


def _table(what: str, *headings: str, right: Iterable[str] = ()) -> Table:
    table = Table(title=f"[bold magenta]REHEARSAL[/] · {what}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


def _phases(outcome: Outcome, console: Console) -> None:
    what = f"stack {escape(outcome.stack)}, target {escape(outcome.target)}"
    table = _table(what, "phase", "", "time here", "", right=("time here",))
    for phase in outcome.phases:
        word = "[green]ok[/]" if phase.ok else "[bold red]failed[/]"
        table.add_row(escape(phase.name), word, span(phase.seconds), escape(gist(phase.said)))
    console.print(table)


def _kinds(outcome: Outcome, console: Console) -> None:
    table = _table(
        f"{counted(len(outcome.graph.managed), 'resource')} by kind", "cloud", "kind", "count", right=("count",)
    )
    before = None
    for type_, count in outcome.kinds.items():
        whose = cloud(type_)
        table.add_row(whose if whose != before else "", kind(type_), str(count))
        before = whose
    console.print(table)


def _waves(outcome: Outcome, console: Console) -> None:
    waves = outcome.prediction.waves
    table = _table(f"{counted(len(waves), 'wave')}, by dependency", "wave", "what", right=("wave",))
    for number, wave in enumerate(waves, 1):
        table.add_row(str(number), "\n".join(escape(line) for line in by_sort(wave)))
    console.print(table)


def _prediction(outcome: Outcome, console: Console) -> None:
    prediction, graph = outcome.prediction, outcome.graph
    facts = Table.grid(padding=(0, 2))
    at_a_time = f"{prediction.parallel} at a time" if prediction.parallel else "unlimited"
    facts.add_row("up", f"[bold]{span(prediction.up.makespan)}[/], {at_a_time}")
    facts.add_row("at least", f"{span(prediction.bound)} by data dependencies; the ratio is {prediction.ratio:.2f}")
    facts.add_row("destroy", span(prediction.destroy.makespan))
    steps = (f"{display_name(graph[urn])} {span(_took(outcome, urn))}" for urn in prediction.up.critical)
    facts.add_row("critical path", escape(" → ".join(steps)))
    console.print("[bold magenta]REHEARSAL[/] · [italic]predicted times on real clouds, from published durations[/]")
    console.print(facts)
    console.print()


def _took(outcome: Outcome, urn: str) -> float:
    ran = outcome.prediction.up.spans[urn]
    return ran.finish - ran.start


def _ordering(edges: tuple[OrderingEdge, ...], console: Console) -> None:
    for edge in edges:
        console.print(
            f"[yellow]{escape(display_name(edge.waits))} waits for {escape(display_name(edge.until))}: no reason given"
            " (rehearsal/report/ordering.py)[/]",
            soft_wrap=True,
        )


def _changes(outcome: Outcome, console: Console) -> None:
    table = _table(f"{counted(len(outcome.changes), 'change')} to the stack", "change", "resource", "because of")
    for change in outcome.sorted_changes:
        style = _STYLES[change.op]
        name = escape(outcome.changed(change))
        table.add_row(f"[{style}]{change.op}[/]", f"[{style}]{name}[/]", escape(", ".join(change.reasons)))
    console.print(table)
    for change in outcome.sorted_changes:
        _damage(outcome, change, console)


def _damage(outcome: Outcome, change: Change, console: Console) -> None:
    damage, machines = outcome.damage(change), outcome.machines(change)
    verb = "replacing" if change.op == "replace" else "deleting"
    what = escape(f"{verb} {outcome.changed(change)} takes down")
    if machines:
        console.print(f"[bold red]{what} {machines}[/]", soft_wrap=True)
    if damage.falls:
        console.print(f"[bold red]{what} {counted(len(damage.falls), 'resource')}:[/]", soft_wrap=True)
        for line in by_sort(damage.falls):
            console.print(f"  [red]{escape(line)}[/]", soft_wrap=True)
    if damage.waits:
        console.print("  [yellow]created after it, and may be affected:[/]", soft_wrap=True)
        for line in by_sort(damage.waits):
            console.print(f"  [yellow]{escape(line)}[/]", soft_wrap=True)
