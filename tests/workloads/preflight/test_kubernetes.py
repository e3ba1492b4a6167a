"""Pre-flight of the user's cluster: its problems are answers, and what nobody answered is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from infra.existing.checks import UNANSWERED
from infra.existing.kubectl import Kubectl, KubectlError
from infra.settings.problems import Problem
from tests.workloads.conftest import ROOT
from workloads.cli import main
from workloads.exits import Exit
from workloads.preflight import kubernetes

FILE = str(ROOT / "Pulumi.kubernetes.yaml")


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        ([], Exit.OK, "ok                cluster: it accepts"),
        (["There is no Secret token"], Exit.BELOW, "not ok: setup     ray.secrets: There is no Secret token"),
        ([f"{UNANSWERED}: timeout"], Exit.NOT_AS_ASKED, f"unknown           ray.secrets: {UNANSWERED}: timeout"),
    ],
)
def test_problem_of_the_cluster_is_an_answer(
    found: list[str], code: Exit, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [Problem(settings=("ray.secrets",), message=each, fix="create it", source="x") for each in found]
    monkeypatch.setattr(Kubectl, "read", lambda *_: {})
    monkeypatch.setattr(kubernetes, "problems", lambda *_: problems)
    assert main(["preflight", FILE]) == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("reason", ["NoKubectl", "Timeout", "Forbidden", ""])
def test_cluster_without_an_answer_is_unknown(
    reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise KubectlError(reason, "no answer within 30 s")

    monkeypatch.setattr(Kubectl, "read", refuse)
    assert main(["preflight", FILE]) == Exit.NOT_AS_ASKED
    assert "unknown           cluster: no answer within 30 s" in capsys.readouterr().out
