"""Hunt on the terminal, with the matrix of pairs and the table of rails as CSV, text and SVG.

A cell is the last measured bandwidth of a pair in GB/s busbw. It is empty for a pair that was not measured, and names
the failure of a test that broke.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from workloads.evidence.facts import counted
from workloads.evidence.show import show_evidence
from workloads.nccl.hunt.result import Accused, GroupProbe, HuntResult
from workloads.nccl.report import BenchView, show_fault, show_reason
from workloads.results.events import Event
from workloads.results.files import write_file
from workloads.terminal.console import say

STAGES = {
    "single": "each unit alone",
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
LISTED_UNITS = 12  # units of one finding that are listed
LISTED_TESTS = 6  # tests of one accused unit that are listed
WIDEST = 40  # units whose matrix fits into a terminal
EMPTY = "#e8e8e8"
BROKEN = "#7b1fa2"
# Upper limits of the share of the reference, and their colors: distinct in print and for color-blind readers.
SCALE = ((0.5, "#b2182b"), (0.8, "#ef8a62"), (0.9, "#fddbc7"), (0.95, "#d1e5f0"), (float("inf"), "#4393c3"))


class HuntView(BenchView):
    """Progress with a line per round: the number of rounds is not known in advance."""

    rounds = 0

    def event(self, event: Event) -> None:
        if event["kind"] != "round":
            super().event(event)
            return
        self.rounds += 1
        stages = ", ".join(STAGES.get(stage, stage) for stage in event["stages"])
        self.say(f"round {self.rounds}: {stages} ({counted(event['tests'], 'test')})")


def show(result: HuntResult, console: Console) -> None:
    """Print the result; nothing but the reason if the hunt failed before its end."""
    if (matrix := as_text(result)).plain:
        say(console, matrix)
    for unit in _named(result):
        say(console, f"  unit {unit}: {result.units[unit].name}")
    for accused in result.accused:
        below = "" if accused.share is None else f", {accused.share:.0%} of what is usual here"
        text = f"{accused.name}: {accused.text}{below} [{accused.severity}]"
        say(console, f"ACCUSED unit {accused.unit}, {text}", "bold red")
        for number in accused.tests[:LISTED_TESTS]:
            say(console, f"  {evidence(result.tests[number], accused)}")
        for text in accused.evidence:
            say(console, f"  {text}")
        if accused.rails is not None:
            say(console, f"  slow rails: {', '.join(map(str, accused.rails)) or 'none alone'}")
        say(console, f"  next: {accused.action}")
    for finding in result.findings:
        units = ", ".join(str(unit) for unit in finding.units[:LISTED_UNITS]) or "all"
        more = " …" if len(finding.units) > LISTED_UNITS else ""
        say(console, f"{finding.kind}: units {units}{more}: {finding.text}", "yellow")
    show_evidence(result.evidence, console)
    if result.notice:
        say(console, result.notice, "yellow")
    show_fault(result, console)
    show_reason(result, console)


def _named(result: HuntResult) -> list[int]:
    """Return the units to list by name: those of the matrix if it is shown, otherwise those in question."""
    if not result.accused and not result.findings:
        return []
    units, _ = _matrix(result)
    if len(units) <= WIDEST:
        return units
    found = {unit for finding in result.findings for unit in finding.units[:LISTED_UNITS]}
    return sorted(found | {one.unit for one in result.accused})


def evidence(test: GroupProbe, accused: Accused) -> str:
    """Return one test against a unit as a line."""
    partners = ", ".join(map(str, test.partners(accused.unit)))
    where = f"test {test.number}, " + (f"with unit {partners}" if partners else "without a partner")
    if test.alone and partners:
        where += ", nothing else running"
    if test.broken:
        return f"{where}: {test.broken}: {test.detail}"
    measure = "TFLOP/s" if test.kind == "burn" else "GB/s"
    return f"{where}: {test.value:.4g} {measure}; usual is {test.reference:.4g} ({test.share:.0%})"


def _matrix(result: HuntResult) -> tuple[list[int], dict[tuple[int, ...], GroupProbe]]:
    """Return the units with a measured pair, and the last test of each pair by both orders of its units."""
    pairs = [test for test in result.tests if test.kind == "pair"]
    tests = {key: test for test in pairs for key in (test.units, test.units[::-1])}
    return sorted({unit for pair in tests for unit in pair}), tests


def _figure(test: GroupProbe | None) -> str:
    if test is None:
        return ""
    return test.broken or ("" if test.value is None else f"{test.value:.4g}")


def pairs_csv(result: HuntResult) -> str:
    """Return the symmetric matrix of pairs in GB/s, empty for pairs that were not measured."""
    units, pairs = _matrix(result)
    rows = [["GB/s busbw", *(result.units[unit].name for unit in units)]]
    rows += [[result.units[row].name, *(_figure(pairs.get((row, other))) for other in units)] for row in units]
    return _csv(rows)


def rails_csv(result: HuntResult) -> str:
    """Return one line per rail test: units, rail, shifted or not, GB/s, share of the reference."""
    rows: list[list[object]] = [["unit", "partner", "rail", "shifted", "GB/s busbw", "share", "failed"]]
    for test in result.tests:
        if test.kind == "rail":
            names = [result.units[unit].name for unit in test.units]
            failed = "" if test.failed is None else str(test.failed).lower()
            rows.append([*names, test.rail, str(test.shifted).lower(), _figure(test), test.share or "", failed])
    return _csv(rows)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def as_text(result: HuntResult) -> Text:
    """Return the colored matrix with units by number; empty without pairs and for too many units.

    Colors show the verdict, because thresholds differ on CPUs; the picture's colors show shares.
    """
    units, pairs = _matrix(result)
    text = Text()
    if not units or len(units) > WIDEST:
        return text
    width = max(6, *(len(_figure(test)) + 1 for test in pairs.values()))
    text.append("pairs, GB/s busbw\n")
    text.append(" " * 5 + "".join(f"{unit:>{width}}" for unit in units) + "\n")
    for row in units:
        text.append(f"{row:>5}")
        for other in units:
            test = pairs.get((row, other))
            style = "" if test is None or test.failed is None else "bold red" if test.failed else "green"
            text.append(
                f"{_figure(test) if test else '·':>{width}}", style="bold magenta" if test and test.broken else style
            )
        text.append("\n")
    return text


def color(test: GroupProbe | None) -> str:
    """Return a cell's color in the picture."""
    if test is not None and test.broken:
        return BROKEN
    if test is None or test.share is None:
        return EMPTY
    share = test.share
    return next(color for limit, color in SCALE if share < limit)


def as_svg(result: HuntResult) -> bytes:
    """Return the matrix as a picture with a legend."""
    from matplotlib.figure import Figure  # slow to import
    from matplotlib.patches import Patch, Rectangle

    from workloads.terminal.plots import BAD, encoded, style

    units, pairs = _matrix(result)
    accused = {one.unit for one in result.accused}
    size = max(len(units), 1)
    with style():
        figure = Figure(figsize=(2.5 + 0.3 * max(size, 12), 1.6 + 0.3 * size), layout="constrained")
        axes = figure.add_subplot(aspect="equal", xlim=(0, size), ylim=(size, 0))
        axes.set_title("Bandwidth of pairs, GB/s busbw")
        for x, row in enumerate(units):
            for y, other in enumerate(units):
                kind = color(pairs.get((row, other)))
                axes.add_patch(Rectangle((x, y), 0.95, 0.95, color=kind, lw=0, gid=f"pair-{row}-{other}"))
        axes.tick_params(labeltop=True, labelbottom=False)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        middles = [index + 0.5 for index in range(len(units))]
        axes.set_xticks(middles, [str(unit) for unit in units])
        axes.set_yticks(middles, [f"{unit}: {result.units[unit].name[:30]}" for unit in units])
        for axis in (axes.xaxis, axes.yaxis):
            for unit, label in zip(units, axis.get_ticklabels(), strict=True):
                label.set(fontsize=8, **({"color": BAD, "fontweight": "bold"} if unit in accused else {}))
        limits = [f"{limit:.0%}" for limit, _ in SCALE[:-1]]
        shares = [f"below {limits[0]}", *map(" to ".join, itertools.pairwise(limits)), f"{limits[-1]} and more"]
        colors = [*(color for _, color in SCALE), BROKEN, EMPTY]
        names = zip(colors, [*shares, "broken", "not measured"], strict=True)
        legend = [Patch(color=color, label=name) for color, name in names]
        figure.legend(handles=legend, title="share of the reference", loc="outside lower left", ncols=4, fontsize=8)
        return encoded(figure, "svg")


def write(result: HuntResult, folder: Path) -> list[Path]:
    """Write pairs.csv, rails.csv, pairs.txt and pairs.svg into `folder`, and return their paths."""
    files: dict[str, str | bytes] = {
        "pairs.csv": pairs_csv(result),
        "rails.csv": rails_csv(result),
        "pairs.txt": as_text(result).plain,
        "pairs.svg": as_svg(result),
    }
    return [write_file(folder / name, text) for name, text in files.items()]
