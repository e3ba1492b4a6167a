"""The table of claims in docs/proof.md: its commands and tests exist, in the tier that it names."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from tools import run_tests
from workloads.cli import app

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = {
    **{folder: "test" for folders in run_tests.PARTS.values() for folder in folders},
    run_tests.KUBERNETES: "test-kubernetes",
    run_tests.PODS: "test-pods",
    run_tests.SLURM: "test-slurm",
}
"""The folder of each tier, and the make target that runs it."""


@dataclass(frozen=True)
class Row:
    """One claim. `commands` and `tests` are the cells' texts in backticks."""

    claim: str
    tier: str
    commands: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def folder(self) -> str:
        return f"tests/{self.tier}"

    def file(self, named: str) -> Path:
        """Return the only file of the tier with this name."""
        (found,) = (ROOT / self.folder).rglob(named.partition("::")[0])
        return found


def rows() -> list[Row]:
    text = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    found = []
    for line in re.findall(r"^\| (?!claim )(.+) \|$", text, re.MULTILINE):
        claim, tier_name, commands, tests = (cell.strip() for cell in line.split(" | "))
        found.append(Row(claim, tier_name, tuple(in_backticks(commands)), tuple(in_backticks(tests))))
    return found


def in_backticks(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


SHOWN = [row for row in rows() if not row.tier.startswith("**not shown**")]
each_shown = pytest.mark.parametrize("row", SHOWN, ids=[row.claim[:40] for row in SHOWN])


def test_every_claim_names_a_tier_or_is_marked_not_shown() -> None:
    assert {row.folder for row in SHOWN} <= set(COMMANDS)
    for row in rows():
        assert row in SHOWN or (not row.commands and not row.tests), row


@each_shown
def test_claim_names_existing_tests_of_its_tier(row: Row) -> None:
    """`test_x.py`, or `test_x.py::test_y` for one of them."""
    assert row.tests
    for named in row.tests:
        body = ast.parse(row.file(named).read_text(encoding="utf-8")).body
        tests = {each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}
        assert tests
        function = named.partition("::")[2]
        assert not function or function in tests


@each_shown
def test_claim_names_existing_commands_that_run_its_tests(row: Row) -> None:
    assert row.commands
    for command in row.commands:
        program, *words = shlex.split(command)
        assert program in ("make", "bin/rdma-ray"), command
        if program == "bin/rdma-ray":
            # A command of the table may leave its required arguments out.
            with contextlib.suppress(MissingArgumentError):
                app.parse_args(words, print_error=False, exit_on_error=False)
            continue
        target, *variables = words
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), command
        assert {variable.partition("=")[0] for variable in variables} <= {"STACK", "DEPTH", "ARGS", "PYTEST"}
        if target in COMMANDS.values():
            assert COMMANDS[row.folder] == target, f"{command} does not run {row.folder}"
            (path,) = [variable.removeprefix("PYTEST=") for variable in variables] or [row.folder]
            for named in row.tests:
                assert row.file(named).is_relative_to(ROOT / path), (command, named)
            assert (ROOT / path).exists()
