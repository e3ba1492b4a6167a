"""Every command's help: a summary, one example that parses, and the exit codes; and what shells complete."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from tests.workloads.conftest import ROOT
from workloads.cli import app, main, prepared
from workloads.exits import Exit

WIDTH, HEIGHT = 80, 45
"""Columns of a narrow terminal, and rows of a common one."""


def commands(parent: App, *path: str) -> Iterator[tuple[tuple[str, ...], App]]:
    """Yield every command with its words."""
    for name, child in sorted(parent.resolved_commands().items()):
        if name in (*parent.help_flags, *parent.version_flags):
            continue
        if child.default_command is not None:
            yield (*path, name), child
        yield from commands(child, *path, name)


COMMANDS = dict(commands(app))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_a_summary_an_example_and_exit_codes(words: tuple[str, ...]) -> None:
    """In this order, the last two as the last paragraph. The example parses as this command; nothing runs."""
    text = inspect.cleandoc(COMMANDS[words].help)
    summary, *_, last = text.split("\n\n")
    assert re.fullmatch(r"[A-Z][a-z]+ .*\.", summary), "one line that begins with a verb"
    assert len(summary) <= WIDTH
    found = re.fullmatch(r"Example: (rdma-ray .+)\nExit codes: [\s\S]+\.", last)
    assert found, f"end the docstring with a paragraph `Example: rdma-ray …` and `Exit codes: 0 …, 1 ….`:\n{last}"
    tokens = prepared(shlex.split(found[1])[1:])
    path, *_ = app.parse_commands(tokens)
    assert path == words
    app.parse_args(tokens, exit_on_error=False, print_error=False)


def test_no_help_repeats_a_default() -> None:
    """A number after `[default:` is a value's, not a literal's: help is generated from what the command uses."""
    for file in sorted((ROOT / "workloads").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"\[default: \d", node.value), f"{file}:{node.lineno}"


def test_overview_fits_a_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert main(["--help"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= HEIGHT
    shown = [line for line in lines if line.startswith("│ ")]
    hidden = {*app.help_flags, *app.version_flags}
    assert len(shown) == len(app.resolved_commands().keys() - hidden), "each summary fits a line"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The completion that is installed for bash."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        assert main(["--install-completion", "--shell", "bash"]) == Exit.OK
    (found,) = [file for file in folder.rglob("rdma-ray") if file.is_file()]
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rdma-ray sta", ["status"]),
        ("bin/rdma-ray bench n", ["nccl"]),
        ("bin/rdma-ray bench nccl --pres", ["--preset"]),
        ("bin/rdma-ray bench nccl --preset a", ["acceptance"]),
        ("bin/rdma-ray status --stack gke-d", ["gke-dranet", "gke-dws"]),
        ("bin/rdma-ray logs -s eks-", ["eks-capacity-block", "eks-first"]),
    ],
)
def test_bash_completes_commands_options_values_and_stacks(line: str, expected: list[str], script: Path) -> None:
    words = shlex.split(line)
    program = f"""
        source {shlex.quote(str(script))}
        complete -p rdma-ray | grep -q _rdma_ray
        COMP_WORDS=({line}) COMP_CWORD={len(words) - 1} COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        _rdma_ray
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert sorted(map(str.strip, done.stdout.splitlines())) == expected, done.stderr
