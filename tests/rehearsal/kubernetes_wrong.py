"""Invalid requests to the simulated Kubernetes API: one change to a valid object or to the cloud state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rehearsal.clouds.kind import Call, Json, Rule, Verb
from rehearsal.clouds.state import View
from tests.rehearsal.kubernetes_objects import RIGHT, call, named, with_


@dataclass(frozen=True)
class Wrong:
    """What invalidates a valid object: a change, a live object, or a missing one.

    `also` are valid changes that the rule needs to apply.
    """

    rule: Rule
    type: str
    path: str = ""
    new: Any = None
    says: str = ""
    verb: Verb = "create"
    live: str = ""
    gone: tuple[tuple[str, str], ...] = field(default=())
    put: tuple[tuple[str, str, Json], ...] = field(default=())
    also: tuple[tuple[str, Any], ...] = field(default=())


def autoscaled(right: Json) -> Json:
    """Return the object after Ray's autoscaler wrote to it, if it is a RayCluster."""
    groups = (right.get("spec") or {}).get("workerGroupSpecs")
    grown: Json = with_(right, "spec/workerGroupSpecs/0/scaleStrategy", {"workersToDelete": []}) if groups else {}
    return grown


def request_of(wrong: Wrong, state: View) -> Call:
    """Return the invalid request, with the cloud state of the case."""
    right = RIGHT.get(wrong.type, named("x"))
    for type_, id_ in wrong.gone:
        state.remove(type_, id_)
    for type_, id_, live in wrong.put:
        state.put(type_, id_, live)
    for path, new in wrong.also:
        right = with_(right, path, new)
    inputs = with_(right, wrong.path, wrong.new) if wrong.path else right
    live = {"": {}, "right": right, "immutable": {**right, "immutable": True}, "autoscaled": autoscaled(right)}[
        wrong.live
    ]
    return call(state, wrong.type, inputs, wrong.verb, live)
