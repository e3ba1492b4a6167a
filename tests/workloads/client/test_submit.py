"""Submission when an answer does not arrive: test_drills.py does it on a real head."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from workloads.client.api import JobsApi, UnknownError, UnreachableError
from workloads.client.submit import LARGEST_UPLOAD, submit, upload
from workloads.exits import WorkloadError

LOST = UnreachableError("reset")
BAD = UnreachableError("answered 500: RuntimeError: Request failed with status code 400: TypeError: pip", 500)


class Head(JobsApi):
    """Head that answers submissions by a script: an error, after it accepted the job if `accepts`, or None."""

    def __init__(self, *script: UnreachableError | None, accepts: bool, command: str = "") -> None:
        super().__init__("", SecretStr(""), "test", sleep=lambda _: None, clock=itertools.count().__next__)
        self.answered = True
        self.script, self.accepts, self.job_command = list(script), accepts, command
        self.posts = 0

    def once(self, path: str, method: str = "GET", body: Any = None, **_: object) -> Any:
        if path == "/api/version":
            return {"ray_version": "2"}
        if method == "GET":
            if not self.job_command:
                raise UnknownError("no such job")
            return {"entrypoint": self.job_command}
        self.posts += 1
        if self.accepts:
            self.job_command = body["entrypoint"]
        if (error := self.script.pop(0)) is not None:
            raise error
        return {}


def test_a_lost_answer_is_found_by_the_id() -> None:
    submit(head := Head(LOST, accepts=True), "j", ["run"])
    assert head.posts == 1


def test_what_did_not_arrive_is_sent_again() -> None:
    submit(head := Head(LOST, UnreachableError("busy", 503), None, accepts=False), "j", ["run"])
    assert head.posts == 3


def test_a_refusal_is_final() -> None:
    with pytest.raises(WorkloadError, match=r"Ray refused job j: .* TypeError: pip"):
        submit(Head(BAD, accepts=False), "j", ["run"])


def test_the_id_of_another_job_is_refused() -> None:
    with pytest.raises(WorkloadError, match="job j already exists with a different command"):
        submit(Head(BAD, accepts=False, command="other"), "j", ["run"])


def test_an_unclear_end_is_no_success_and_no_failure() -> None:
    with pytest.raises(UnreachableError, match="it is unclear whether job j was submitted"):
        submit(Head(*[LOST] * 1000, accepts=False), "j", ["run"])


def test_stop_reaches_the_command_when_it_has_just_begun() -> None:
    """Ray's signal goes to the processes that its shell has at that moment: the command must be the shell's process."""
    code = "import os; print(os.getpid(), 'a b')"
    submit(head := Head(None, accepts=True), "j", [sys.executable, "-c", code])
    with subprocess.Popen(head.job_command, shell=True, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid} a b\n"


def test_an_upload_that_ray_rejects_is_named_before() -> None:
    with pytest.raises(WorkloadError, match="an upload of 100 MiB: Ray accepts at most 100 MiB"):
        upload(Head(accepts=False), "x", b"x" * (LARGEST_UPLOAD + 1))
