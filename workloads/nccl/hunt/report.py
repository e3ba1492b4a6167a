"""A hunt for people: its progress, who is accused and by what, what to do next, the matrix of pairs."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from workloads.client.view import ProgressView
from workloads.events import Event
from workloads.nccl.hunt import heatmap
from workloads.nccl.hunt.result import Accused, HuntResult, Test
from workloads.nccl.report import PHASES

STAGES = {
    "single": "each unit on its own",
    "pairs": "pairs, side by side",
    "groups": "groups, side by side",
    "bisection": "halving the groups that failed",
    "control": "known-good pairs for comparison",
    "repeat": "borderline results again",
    "alone": "one test alone",
    "replay": "a round again",
    "rails": "rail by rail",
    "rail shift": "a rail against the next one",
}
TOLD = 12  # units of one finding that are told one by one
MOST = 6  # tests of one accused unit that are told one by one


class HuntView(ProgressView):
    """A line per round: how many there will be, nobody knows."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.rounds = 0

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say(PHASES[event["name"]])
            case "waiting":
                self.say(event["text"])
            case "round":
                self.rounds += 1
                stages = ", ".join(STAGES.get(stage, stage) for stage in event["stages"])
                tests = "1 test" if event["tests"] == 1 else f"{event['tests']} tests"
                self.say(f"round {self.rounds}: {stages} ({tests})")


def show(found: dict[str, Any], console: Console) -> None:
    """Print the result: nothing but the reason where the hunt broke before its end."""
    result = HuntResult.model_validate(found)
    if (text := heatmap.as_text(result)).plain:
        console.print(text, soft_wrap=True)
    for unit in _named(result):
        console.print(f"  unit {unit}: {result.units[unit].name}", highlight=False, markup=False, soft_wrap=True)
    for accused in result.accused:
        _accused(accused, result, console)
    for finding in result.findings:
        who = ", ".join(str(unit) for unit in finding.units[:TOLD]) or "all"
        line = f"{finding.kind}: units {who}{' …' if len(finding.units) > TOLD else ''}: {finding.text}"
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if result.notice:
        console.print(result.notice, style="yellow", soft_wrap=True)
    if result.injected_fault:
        console.print(f"a fault was injected on purpose: {result.injected_fault}", style="yellow")
    console.print(result.reason, style="red" if result.exit_code else "green", markup=False, soft_wrap=True)


def _named(result: HuntResult) -> list[int]:
    """The units whose names are told: those of the matrix where it is shown, else those in question."""
    if not result.accused and not result.findings:
        return []
    shown = heatmap.units_of(heatmap.matrix(result))
    if len(shown) <= heatmap.WIDEST:
        return shown
    asked = {unit for finding in result.findings for unit in finding.units[:TOLD]}
    return sorted(asked | {one.unit for one in result.accused})


def _accused(accused: Accused, result: HuntResult, console: Console) -> None:
    below = "" if accused.share is None else f", {accused.share:.0%} of what is usual here"
    console.print(
        f"ACCUSED unit {accused.unit}, {accused.name}: {accused.text}{below} [{accused.severity}]",
        style="bold red",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for number in accused.tests[:MOST]:
        console.print(
            f"  {evidence(result.tests[number], accused.unit)}", highlight=False, markup=False, soft_wrap=True
        )
    if accused.rails is not None:
        named = ", ".join(map(str, accused.rails)) or "none alone"
        console.print(f"  slow rails: {named}", highlight=False, markup=False)
    console.print(f"  next: {accused.action}", highlight=False, markup=False, soft_wrap=True)


def evidence(test: Test, unit: int) -> str:
    """One test as a line of evidence."""
    partners = [str(other) for other in test.units if other != unit]
    beside = f"with unit {', '.join(partners)}" if partners else "on its own"
    where = f"test {test.number}, {beside}{', nothing else running' if test.alone and partners else ''}"
    if test.broken:
        return f"{where}: {test.broken}: {test.detail}"
    measure = "TFLOP/s" if test.kind == "burn" else "GB/s"
    return f"{where}: {test.value:.4g} {measure} where {test.reference:.4g} is usual ({test.share:.0%})"
