"""The follower over a connection that drops, repeats and truncates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from workloads.client.api import Api, Job, UnreachableError, exit_code, follow
from workloads.client.run import Ended, attend
from workloads.client.view import View
from workloads.exits import Exit
from workloads.results import MARK, Event


def job(status: str, code: int | None = None) -> Job:
    return Job("j", status, "", 1.0, None, code, {})


class Source(Api):
    """A job with this log that succeeds once every step of the script was answered.

    A number is the length of the log so far; "drop" and "cut" break the connection before and after the status.
    """

    def __init__(self, log: str, script: Sequence[int | str] = ()) -> None:
        super().__init__("", SecretStr(""), "test")
        self.log, self.script = log, list(script)

    def job(self, job_id: str) -> Job:
        assert job_id == "j"
        if self.script[:1] == ["drop"]:
            raise UnreachableError(str(self.script.pop(0)))
        return job("RUNNING") if self.script else job("SUCCEEDED", 0)

    def logs(self, job_id: str) -> str:
        assert job_id == "j"
        step = self.script.pop(0) if self.script else len(self.log)
        if isinstance(step, str):
            raise UnreachableError(step)
        return self.log[:step]


def lines_of(source: Source) -> list[str]:
    seen: list[str] = []
    # A clock that gains a second by every look.
    ended = follow(source, "j", seen.append, sleep=lambda _: None, clock=itertools.count().__next__)
    assert ended.status == "SUCCEEDED"
    return seen


@given(st.text(), st.lists(st.one_of(st.integers(0, 200), st.sampled_from(["drop", "cut"])), max_size=30))
@example("one\ntwo\nno line end", [5, 0, 4, 9])  # a restarting agent answers nothing, then everything again
def test_any_interruption_leaves_the_log_whole(log: str, script: list[int | str]) -> None:
    seen = lines_of(Source(log, script))
    assert "\n".join(seen) == log.removesuffix("\n")
    assert not any("\n" in line for line in seen)


def test_an_unreachable_cluster_ends_the_following_but_not_the_job() -> None:
    with pytest.raises(UnreachableError, match=r"may still be running.*\n.*rdma-ray logs j"):
        lines_of(Source("", ["drop"] * 1000))


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


def attended(log: str) -> tuple[Ended, list[str], list[Event]]:
    """Follow a job with this log. Return also the events that its view received."""
    view, lines, events = View(), list[str](), list[Event]()
    vars(view).update(line=lines.append, event=events.append)
    return attend(Source(log), "j", view, stop_on_interrupt=True), lines, events


def test_events_are_separated_from_text_and_the_result_is_kept() -> None:
    texts = ["hello", "", MARK, MARK + "{", MARK + "[1]", MARK + '{"no":"kind"}']
    emitted = [f'(Worker pid=1) {MARK}{{"kind":"epoch"}}', f'{MARK}{{"kind":"result","result":{{"a":1}}}}']
    ended, lines, events = attended("\n".join([*texts, *emitted, ""]))
    assert (lines, events) == (texts, [{"kind": "epoch"}])
    assert (ended.code, ended.result) == (Exit.OK, {"a": 1})


def test_success_without_a_result_is_an_error() -> None:
    ended, lines, _ = attended("hello\n")
    assert ended.code == Exit.ERROR
    assert "without a result" in lines[-1]
