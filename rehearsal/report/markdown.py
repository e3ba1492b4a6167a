"""Report of a rehearsal as Markdown, for the terminal and pull-request comments. Two runs differ only in times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.terminal import dollars
from rehearsal.report.labels import BANNER, by_sort, cloud, display_name, gist, kind, span
from rehearsal.report.mermaid import mermaid
from rehearsal.report.outcome import Change, Outcome
from rehearsal.report.schedule import CriticalPath
from tools.markdown import code, plain
from workloads.evidence.facts import counted

_SIGNS = {"replace": "🔴 **REPLACE**", "delete": "🔴 **delete**", "update": "update", "create": "create"}


def markdown(outcome: Outcome, *, terminal: bool = False) -> str:
    """Return the report. A terminal has shown the phases, and draws neither folds nor the graph."""
    parts = [_heading(outcome)]
    parts += [] if terminal else [_phases(outcome)]
    parts += [_schedule(outcome), _changes(outcome), _leftovers(outcome), *_folds(outcome, terminal), _notes(outcome)]
    return "\n".join("\n".join([*lines, ""]) for part in parts if (lines := list(part)))


def _heading(outcome: Outcome) -> Iterator[str]:
    verdict = "passed ✅" if outcome.ok else "failed ❌"
    yield f"## REHEARSAL {verdict}: stack {code(outcome.stack)}"
    yield ""
    yield f"*{BANNER}.*"
    before, now = outcome.cost
    if (before, now) != (None, None):
        change = f"{dollars(before)} → {dollars(now)}" if before != now else dollars(now)
        yield ""
        yield f"List price per hour, at most: {change}."


def _phases(outcome: Outcome) -> Iterator[str]:
    yield "| phase | | took here | |"
    yield "|---|---|--:|---|"
    for phase in outcome.phases:
        sign = "✅" if phase.ok else "❌"
        yield f"| {plain(phase.name)} | {sign} | {span(phase.seconds)} | {plain(gist(phase.said))} |"
    yield f"| **all** | | {span(outcome.seconds)} | |"
    for phase in outcome.phases:
        if len(phase.said.splitlines()) > 1:
            yield ""
            # Indentation makes it code whatever it contains; the text could close a fence.
            yield from _fold(f"output of {plain(phase.name)}", (f"    {line}" for line in phase.said.splitlines()))


def _schedule(outcome: Outcome) -> Iterator[str]:
    if not outcome.graph.managed:
        return
    up, destroy = outcome.schedule.up, outcome.schedule.destroy
    steps = " → ".join(
        f"{plain(display_name(node))} ({'not published' if seconds is None else span(seconds)})"
        for node, seconds in zip(up.nodes, up.published, strict=True)
    )
    yield f"Critical path of `up`: {steps}."
    yield f"On a real cloud `up` takes {_bound(up)}, `destroy` {_bound(destroy)}."


def _bound(path: CriticalPath) -> str:
    known = sum(seconds is not None for seconds in path.published)
    return f"at least {span(path.seconds)} ({known} of {len(path.nodes)} steps have a published duration)"


def _leftovers(outcome: Outcome) -> Iterator[str]:
    if outcome.leftovers:
        yield "### Left over after destroy"
        yield from (f"- {code(leftover)}" for leftover in sorted(outcome.leftovers))


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.notes:
        yield "### Notes"
        yield from (f"- {plain(note)}" for note in outcome.notes)


def _folds(outcome: Outcome, terminal: bool) -> Iterator[Iterator[str]]:
    """Yield the long parts, folded except on a terminal."""
    resources, waves = len(outcome.graph.managed), outcome.schedule.waves
    parts: list[tuple[str, Iterator[str]]] = []
    if resources:
        parts.append((f"{counted(resources, 'resource')} by kind", _resources(outcome)))
        parts.append((f"{counted(len(waves), 'wave')}, by dependency", _waves(outcome)))
        if not terminal:
            graph = mermaid(outcome.graph, outcome.schedule).splitlines()
            parts.append(("graph", iter(["```mermaid", *graph, "```"])))
    if outcome.timeline:
        events = (f"    {seconds:6.1f} s  {' '.join(what.split())}" for seconds, what in outcome.timeline)
        parts.append(("events in the cluster", events))
    for title, lines in parts:
        yield iter([f"### {title}", *lines]) if terminal else _fold(title, lines)


def _fold(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _changes(outcome: Outcome) -> Iterator[str]:
    if not outcome.changes:
        return
    replaced = sum(change.op == "replace" for change in outcome.changes)
    yield f"### {counted(len(outcome.changes), 'change')}" + (f", {replaced} by replacement" if replaced else "")
    yield ""
    yield "| change | resource | reason |"
    yield "|---|---|---|"
    for change in outcome.sorted_changes:
        reasons = ", ".join(code(reason) for reason in (*change.reasons, *change.recreates))
        yield f"| {_SIGNS[change.op]} | {code(outcome.changed(change))} | {reasons} |"
    for change in outcome.sorted_changes:
        yield from _damage(outcome, change)


def _damage(outcome: Outcome, change: Change) -> Iterator[str]:
    damage, machines = outcome.damage(change), outcome.machines(change)
    if not damage.falls and not damage.waits and not machines:
        return
    yield ""
    verb = {"replace": "Replacing", "update": "Updating"}.get(change.op, "Deleting")
    what = code(outcome.changed(change))
    if machines:
        yield f"> 🔴 **{verb} {what} takes down {machines}.**"
    if damage.falls:
        yield f"> 🔴 **{verb} {what} takes down {counted(len(damage.falls), 'resource')}:**"
        yield from (f"> - {code(line)}" for line in by_sort(damage.falls))
    elif not machines:
        yield f"> {verb} {what} takes down nothing else."
    if damage.waits:
        yield ">"
        yield "> Created after it, and may be affected:"
        yield from (f"> - {code(line)}" for line in by_sort(damage.waits))


def _resources(outcome: Outcome) -> Iterator[str]:
    yield "| cloud | kind | count |"
    yield "|---|---|--:|"
    for type_, count in outcome.kinds.items():
        yield f"| {cloud(type_)} | {code(kind(type_))} | {count} |"


def _waves(outcome: Outcome) -> Iterator[str]:
    yield "| wave | what |"
    yield "|--:|---|"
    for number, wave in enumerate(outcome.schedule.waves, 1):
        yield f"| {number} | {plain('; '.join(by_sort(wave)))} |"
