"""Shared helpers for supporting resources: change a request, check the rules, create without a check."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.clouds.kind import Call, Cloud, Json, Refusal
from rehearsal.clouds.state import View

GONE = object()
"""Value that removes the path that it is set at."""


def changed(inputs: Json, changes: Mapping[str, Any]) -> Json:
    """Return a copy with other values at paths, dotted or with slashes; `GONE` removes the last part."""
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
    """Return the refusal of every rule of the kind."""
    return [refusal for rule in cloud.kinds[request.type].rules if (refusal := rule(request)) is not None]


def make(cloud: Cloud, call: Callable[[View, str, Json], Call], state: View, type_: str, inputs: Json) -> str:
    """Create an object without checking the rules; return its id."""
    request = call(state, type_, inputs)
    state.put(type_, request.id, {**inputs, **cloud.kinds[type_].compute(request)})
    return request.id
