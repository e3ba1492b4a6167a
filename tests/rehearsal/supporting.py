"""What the landscapes of the simulated clouds share: requests changed, judged, and made without a judge."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.clouds.kind import Call, Cloud, Json, Refusal
from rehearsal.clouds.state import View

GONE = object()
"""Put at a path, it takes away what is there."""


def changed(inputs: Json, changes: Mapping[str, Any]) -> Json:
    """A copy with other values at paths, dotted or with slashes; `GONE` takes the last part away."""
    new = copy.deepcopy(inputs)
    for path, value in changes.items():
        at: Any = new
        *way, end = path.split("/") if "/" in path else path.split(".")
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
        if value is GONE:
            at.pop(end, None)
        elif isinstance(at, list):
            at[int(end)] = copy.deepcopy(value)
        else:
            at[end] = copy.deepcopy(value)
    return new


def refusals(cloud: Cloud, request: Call) -> list[Refusal]:
    """What every rule of the kind says."""
    return [refusal for rule in cloud.kinds[request.type].rules if (refusal := rule(request)) is not None]


def make(cloud: Cloud, call: Callable[[View, str, Json], Call], state: View, type_: str, inputs: Json) -> str:
    """Make it without asking the rules; returns its id."""
    request = call(state, type_, inputs)
    state.put(type_, request.id, {**inputs, **cloud.kinds[type_].compute(request)})
    return request.id
