"""A planted fault: how it changes a healthy state, and what `doctor` reports of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

from workloads.doctor.state import State

Json = dict[str, Any]
P = ParamSpec("P")


@dataclass(frozen=True)
class Fault:
    """One fault. `cause` and `cure` are parts of the texts; `state` is a healthy one, which `plant` changes."""

    check: str
    where: str
    cause: str
    cure: str
    state: Callable[[], State]
    plant: Callable[[State], object]

    def __str__(self) -> str:
        return f"{self.check}: {self.cause}"


def planting(change: Callable[Concatenate[State, P], object]) -> Callable[P, Callable[[State], object]]:
    """Make a change of a state by arguments a function of these that returns the change."""
    return lambda *args, **more: lambda state: change(state, *args, **more)


def named(state: State, section: str, name: str) -> Json:
    """Return an object of a section."""
    return next(each for each in state.kubernetes[section] if each["metadata"]["name"] == name)


def remove(state: State, section: str, name: str) -> None:
    """Remove an object."""
    state.kubernetes[section].remove(named(state, section, name))


def set_condition(body: Json, type_: str, status: str, since: str, **more: str) -> None:
    """Set a condition of an object."""
    kept = [each for each in body["status"].get("conditions", []) if each["type"] != type_]
    body["status"]["conditions"] = [*kept, {"type": type_, "status": status, "lastTransitionTime": since, **more}]


def change_probe(state: State, number: int, **update: Any) -> None:
    """Change what the probe of a node found; number 0 is the head."""
    state.probes[number] = state.probes[number].model_copy(update=update)
