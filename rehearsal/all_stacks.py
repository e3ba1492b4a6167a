"""`make rehearse-all`: every cloud stack file of the project, one after the other, and one report for all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from infra.settings import from_stack_file
from rehearsal.__main__ import called
from rehearsal.__main__ import main as rehearse
from rehearsal.depths import DEPTHS, Depth
from rehearsal.invariants.by_target import INVARIANTS
from rehearsal.workspace import ROOT

REPORT = ROOT / "results" / "rehearsals.md"


def cloud_stacks() -> Iterator[str]:
    """The stacks whose target is simulated, by name."""
    for file in sorted(ROOT.glob("Pulumi.*.yaml")):
        if from_stack_file(file).target in INVARIANTS:
            yield file.name.split(".")[1]


def main(arguments: list[str]) -> int:
    """Rehearse them all with the same arguments; the exit status is that of the worst."""
    status = 0
    depth = _depth(arguments)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("")
    for stack in cloud_stacks():
        results = ROOT / "results" / f"rehearsal-{called(stack, depth)}"
        (results / "report.md").unlink(missing_ok=True)
        status = max(status, rehearse(["--stack", stack, *arguments]))
        report = results / "report.md"
        told = report.read_text() if report.exists() else f"## REHEARSAL of stack `{stack}` did not finish\n"
        with REPORT.open("a") as file:
            file.write(told + "\n")
    print(f"report of all: {REPORT.relative_to(ROOT)}")
    return status


def _depth(arguments: list[str]) -> Depth:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--depth", choices=DEPTHS, default="quick")
    depth: Depth = parser.parse_known_args(arguments)[0].depth
    return depth


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
