"""`make rehearse-all`: rehearse every cloud stack file of the project and write one report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from infra.settings import from_stack_file
from rehearsal.__main__ import folder_name
from rehearsal.__main__ import main as rehearse
from rehearsal.depths import DEPTHS, Depth
from rehearsal.invariants.by_target import INVARIANTS
from rehearsal.workspace import ROOT

REPORT = ROOT / "results" / "rehearsals.md"


def cloud_stacks() -> Iterator[str]:
    """Return the names of the stacks whose target is simulated."""
    for file in sorted(ROOT.glob("Pulumi.*.yaml")):
        if from_stack_file(file).target in INVARIANTS:
            yield file.name.split(".")[1]


def main(arguments: list[str]) -> int:
    """Rehearse all stacks with the same arguments; return the highest exit status."""
    status = 0
    depth = _depth(arguments)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("")
    for stack in cloud_stacks():
        results = ROOT / "results" / f"rehearsal-{folder_name(stack, depth)}"
        (results / "report.md").unlink(missing_ok=True)
        status = max(status, rehearse(["--stack", stack, *arguments]))
        report = results / "report.md"
        text = report.read_text() if report.exists() else f"## REHEARSAL of stack `{stack}` did not finish\n"
        with REPORT.open("a") as file:
            file.write(text + "\n")
    print(f"report of all stacks: {REPORT.relative_to(ROOT)}")
    return status


def _depth(arguments: list[str]) -> Depth:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--depth", choices=DEPTHS, default="quick")
    depth: Depth = parser.parse_known_args(arguments)[0].depth
    return depth


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
