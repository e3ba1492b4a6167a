"""A wrong request to the simulated Kubernetes API: one change to a right object, or to the world around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rehearsal.clouds.kind import Call, Json, Rule, Verb
from rehearsal.clouds.state import View
from tests.rehearsal.kubernetes_objects import RIGHT, call, named, with_


@dataclass(frozen=True)
class Wrong:
    """What makes a right object wrong: one change, or what is live, or what is missing in the world.

    `also` are changes that leave it right, and without which the rule would not be asked.
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
    """The same after Ray's autoscaler wrote into it, if it is a RayCluster."""
    groups = (right.get("spec") or {}).get("workerGroupSpecs")
    grown: Json = with_(right, "spec/workerGroupSpecs/0/scaleStrategy", {"workersToDelete": []}) if groups else {}
    return grown


def request_of(wrong: Wrong, state: View) -> Call:
    """The wrong request, in a world that is as the case wants it."""
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
