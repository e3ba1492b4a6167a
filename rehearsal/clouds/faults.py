"""Faults on order: which request fails, and how. They are kept in the world, and each strikes once.

Written "TYPE VERB HOW" ("gcp:container/nodePool:NodePool create stockout"; TYPE may have * in it) or "step N HOW",
where N counts the changes that the engine asks for within one command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from rehearsal.clouds.kind import Refusal
from rehearsal.clouds.state import View

How = Literal["stockout", "quota", "429", "500", "timeout", "kill-before", "kill-after"]
HOWS: tuple[How, ...] = get_args(How)

FAILURES: Mapping[How, Refusal] = {
    "stockout": Refusal(
        "503 GCE_STOCKOUT",
        "Instance creation failed: The zone does not have enough resources available to fulfill the request. "
        "Try a different zone, or try again later.",
        "hashicorp/terraform-provider-google #10823, read 2026-08",
    ),
    "quota": Refusal(
        "403 QUOTA_EXCEEDED",
        "Insufficient regional quota to satisfy request",
        "Compute Engine docs, allocation quotas; wording unverified, 2026-11",
    ),
    "429": Refusal(
        "429 rateLimitExceeded",
        "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'",
        "Google Cloud API design guide, errors; wording unverified, 2026-11",
    ),
    "500": Refusal(
        "500 backendError", "Internal error encountered.", "Google Cloud API design guide, errors; unverified, 2026-11"
    ),
    "timeout": Refusal(
        "timeout",
        "timeout while waiting for state to become 'DONE' (last state: 'RUNNING')",
        "hashicorp/terraform-plugin-sdk: helper/retry; wording unverified, 2026-11",
    ),
}
"""What an API says; the two kinds of kill say nothing."""


class FaultError(ValueError):
    """A fault was ordered in words that mean nothing."""


@dataclass(frozen=True)
class Fault:
    """One fault: `step` counts from 1, 0 means "the first request for `type` and `verb`"."""

    how: How
    type: str = "*"
    verb: str = "*"
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read a fault as a person writes it. Raises `FaultError`."""
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
                raise FaultError(f'--fault "{text}": {words[1]} is not a number of a step; they count from 1')
            return cls(how, step=int(words[1]))
        if words[1] not in ("create", "update", "delete", "*"):
            raise FaultError(f'--fault "{text}": {words[1]} is none of create, update, delete and *')
        return cls(how, type=words[0], verb=words[1])

    def matches(self, type_: str, verb: str, step: int) -> bool:
        """Whether this request is the one."""
        if self.step:
            return self.step == step
        return fnmatchcase(type_, self.type) and self.verb in ("*", verb)


def order(state: View, faults: list[Fault]) -> None:
    """Replace the faults that are still to strike."""
    state.set("faults", [asdict(fault) for fault in faults])


def pending(state: View) -> list[Fault]:
    """The faults that have not struck yet."""
    return [Fault(**fault) for fault in state.setting("faults", [])]


def inject(state: View, type_: str, verb: str, step: int) -> How | None:
    """The fault that strikes this request, if any; it will not strike again."""
    waiting: list[Any] = pending(state)
    for fault in waiting:
        if fault.matches(type_, verb, step):
            order(state, [other for other in waiting if other is not fault])
            how: How = fault.how
            return how
    return None
