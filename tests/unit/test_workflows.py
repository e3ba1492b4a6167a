"""GitHub's workflows: who holds which token, and which code of others runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rehearsal.engine.workspace import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {f"{file.stem} {name}": job for file in FILES for name, job in yaml.safe_load(file.read_text())["jobs"].items()}
COMMIT = re.compile(r"[\w-]+/[\w/-]+@[0-9a-f]{40}")


@pytest.mark.parametrize("name", JOBS)
def test_actions_are_pinned_by_commit(name: str) -> None:
    used = [step["uses"] for step in JOBS[name]["steps"] if "uses" in step]
    assert [one for one in used if not COMMIT.fullmatch(one)] == []


@pytest.mark.parametrize("name", JOBS)
def test_code_of_a_branch_has_no_token_that_writes(name: str) -> None:
    job: dict[str, Any] = JOBS[name]
    writes = {scope for scope, level in job["permissions"].items() if level == "write"}
    runs_code = any("actions/checkout@" in step.get("uses", "") for step in job["steps"])
    assert not runs_code or writes <= {"id-token"}


@pytest.mark.parametrize("name", JOBS)
def test_credentials_need_an_environment(name: str) -> None:
    job: dict[str, Any] = JOBS[name]
    holds_credentials = "id-token" in job["permissions"] or "${{ secrets." in yaml.safe_dump(job)
    assert not holds_credentials or job.get("environment")


def test_workflows_have_no_permissions_by_default() -> None:
    assert [file for file in FILES if yaml.safe_load(file.read_text())["permissions"] != {}] == []
