"""Fault injection: which request fails, and how. The cloud state holds the faults; each is injected once.

Format: "TYPE VERB HOW" ("gcp:container/nodePool:NodePool create stockout"; TYPE may contain *) or "step N HOW", where N
counts the changes of one command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar, get_args

from rehearsal.engine.kind import Refusal
from rehearsal.engine.state import State, View

Said = TypeVar("Said")
How = Literal["stockout", "quota", "429", "500", "timeout", "kill-before", "kill-after"]
HOWS: tuple[How, ...] = get_args(How)

FAILURES: Mapping[How, Refusal] = {
    "stockout": Refusal("503 stockout", "The zone does not have enough resources available.", "rehearsal"),
    "quota": Refusal("403 quota", "A quota is exceeded.", "rehearsal"),
    "429": Refusal("429 rateLimit", "Too many requests.", "rehearsal"),
    "500": Refusal("500 internal", "Internal error.", "rehearsal"),
    "timeout": Refusal("timeout", "timeout while waiting for the operation", "rehearsal"),
}
"""The error for each fault, where the cloud does not define its own. The two kills have none."""


class FaultError(ValueError):
    """A fault is not in a known format."""


@dataclass(frozen=True)
class Fault:
    """One fault. `step` counts from 1; 0 means the first request for `type` and `verb`."""

    how: How
    type: str = "*"
    verb: str = "*"
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse a fault of the command line. Raises `FaultError`."""
        words = text.split()
        hows = ", ".join(HOWS)
        if len(words) != 3 or words[2] not in HOWS:
            raise FaultError(
                f'--fault "{text}": write "TYPE VERB HOW" or "step N HOW", where HOW is one of {hows}; '
                'for example "gcp:container/nodePool:NodePool create stockout"'
            )
        how = next(known for known in HOWS if known == words[2])
        if words[0] == "step":
            if not re.fullmatch(r"[1-9]\d*", words[1]):
                raise FaultError(f'--fault "{text}": {words[1]} is not a step number; steps count from 1')
            return cls(how, step=int(words[1]))
        if words[1] not in ("create", "update", "delete", "*"):
            raise FaultError(f'--fault "{text}": {words[1]} is not create, update, delete or *')
        return cls(how, type=words[0], verb=words[1])

    def matches(self, type_: str, verb: str, step: int) -> bool:
        """Return whether the fault applies to this request."""
        if self.step:
            return self.step == step
        return fnmatchcase(type_, self.type) and self.verb in ("*", verb)


def schedule(state: View, faults: list[Fault]) -> None:
    """Replace the pending faults."""
    state.set("faults", [asdict(fault) for fault in faults])


def pending(state: View) -> list[Fault]:
    """Return the faults that were not injected yet."""
    return [Fault(**fault) for fault in state.setting("faults", [])]


def inject_into(cloud_state: State, faults: list[Fault], command: Callable[[], Said]) -> tuple[Said, list[Fault]]:
    """Run a command with faults; return its result, and the faults that no request matched."""
    with cloud_state.transaction() as state:
        schedule(state, faults)
    said = command()
    with cloud_state.transaction() as state:
        waiting = pending(state)
        schedule(state, [])
    return said, waiting


def inject(state: View, type_: str, verb: str, step: int) -> How | None:
    """Return the fault for this request, if any, and remove it from the pending ones."""
    waiting: list[Any] = pending(state)
    for fault in waiting:
        if fault.matches(type_, verb, step):
            schedule(state, [other for other in waiting if other is not fault])
            how: How = fault.how
            return how
    return None
