"""Stack files that are legal as they stand, and a way to change one setting of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from infra.problems import Problem, SettingsError
from infra.settings import parse

GKE: dict[str, Any] = {
    "target": "gke",
    "location": "us-central1-b",
    "nodes": {"machine": "a3-ultragpu-8g"},
    "ray": {"image": "example/ray:2.60.0-py311-cu128"},
}
EKS: dict[str, Any] = {
    "target": "eks",
    "location": "us-east-1a",
    "nodes": {"machine": "p5en.48xlarge"},
    "ray": {"image": "example/ray:2.60.0-py311-cu128"},
}
LOCAL: dict[str, Any] = {"target": "local"}


def changed(stack: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The stack file with dotted settings set; None takes a setting out."""
    result: dict[str, Any] = copy.deepcopy(dict(stack))
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        place = result.setdefault(section, {}) if section else result
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return result


def problems_of(raw: Mapping[str, Any], *, stack: str | None = None) -> tuple[Problem, ...]:
    """The problems of a stack file; none if it is legal."""
    try:
        parse(raw, stack=stack)
    except SettingsError as error:
        return error.problems
    return ()
