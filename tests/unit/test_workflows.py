"""GitHub's workflows and the hooks of commits: who holds which token, whose code runs, and what is checked."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from rehearsal.engine.workspace import ROOT
from tools.drift import DRIFTED

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {f"{file.stem} {name}": job for file in FILES for name, job in yaml.safe_load(file.read_text())["jobs"].items()}
STEPS: list[dict[str, Any]] = [step for job in JOBS.values() for step in job["steps"]]
BOT = "github-actions[bot]"
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


def test_no_workflow_runs_with_rights_on_code_of_others() -> None:
    """These events run with the base's token and secrets, on texts and artifacts that anybody wrote (GitHub docs,
    security hardening for GitHub Actions, read 2026-11)."""
    trusted = {"push", "pull_request", "schedule", "workflow_dispatch", "merge_group"}
    # YAML 1.1 reads the key `on` as true.
    assert [file for file in FILES if not set(yaml.safe_load(file.read_text())[True]) <= trusted] == []


@pytest.mark.parametrize("step", STEPS)
def test_no_script_contains_text_of_an_event(step: dict[str, Any]) -> None:
    """An expression is replaced before a shell reads the line; a variable is not."""
    assert "${{" not in step.get("run", "")
    assert "${{" not in str(step.get("with", {}).get("script", ""))


def test_names_from_others_reach_no_script() -> None:
    """A branch's name may be $(anything): variables of a script are numbers, commits and settings of the repository."""
    safe = re.compile(r"(github\.(token|event\.pull_request\.(number|base\.sha))|(vars|secrets|matrix)\.\w+)")
    used = [one for step in STEPS for one in re.findall(r"\$\{\{\s*(.*?)\s*\}\}", str(step.get("env", {})))]
    assert used
    assert [one for one in used if not safe.fullmatch(one)] == []


def test_a_pull_request_runs_make_check_and_make_test() -> None:
    job: dict[str, Any] = JOBS["test make"]
    assert job["steps"][-1] == {"run": 'make "$TARGET"', "env": {"TARGET": "${{ matrix.target }}"}}
    assert job["strategy"]["matrix"] == {"target": ["check", "test"]}


def test_hooks_run_what_make_check_runs_but_for_mypy() -> None:
    """They have no versions of their own: each is a program of `.venv`."""
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    commands = [line.removeprefix("\t@$(VENV) ") for line in recipe.splitlines() if line.startswith("\t")]
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in local["hooks"])
    hooks = [hook["entry"].removeprefix(".venv/bin/python ") for hook in local["hooks"]]
    assert [*hooks, "-m mypy"] == commands


class PullRequest:
    """GitHub's comments of pull request 7, as its REST API serves them (docs, issue comments, read 2026-11)."""

    def __init__(self, *comments: tuple[str | None, str]) -> None:
        self.comments: list[dict[str, Any]] = [
            {"id": at, "user": who and {"login": who}, "body": body} for at, (who, body) in enumerate(comments)
        ]

    def answer(self, method: str, path: str, body: dict[str, str]) -> Any:
        there = urlsplit(path)
        if (method, there.path) == ("GET", "/repos/owner/name/issues/7/comments"):
            size, page = (int(parse_qs(there.query)[name][0]) for name in ("per_page", "page"))
            return self.comments[size * (page - 1) : size * page]
        if (method, there.path) == ("POST", "/repos/owner/name/issues/7/comments"):
            self.comments.append({"id": len(self.comments), "user": {"login": BOT}, **body})
            return self.comments[-1]
        assert method == "PATCH"
        comment = self.comments[int(there.path.removeprefix("/repos/owner/name/issues/comments/"))]
        comment |= body
        return comment


class Issues:
    """GitHub's issues of a repository, as its REST API serves them (docs, issues and their comments, read 2026-11)."""

    def __init__(self, *issues: tuple[str | None, str]) -> None:
        self.issues: list[dict[str, Any]] = [
            {"number": at, "user": who and {"login": who}, "body": body, "state": "open", "comments": []}
            for at, (who, body) in enumerate(issues)
        ]

    def answer(self, method: str, path: str, body: dict[str, str]) -> Any:
        there = urlsplit(path)
        base, _, rest = there.path.partition("/repos/owner/name/issues")
        assert base == ""
        if (method, rest) == ("GET", ""):
            asked = {name: value for name, (value,) in parse_qs(there.query).items()}
            size, page = int(asked["per_page"]), int(asked["page"])
            return [each for each in self.issues if each["state"] == asked["state"]][size * (page - 1) : size * page]
        if (method, rest) == ("POST", ""):
            self.issues.append(
                {"number": len(self.issues), "user": {"login": BOT}, "state": "open", "comments": [], **body}
            )
            return self.issues[-1]
        issue = self.issues[int(rest.split("/")[1])]
        if (method, rest) == ("POST", f"/{issue['number']}/comments"):
            issue["comments"].append(body["body"])
            return {}
        assert (method, rest) == ("PATCH", f"/{issue['number']}")
        issue |= body
        return issue


Script = Callable[[str, "PullRequest | Issues"], subprocess.CompletedProcess[str]]
Comment = Callable[[PullRequest], subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Return a function that runs the script of a job, with a token, on GitHub's pages and an artifact in `results`."""
    here: list[PullRequest | Issues] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            assert self.headers["Authorization"] == "Bearer token"
            sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
            found = json.dumps(here[-1].answer(self.command, self.path, json.loads(sent or b"{}"))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        do_GET = do_POST = do_PATCH = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "results").mkdir()

    def run(job: str, pages: PullRequest | Issues) -> subprocess.CompletedProcess[str]:
        here.append(pages)
        step = JOBS[job]["steps"][-1]
        assert step["shell"] == "python"
        url = f"http://127.0.0.1:{server.server_port}"
        given = {"GH_TOKEN": "token", "NUMBER": "7", "GITHUB_API_URL": url, "GITHUB_REPOSITORY": "owner/name"}
        given |= {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_RUN_ID": "42"}
        return subprocess.run(
            [sys.executable, "-c", step["run"]],
            cwd=tmp_path,
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    yield run
    server.shutdown()
    server.server_close()


@pytest.fixture
def comment(script: Script, tmp_path: Path) -> Comment:
    """Return a function that runs the script of the job `comment` on a pull request, with a report in the artifact."""
    (tmp_path / "results/rehearsals.md").write_text("the report")
    return lambda request: script("preview comment", request)


def test_comment_is_written_once_and_then_again(comment: Comment, tmp_path: Path) -> None:
    request = PullRequest(("someone", "hello"))
    assert comment(request).returncode == 0
    (tmp_path / "results/rehearsals.md").write_text("x" * 100_000)
    assert comment(request).returncode == 0
    first, own = request.comments
    assert (first["body"], own["user"]["login"]) == ("hello", BOT)
    assert "xxx" in own["body"]
    assert len(own["body"]) <= 65_536


def test_comments_of_others_are_not_edited(comment: Comment) -> None:
    """Whoever copies the mark, and other workflows, which have the same account."""
    known = PullRequest()
    assert comment(known).returncode == 0
    copied = known.comments[0]["body"]
    others = [("someone", copied), (BOT, "of another workflow"), (BOT, f"quotes {copied}"), *[(None, "b")] * 150]
    request = PullRequest(*others, (BOT, f"{copied} of an earlier run"), (BOT, "the last one"))
    before = [one["body"] for one in request.comments]
    assert comment(request).returncode == 0
    changed = [at for at, one in enumerate(request.comments) if one["body"] != before[at]]
    assert changed == [len(others)]


@pytest.mark.parametrize("linked", ["results/rehearsals.md", "results"])
def test_link_in_the_artifact_is_not_followed(linked: str, comment: Comment, tmp_path: Path) -> None:
    """The branch's code wrote the artifact, and the environment of this job has a token."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/rehearsals.md").write_text("token")
    (tmp_path / "results").rename(tmp_path / "old")
    if linked == "results":
        (tmp_path / linked).symlink_to(tmp_path / "secret")
    else:
        (tmp_path / "results").mkdir()
        (tmp_path / linked).symlink_to("/proc/self/environ")
    request = PullRequest()
    assert comment(request).returncode != 0
    assert request.comments == []


@pytest.fixture
def night(script: Script, tmp_path: Path) -> Callable[[Issues, str | None], None]:
    """Return a function that runs the job `issue` of a night, with the text about drift or None."""

    def run(issues: Issues, text: str | None) -> None:
        report = {"drifted": text is not None, "text": text or "none"}
        (tmp_path / "results/drift.json").write_text(json.dumps(report))
        done = script("drift issue", issues)
        assert done.returncode == 0, done.stderr

    return run


def test_drift_has_one_issue_until_it_is_gone(night: Callable[[Issues, str | None], None]) -> None:
    issues = Issues(("someone", "hello"))
    night(issues, None)
    assert len(issues.issues) == 1
    for text in ("a pool changed", "x" * 100_000):
        night(issues, text)
    hello, own = issues.issues
    assert (hello["body"], own["state"], own["comments"]) == ("hello", "open", [])
    assert "xxx" in own["body"]
    assert "/owner/name/actions/runs/42" in own["body"]
    assert len(own["body"]) <= 65_536
    night(issues, None)
    assert (own["state"], own["state_reason"]) == ("closed", "completed")
    assert len(own["comments"]) == 1
    night(issues, "again")
    assert [each["state"] for each in issues.issues] == ["open", "closed", "open"]


def test_issues_of_others_are_not_edited(night: Callable[[Issues, str | None], None]) -> None:
    known = Issues()
    night(known, "drift")
    copied = known.issues[0]["body"]
    others = [("someone", copied), (BOT, f"quotes {copied}"), *[(None, "b")] * 150]
    issues = Issues(*others)
    issues.issues[1]["pull_request"] = {}
    before = [each["body"] for each in issues.issues]
    night(issues, "drift")
    assert [each["body"] for each in issues.issues[:-1]] == before
    night(issues, None)
    assert [each["state"] for each in issues.issues] == ["open"] * len(others) + ["closed"]


@pytest.mark.parametrize("broken", ["", "[]", '{"text": "no verdict"}'])
def test_malformed_report_changes_no_issue(broken: str, script: Script, tmp_path: Path) -> None:
    (tmp_path / "results/drift.json").write_text(broken)
    issues = Issues()
    assert script("drift issue", issues).returncode != 0
    assert issues.issues == []


def test_drift_is_read_only_where_it_is_configured() -> None:
    """And with credentials only the code of the default branch, without a reviewer of every night."""
    job: dict[str, Any] = JOBS["drift read"]
    for words in ("vars.GOOGLE_WORKLOAD_IDENTITY_PROVIDER != ''", "vars.PULUMI_STACK != ''", "default_branch"):
        assert words in job["if"]
    assert job["environment"] == "drift"
    step = next(each for each in job["steps"] if each.get("name") == "Read the cloud")
    real = JOBS["preview real"]["steps"][-1]["env"]
    assert real.items() <= step["env"].items()
    assert f"= {DRIFTED} ]" in step["run"]
