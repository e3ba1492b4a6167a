"""Report of a rehearsal as Markdown, for a pull-request comment. Two runs differ only in times."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.report.labels import BANNER, by_sort, cloud, counted, display_name, gist, kind, span
from rehearsal.report.outcome import Change, Outcome

_SIGNS = {"replace": "🔴 **REPLACE**", "delete": "🔴 **delete**", "update": "update", "create": "create"}


def markdown(outcome: Outcome) -> str:
    """Return the text of the comment."""
    return "\n".join(_lines(outcome)).rstrip("\n") + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    verdict = "passed ✅" if outcome.ok else "failed ❌"
    yield f"## REHEARSAL {verdict}: stack {_code(outcome.stack)}"
    yield ""
    yield f"*{BANNER}.*"
    yield ""
    yield from _summary(outcome)
    yield from _changes(outcome)
    if outcome.leftovers:
        yield "### Left over after destroy"
        yield from (f"- {_code(leftover)}" for leftover in sorted(outcome.leftovers))
        yield ""
    if outcome.prediction.unexplained:
        yield "### Waits without a reason"
        for edge in outcome.prediction.unexplained:
            yield f"- ⚠️ {_code(display_name(edge.waits))} waits for {_code(display_name(edge.until))}: no reason given"
        yield ""
    if outcome.graph.managed:
        yield from _resources(outcome)
        yield from _waves(outcome)
    yield from _timeline(outcome)
    if outcome.notes:
        yield "### Notes"
        yield from (f"- {_text(note)}" for note in outcome.notes)


def _summary(outcome: Outcome) -> Iterator[str]:
    yield "| phase | | took here | |"
    yield "|---|---|--:|---|"
    for phase in outcome.phases:
        sign = "✅" if phase.ok else "❌"
        yield f"| {_text(phase.name)} | {sign} | {span(phase.seconds)} | {_text(gist(phase.said))} |"
    yield f"| **all** | | {span(outcome.seconds)} | |"
    yield ""
    for phase in outcome.phases:
        if len(phase.said.splitlines()) > 1:
            yield f"<details><summary>what {_text(phase.name)} said</summary>"
            yield ""
            # Indentation makes it code whatever it contains; the text could close a fence.
            yield from (f"    {line}" for line in phase.said.splitlines())
            yield ""
            yield "</details>"
            yield ""
    if not outcome.graph.managed:
        return
    prediction, graph = outcome.prediction, outcome.graph
    at_a_time = f"{prediction.parallel} at a time" if prediction.parallel else "unlimited"
    path = " → ".join(_text(display_name(graph[urn])) for urn in prediction.up.critical)
    yield "| prediction for real clouds | |"
    yield "|---|---|"
    yield f"| resources | {len(graph.managed)} in {counted(len(prediction.waves), 'wave')} |"
    yield f"| up | {span(prediction.up.makespan)}, {at_a_time} |"
    yield f"| at least | {span(prediction.bound)}; the ratio is {prediction.ratio:.2f} |"
    yield f"| destroy | {span(prediction.destroy.makespan)} |"
    yield f"| critical path | {path} |"
    yield ""


def _changes(outcome: Outcome) -> Iterator[str]:
    if not outcome.changes:
        return
    replaced = sum(change.op == "replace" for change in outcome.changes)
    yield f"### {counted(len(outcome.changes), 'change')}" + (f", {replaced} by replacement" if replaced else "")
    yield ""
    yield "| change | resource | reason |"
    yield "|---|---|---|"
    for change in outcome.sorted_changes:
        reasons = ", ".join(_code(reason) for reason in change.reasons)
        yield f"| {_SIGNS[change.op]} | {_code(outcome.changed(change))} | {reasons} |"
    yield ""
    for change in outcome.sorted_changes:
        yield from _damage(outcome, change)


def _damage(outcome: Outcome, change: Change) -> Iterator[str]:
    damage, machines = outcome.damage(change), outcome.machines(change)
    if not damage.falls and not damage.waits and not machines:
        return
    verb = "Replacing" if change.op == "replace" else "Deleting"
    what = _code(outcome.changed(change))
    if machines:
        yield f"> 🔴 **{verb} {what} takes down {machines}.**"
    if damage.falls:
        yield f"> 🔴 **{verb} {what} takes down {counted(len(damage.falls), 'resource')}:**"
        yield from (f"> - {_code(line)}" for line in by_sort(damage.falls))
    elif not machines:
        yield f"> {verb} {what} takes down nothing else."
    if damage.waits:
        yield ">"
        yield "> Created after it, and may be affected:"
        yield from (f"> - {_code(line)}" for line in by_sort(damage.waits))
    yield ""


def _resources(outcome: Outcome) -> Iterator[str]:
    yield f"<details><summary>{counted(len(outcome.graph.managed), 'resource')} by kind</summary>"
    yield ""
    yield "| cloud | kind | count |"
    yield "|---|---|--:|"
    for type_, count in outcome.kinds.items():
        yield f"| {cloud(type_)} | {_code(kind(type_))} | {count} |"
    yield ""
    yield "</details>"
    yield ""


def _waves(outcome: Outcome) -> Iterator[str]:
    waves = outcome.prediction.waves
    yield f"<details><summary>{counted(len(waves), 'wave')}</summary>"
    yield ""
    yield "| wave | what |"
    yield "|--:|---|"
    for number, wave in enumerate(waves, 1):
        yield f"| {number} | {'<br>'.join(_text(line) for line in by_sort(wave))} |"
    yield ""
    yield "</details>"
    yield ""


def _timeline(outcome: Outcome) -> Iterator[str]:
    if not outcome.timeline:
        return
    yield "<details><summary>events in the cluster</summary>"
    yield ""
    yield from (f"    {seconds:6.1f} s  {' '.join(what.split())}" for seconds, what in outcome.timeline)
    yield ""
    yield "</details>"
    yield ""


def _text(text: str) -> str:
    """Escape foreign text for one cell: no markup, no line breaks, no mentions."""
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("_", "\\_")):
        text = text.replace(sign, harmless)
    for sign in "`[]@":
        text = text.replace(sign, f"&#{ord(sign)};")
    return " ".join(text.split())


def _code(text: str) -> str:
    """Format a name as code, in one cell."""
    return f"`{' '.join(text.replace('`', chr(39)).replace('|', '¦').split())}`"
