"""Check of a recorded state, and the problems that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from workloads.doctor.state import State

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """A problem that a check found.

    Args:
        where: Node, pod or other object.
        cause: Why it is wrong, in a few words.
        evidence: Text that shows it, as read.
        cure: Next step, if it is not that of the check.
        severity: `warning` for problems that cost money or speed but stop nothing.
    """

    where: str
    cause: str
    evidence: str = ""
    cure: str | None = None
    severity: Severity = "error"


@dataclass(frozen=True)
class Check:
    """A check, which is also its function. `needs` are the parts of the state without which it cannot run."""

    name: str
    needs: tuple[str, ...]
    cure: str
    function: Callable[[State], Iterable[Problem]]

    def __call__(self, state: State) -> Iterable[Problem]:
        return self.function(state)

    @property
    def finds(self) -> str:
        """Problem that it finds: the first line of its function's docstring."""
        return (self.function.__doc__ or "").splitlines()[0].rstrip(".")


def check(name: str, *needs: str, cure: str) -> Callable[[Callable[[State], Iterable[Problem]]], Check]:
    """Make a check of a function."""
    return lambda function: Check(name, needs, cure, function)
