"""README's table of what is proven: its commands exist, and its tests do, in the tier that it names."""

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
from tools.kubernetes import tier
from workloads.cli import app

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    **{folder: "test" for folders in run_tests.PARTS.values() for folder in folders},
    tier.FOLDER: "test-kubernetes",
    "tests/pods": "test-pods",
}
"""The folder of each tier, and the make target that runs it."""


@dataclass(frozen=True)
class Row:
    """One promise. `commands` and `tests` are what stands between backticks."""

    promise: str
    tier: str
    commands: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def folder(self) -> str:
        return f"tests/{self.tier}"


def rows() -> list[Row]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What is proven, and how far")[2]
    found = []
    for line in re.findall(r"^\| (?!promise )(.+) \|$", text.partition("\n## ")[0], re.MULTILINE):
        promise, named, commands, tests = (cell.strip() for cell in line.split(" | "))
        found.append(Row(promise, named, tuple(ticked(commands)), tuple(ticked(tests))))
    return found


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


SHOWN = [row for row in rows() if not row.tier.startswith("**not shown**")]
each_shown = pytest.mark.parametrize("row", SHOWN, ids=[row.promise[:40] for row in SHOWN])


def test_every_promise_names_a_tier_or_says_that_it_is_not_shown() -> None:
    assert {row.folder for row in SHOWN} <= set(COMMANDS)
    for row in rows():
        assert row in SHOWN or (not row.commands and not row.tests), row


@each_shown
def test_the_tests_exist_in_the_tier_that_is_named(row: Row) -> None:
    """`test_x.py`, or `test_x.py::test_y` for one of them; a test of that name is really in the file."""
    assert row.tests
    for named in row.tests:
        file, _, function = named.partition("::")
        body = ast.parse((ROOT / row.folder / file).read_text(encoding="utf-8")).body
        tests = {each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}
        assert tests
        assert not function or function in tests


@each_shown
def test_the_commands_exist_and_those_of_pytest_run_the_tests(row: Row) -> None:
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
                assert (ROOT / row.folder / named.partition("::")[0]).is_relative_to(ROOT / path), (command, named)
            assert (ROOT / path).exists()
