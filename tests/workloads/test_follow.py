"""The follower over a connection that drops, repeats and truncates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from workloads.client.api import Api, Job, UnreachableError, exit_code, follow
from workloads.client.run import Ended, attend
from workloads.client.view import View
from workloads.exits import Exit
from workloads.results import MARK, parse

LOG = "one\ntwo\nthree\nfour\nno line end"


def job(status: str, code: int | None = None) -> Job:
    return Job("j", status, "", 1.0, None, code, {})


class Source(Api):
    """Scripted answers: an int is the length of the log, "drop" a broken connection, "done" the end."""

    def __init__(self, script: Sequence[int | str], log: str = LOG, end: Job | None = None) -> None:
        super().__init__("", SecretStr(""), "test")
        self.script = list(script)
        self.log = log
        self.end = end or job("SUCCEEDED", 0)

    def job(self, job_id: str) -> Job:
        assert job_id == "j"
        if self.script and self.script[0] == "drop":
            self.script.pop(0)
            raise UnreachableError("dropped")
        return job("RUNNING") if self.script else self.end

    def logs(self, job_id: str) -> str:
        assert job_id == "j"
        if not self.script:
            return self.log
        step = self.script.pop(0)
        if step == "cut":
            raise UnreachableError("cut")
        assert isinstance(step, int)
        return self.log[:step]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def lines_of(source: Source) -> tuple[list[str], Job]:
    seen: list[str] = []
    clock = Clock()
    return seen, follow(source, "j", seen.append, sleep=clock.sleep, clock=clock)


@pytest.mark.parametrize(
    "script",
    [
        [],
        [0, 3, 5, 20],
        ["drop", 10, "drop", "drop", 10, "cut", 12],
        [20, 0, 4, 20],  # a restarting agent answers nothing, then everything again
        [20, 20, 20],
    ],
)
def test_every_line_is_passed_once_and_in_order(script: list[int | str]) -> None:
    seen, ended = lines_of(Source(script))
    assert seen == LOG.split("\n")
    assert ended.status == "SUCCEEDED"


@given(st.lists(st.one_of(st.integers(0, 200), st.sampled_from(["drop", "cut"])), max_size=30), st.text())
def test_any_interruption_leaves_the_log_whole(script: list[int | str], log: str) -> None:
    seen, _ = lines_of(Source(script, log))
    assert "\n".join(seen) == log.removesuffix("\n")


def test_running_is_never_success() -> None:
    assert exit_code(job("RUNNING")) == Exit.ERROR


def test_an_unreachable_cluster_ends_the_following_but_not_the_job() -> None:
    with pytest.raises(UnreachableError, match=r"may still be running.*\n.*rdma-ray logs j"):
        lines_of(Source(["drop"] * 1000))


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (job("SUCCEEDED", 0), 0),
        (job("FAILED", 3), 3),
        (job("FAILED", -9), 137),
        (job("FAILED", None), 1),
        (job("STOPPED", -15), 130),
    ],
)
def test_the_exit_code_is_the_drivers(ended: Job, code: int) -> None:
    assert exit_code(ended) == code


class Recorder(View):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.lines: list[str] = []

    def event(self, event: dict[str, object]) -> None:
        self.events.append(str(event["kind"]))

    def line(self, text: str) -> None:
        self.lines.append(text)


def attended(source: Source) -> tuple[Recorder, Ended]:
    view = Recorder()
    return view, attend(source, "j", view, stop_on_interrupt=True)


def test_events_are_separated_from_text_and_the_result_is_kept() -> None:
    log = f'hello\n(Worker pid=1) {MARK}{{"kind":"epoch"}}\n{MARK}{{"kind":"result","result":{{"a":1}}}}\n'
    view, ended = attended(Source([], log))
    assert (view.lines, view.events) == (["hello"], ["epoch"])
    assert (ended.code, ended.result) == (0, {"a": 1})


def test_success_without_a_result_is_an_error() -> None:
    view, ended = attended(Source([], "hello\n"))
    assert ended.code == Exit.ERROR
    assert "without a result" in view.lines[-1]


@pytest.mark.parametrize("line", ["", "text", MARK, MARK + "{", MARK + "[1]", MARK + '{"no":"kind"}'])
def test_what_is_no_event_is_text(line: str) -> None:
    assert parse(line) is None
