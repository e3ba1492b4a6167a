"""What both clouds share: answers, questions, a command line that misbehaves, and the commands' errors."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.preflight.test_gke import DOCUMENT, on_path, recordings, stack_file
from workloads.cli import main
from workloads.exits import Exit
from workloads.preflight.answers import PreflightAnswer, PreflightCheck, ask_all
from workloads.preflight.cli import Cli, NoAnswerError
from workloads.preflight.commands import exit_code

FIXES = dict.fromkeys(("missing", "denied", "slow", "broken", "incomplete"), "try again")
TOOL = Cli(program="tool", fixes=FIXES, errors={"denied": re.compile("denied")}, incomplete=re.compile("partly"))


def answer(state: Any, **fields: Any) -> PreflightAnswer:
    return PreflightAnswer(check="c", state=state, found="f", **fields)


def test_answer_needs_a_cause_and_a_fix() -> None:
    for state, fields in (
        ("not ok", {"fix": "x"}),
        ("ok", {"cause": "quota"}),
        ("unknown", {"cause": "quota", "fix": "x"}),
        ("unknown", {}),
        ("not ok", {"cause": "quota"}),
    ):
        with pytest.raises(ValueError, match=r"^c: "):
            answer(state, **fields)


def test_exit_codes() -> None:
    ok, unknown, wrong = answer("ok"), answer("unknown", fix="x"), answer("not ok", fix="x", cause="quota")
    assert exit_code([ok]) == Exit.OK
    assert exit_code([ok, unknown]) == Exit.NOT_AS_ASKED
    assert exit_code([ok, unknown, wrong]) == Exit.BELOW
    assert exit_code([]) == Exit.NOT_AS_ASKED


def test_answers_are_in_the_order_of_the_questions() -> None:
    def refuse() -> list[PreflightAnswer]:
        raise NoAnswerError("denied", "no right", "ask", "tool ask")

    checks = [PreflightCheck("a", lambda: [answer("ok")]), PreflightCheck("b", refuse), PreflightCheck("d", list)]
    found = ask_all(checks)
    assert [(each.check, each.state) for each in found] == [("c", "ok"), ("b", "unknown"), ("d", "unknown")]
    assert (found[1].found, found[1].fix, found[1].asked) == ("no right", "ask", "tool ask")


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ("echo '{}' >&2; exit 3", "broken", "{}"),
        ("exit 3", "broken", "tool failed with exit status 3"),
        ("echo 'denied: \033[31mno' >&2; exit 1", "denied", "denied: no"),
        ("echo '{}'; echo 'partly done' >&2", "incomplete", "partly done"),
        ("echo '{'", "broken", "the answer is not JSON"),
        ("sleep 30", "slow", "no answer within 0.5 s"),
        ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", "broken", "x" * 300),
    ],
)
def test_command_without_an_answer(
    script: str, kind: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(NoAnswerError) as error:
        TOOL.ask("--flag=a b", answer_s=0.5)
    assert (error.value.kind, error.value.reason) == (kind, reason)
    assert error.value.asked == "tool '--flag=a b'"


def test_command_that_is_not_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool").write_text("\x7fELF")
    (tmp_path / "tool").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoAnswerError, match="tool does not run"):
        TOOL.ask()


@pytest.mark.parametrize("command", ["preflight", "capacity"])
def test_stack_that_is_not_on_a_cloud(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stack_file(tmp_path, {"rdma-ray:target": "local"})
    assert main([command, str(file)]) == Exit.ERROR
    assert "target local, which has no account" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["preflight", "capacity"])
def test_stack_file_with_problems(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stack_file(tmp_path, {**DOCUMENT["stacks"]["flex"], "rdma-ray:location": "us-central1"})
    assert main([command, str(file)]) == Exit.ERROR
    assert "us-central1 is a region" in capsys.readouterr().err


def test_json_on_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on_path(tmp_path, monkeypatch, recordings({}))
    assert main(["preflight", str(stack_file(tmp_path, DOCUMENT["stacks"]["flex"])), "--json"]) == Exit.OK
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert {answer["state"] for answer in answers} == {"ok"}
    assert set(answers[0]) == {"check", "state", "cause", "found", "fix", "asked"}
