"""Answers of an account to questions about a stack: ok, not ok, or unknown. Unknown is never ok."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from workloads.preflight.cli import NoAnswerError, stop_commands

State = Literal["ok", "not ok", "unknown"]
Cause = Literal["quota", "stock-out", "mismatch", "access", "setup"]
"""Of what is not ok: a limit of the account; no machine there now; a machine, zone, reservation or version that does
not fit; a right that the caller or the nodes lack; something to switch on or to create first."""
PARALLEL = 24
"""Questions at the same time: all of a stack, so that slow answers do not add up."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class PreflightAnswer:
    """PreflightAnswer to one question.

    Args:
        check: Name of what was asked, such as `quota PREEMPTIBLE_NVIDIA_H200_GPUS`.
        found: What the account says, or why it is unknown.
        fix: Command or page that helps; required unless the state is ok.
        cause: Required if, and only if, the state is not ok.
        asked: Command line that gives this answer.
    """

    check: str
    state: State
    found: str
    fix: str = ""
    cause: Cause | None = None
    asked: str = ""

    def __post_init__(self) -> None:
        if (self.cause is not None) != (self.state == "not ok"):
            raise ValueError(f"{self.check}: cause {self.cause} of a check that is {self.state}")
        if not self.fix and self.state != "ok":
            raise ValueError(f"{self.check}: nothing says how to fix it")


@dataclass(frozen=True)
class PreflightCheck:
    """A question, or several that one request answers."""

    name: str
    ask: Callable[[], Iterable[PreflightAnswer]]

    def answers(self) -> list[PreflightAnswer]:
        """Ask. A question without an answer is unknown."""
        try:
            found = [*self.ask()]
        except NoAnswerError as error:
            return [
                PreflightAnswer(check=self.name, state="unknown", found=error.reason, fix=error.fix, asked=error.asked)
            ]
        return found or [
            PreflightAnswer(
                check=self.name, state="unknown", found="the answer has nothing about it", fix="look in the console"
            )
        ]


class Asks(Protocol[Answer]):
    """A question that can be asked beside others."""

    def answers(self) -> list[Answer]:
        """Ask."""


def ask_all(checks: Sequence[Asks[Answer]], done: Callable[[list[Answer]], None] = lambda _: None) -> list[Answer]:
    """Ask every question at the same time; return the answers in the order of the checks.

    Args:
        done: Called in this thread with each check's answers as soon as they are there.
    """
    with ThreadPoolExecutor(PARALLEL) as pool:
        asked = {pool.submit(check.answers): number for number, check in enumerate(checks)}
        answers: dict[int, list[Answer]] = {}
        try:
            for future in as_completed(asked):
                answers[asked[future]] = future.result()
                done(future.result())
        except BaseException:  # Ctrl-C, too: the pool would wait for every command
            pool.shutdown(wait=False, cancel_futures=True)
            stop_commands()
            raise
    return [answer for number in sorted(answers) for answer in answers[number]]
