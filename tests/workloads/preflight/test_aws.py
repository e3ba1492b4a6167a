"""`rdma-ray preflight` on AWS with recorded answers: each is right, and none is ok without evidence."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import run
from tests.workloads.conftest import ROOT
from tests.workloads.preflight.recorded_aws import answers_of, data, environment, expected, install, stack_file
from workloads.exits import Exit

SITUATIONS = data("situations")


def asked(folder: Path, situation: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    """Run the command in a situation; return the exit code, and the answers by check."""
    install(folder, answers_of(situation))
    for name, value in {**environment(folder), **situation.get("environment", {})}.items():
        monkeypatch.setenv(name, value)
    code, said, complained = run("preflight", stack_file(folder, situation), "--json", "-")
    assert said, complained
    answers = json.loads(said)["answers"]
    assert not [each for each in answers if "recordings of" in each["found"]], answers
    by_check = {each["check"]: each for each in answers}
    assert len(by_check) == len(answers), "two answers have the same name"
    return code, by_check


@pytest.mark.parametrize("situation", SITUATIONS, ids=[each["name"] for each in SITUATIONS])
def test_answers_of_recorded_situations(
    situation: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, answers = asked(tmp_path, situation, monkeypatch)
    for check, answer in answers.items():
        state, cause, part = expected(situation, check)
        assert (answer["state"], answer["cause"]) == (state, cause), answer
        assert part in answer["found"], answer
        assert answer["fix"] or state == "ok"
        assert answer["asked"] or check == "region"
    for name in situation["expect"]:
        assert name == "*" or any(check.startswith(name) for check in answers), f"nothing asks about {name}"
    states = {answer["state"] for answer in answers.values()}
    assert code == (Exit.BELOW if "not ok" in states else Exit.NOT_AS_ASKED if "unknown" in states else Exit.OK)


def test_every_recording_has_an_origin() -> None:
    for name, recording in {**data("recordings"), **data("errors")}.items():
        assert recording["origin"], name


def test_questions_are_asked_side_by_side(tmp_path: Path) -> None:
    """Ten answers and more of a second each, in a process of its own."""
    answers = answers_of(SITUATIONS[0])
    install(tmp_path, {name: {**answer, "delay": 1} for name, answer in answers.items()})
    assert len(answers) >= 10
    line = [sys.executable, "-m", "workloads.cli", "preflight", str(stack_file(tmp_path, SITUATIONS[0]))]
    seconds = []
    for _ in range(2):  # the better of two: the machine may be busy
        begun = time.monotonic()
        done = subprocess.run(line, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=False)
        seconds.append(time.monotonic() - begun)
        if seconds[-1] < 10:
            break
    assert min(seconds) < 10
    assert done.returncode == Exit.OK, done.stdout + done.stderr


def test_slow_command_is_unknown_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.preflight.cli.ANSWER_S", 5.0)  # for the others, on a busy machine
    situation = {**SITUATIONS[0], "answers": {"zones": {"delay": 60}}}
    _, answers = asked(tmp_path, situation, monkeypatch)
    assert answers["zone us-east-2a"]["state"] == answers["zone us-east-2b"]["state"] == "unknown"
    assert "no answer within 5 s" in answers["zone us-east-2a"]["found"]
    assert answers["caller"]["state"] == "ok"


def test_missing_command_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said, _ = run("preflight", stack_file(tmp_path, SITUATIONS[0]), "--json", "-")
    answers = json.loads(said)["answers"]
    assert code == Exit.NOT_AS_ASKED
    assert {each["state"] for each in answers if each["check"] != "region"} == {"unknown"}
    assert "there is no aws on PATH" in {each["found"] for each in answers}


@pytest.mark.parametrize(
    ("settings", "region", "found"),
    [
        ({"aws:region": None}, None, "aws:region is not set"),
        ({"aws:region": None}, "us-west-2", "The zone is in us-east-2"),
        ({"aws:region": None}, "--no-verify-ssl", "aws:region is not set"),
        ({"aws:profile": "--debug\n"}, None, "aws:profile is not the name of a profile"),
        ({"aws:profile": ["x"]}, None, "aws:profile is not the name of a profile"),
    ],
)
def test_wrong_provider_is_not_ok(
    settings: dict[str, Any], region: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {} if region is None else {"AWS_REGION": region}
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    situation = {"name": "provider", "set": settings, "environment": variables, "expect": {}}
    _, answers = asked(tmp_path, situation, monkeypatch)
    assert answers["region"]["state"] == "not ok"
    assert found in answers["region"]["found"]
