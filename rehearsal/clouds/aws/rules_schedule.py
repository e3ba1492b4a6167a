"""Rules of scheduled actions of Auto Scaling groups: time and sizes."""

from __future__ import annotations

import re
from itertools import pairwise

from rehearsal.clouds.aws.outputs import SINCE
from rehearsal.clouds.aws.refusals import AUTO_SCALING, PAST_START, refused
from rehearsal.clouds.kind import Call, Refusal, on

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_LEAVE = -1
"""The provider leaves this value out of the request."""


@on("create", "update")
def action_without_time(call: Call) -> Refusal | None:
    """An action has a time or a recurrence."""
    if call.inputs.get("startTime") or call.inputs.get("recurrence"):
        return None
    return refused("ValidationError", "Either StartTime or Recurrence must be specified", AUTO_SCALING)


@on("create")
def action_in_the_past(call: Call) -> Refusal | None:
    """An action starts in the future; the simulation has a fixed day. Times are ISO 8601 in UTC."""
    start = str(call.inputs.get("startTime") or "")
    if not start or start > SINCE:
        return None
    return refused("ValidationError", "Given start time is in the past", PAST_START)


@on("create", "update")
def recurrence_malformed(call: Call) -> Refusal | None:
    """A recurrence is a cron expression: five fields of numbers, ranges, lists and steps."""
    line = str(call.inputs.get("recurrence") or "")
    fields = line.split()
    if not line or (len(fields) == len(_FIELDS) and all(map(_fits, fields, _FIELDS))):
        return None
    return refused("ValidationError", f"Given recurrence string: {line} is invalid", AUTO_SCALING)


@on("create", "update")
def action_sizes_reversed(call: Call) -> Refusal | None:
    """An action's sizes are in order."""
    order = ("minSize", "desiredCapacity", "maxSize")
    sizes = [(key, int(call.inputs.get(key, 0))) for key in order]
    named = [(key, size) for key, size in sizes if size != _LEAVE]
    for (less, low), (more, high) in pairwise(named):
        if low > high:
            words = f"{less} {low} must be less than or equal to {more} {high}"
            return refused("ValidationError", words, AUTO_SCALING)
    return None


def _fits(text: str, field: tuple[str, int, int]) -> bool:
    """Return whether a field of a cron expression is valid; names of months and days count as valid numbers."""
    _, least, most = field
    numbers = [int(number) for number in re.findall(r"\d+", text.partition("/")[0])]
    return bool(re.fullmatch(r"(\*|[\w,-]+)(/\d+)?", text)) and all(least <= number <= most for number in numbers)
