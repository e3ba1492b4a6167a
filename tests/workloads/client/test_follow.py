"""The follower over a connection that drops, repeats and truncates."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from workloads.client.api import Job, JobsApi, UnknownError, UnreachableError, exit_code
from workloads.client.follow import follow
from workloads.client.run import Ended, attend
from workloads.exits import Exit, WorkloadError
from workloads.results.events import MARK, Event
from workloads.terminal.progress import View


def job(status: str, code: int | None = None) -> Job:
    return Job("j", status, "", 1.0, None, code, {})


class Source(JobsApi):
    """A job with this log that succeeds once every step of the script was answered.

    A number is the length of the log so far, in bytes; "drop" and "cut" break the connection before and after the
    status; "lost" is a head that knows no job.
    """

    def __init__(self, log: str | bytes, script: Sequence[int | str] = (), seconds: float = 1) -> None:
        clock = itertools.count(step=seconds).__next__  # an attempt takes this time
        super().__init__("", SecretStr(""), "test", sleep=lambda _: None, clock=clock)
        self.answered = True
        self.log, self.script = log if isinstance(log, bytes) else log.encode(), list(script)

    def once(self, path: str, *_: object, read: Callable[[bytes], Any] = json.loads, **__: object) -> Any:
        if path.startswith("/api/v0/logs/file?submission_id=j&"):
            step = self.script.pop(0) if self.script else len(self.log)
            if isinstance(step, str):
                raise UnreachableError(step)
            return read(self.log[:step])
        assert path == "/api/jobs/j"
        if self.script[:1] == ["drop"]:
            raise UnreachableError(str(self.script.pop(0)))
        if self.script[:1] == ["lost"]:
            raise UnknownError("does not know")
        status = {"status": "RUNNING"} if self.script else {"status": "SUCCEEDED", "driver_exit_code": 0}
        return status | {"submission_id": "j", "driver_node_id": "n"}


def lines_of(source: Source) -> list[str]:
    seen: list[str] = []
    ended = follow(source, "j", seen.append)
    assert ended.status == "SUCCEEDED"
    return seen


@given(
    st.binary().map(lambda log: log + b"end"),
    st.lists(st.one_of(st.integers(0, 200), st.sampled_from(["drop", "cut"])), max_size=30),
)
@example("one\ntwo\ré€\r\nno line end".encode(), [5, 0, 4, 9, 10, 11, 13, 15])
@example(b"\xff\xf0end", [1, 2])
def test_any_interruption_leaves_the_log_whole(log: bytes, script: list[int | str]) -> None:
    whole = io.TextIOWrapper(io.BytesIO(log), "utf-8", errors="replace").read()
    assert "\n".join(lines_of(Source(log, script))) == whole


def test_an_unreachable_cluster_ends_the_following_but_not_the_job() -> None:
    source, notes = Source("", ["drop"] * 1000), list[str]()
    source.note = notes.append
    with pytest.raises(UnreachableError, match=r"may still be running.*\n.*rdma-ray logs j"):
        lines_of(source)
    assert notes == ["drop Trying again for 300 s"]


def test_a_client_that_was_stopped_for_an_hour_goes_on() -> None:
    assert lines_of(Source("a\nb", [1, *["drop", "cut"] * 5], seconds=3600)) == ["a", "b"]


def test_a_restarted_cluster_is_no_success() -> None:
    with pytest.raises(WorkloadError, match=r"the cluster has restarted and no longer knows job j, which was RUNNING"):
        lines_of(Source("a\nb", [1, "lost"]))


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
