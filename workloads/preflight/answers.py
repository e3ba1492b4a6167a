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
    """Answer to one question.

    Args:
        check: Name of what was asked, such as `quota PREEMPTIBLE_NVIDIA_H200_GPUS`.
        found: What the account says, or why it is unknown.
        fix: Command or page that helps; required unless the state is ok.
        cause: Required if, and only if, the state is not ok.
        asked: Command line that gives this answer.
    """

    check: str
    state: State
    cause: Cause | None = None
    found: str
    fix: str = ""
    asked: str = ""

    def __post_init__(self) -> None:
        if (self.cause is not None) != (self.state == "not ok"):
            raise ValueError(f"{self.check}: cause {self.cause} of a check that is {self.state}")
        if not self.fix and self.state != "ok":
            raise ValueError(f"{self.check}: nothing says how to fix it")


@dataclass(frozen=True)
class Asked:
    """A command line, and the answers that follow from what it printed. Without one, the stack file has them."""

    asked: str = ""

    def ok(self, check: str, found: str) -> PreflightAnswer:
        """Return what is as the stack needs it."""
        return PreflightAnswer(check=check, state="ok", found=found, asked=self.asked)

    def unknown(self, check: str, found: str, fix: str) -> PreflightAnswer:
        """Return what has no answer, and why."""
        return PreflightAnswer(check=check, state="unknown", found=found, fix=fix, asked=self.asked)

    def not_ok(self, check: str, cause: Cause, found: str, fix: str) -> PreflightAnswer:
        """Return what would stop the stack."""
        return PreflightAnswer(check=check, state="not ok", cause=cause, found=found, fix=fix, asked=self.asked)


def refused(error: NoAnswerError, *kinds: str) -> Asked:
    """Return the command whose refusal is the answer, such as of a thing that is absent; raise one of another kind."""
    if error.kind not in kinds:
        raise error
    return Asked(error.asked)


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
            return [Asked(error.asked).unknown(self.name, error.reason, error.fix)]
        return found or [Asked().unknown(self.name, "the answer has nothing about it", "look in the console")]


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
