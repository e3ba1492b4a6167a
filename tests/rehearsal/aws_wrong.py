"""Cases of refusals by the simulated AWS: changes that invalidate a valid request, and their cloud states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.clouds.aws import tokens as t
from rehearsal.clouds.kind import Verb
from rehearsal.clouds.state import View
from tests.rehearsal import aws_supporting as land
from tests.rehearsal.supporting import GONE

Prepare = Callable[[View], object]
G, LT, C, FS = t.NODE_GROUP, t.LAUNCH_TEMPLATE, t.CLUSTER, t.FILE_SYSTEM
BLOCK: dict[str, Any] = {
    "capacityType": "CAPACITY_BLOCK",
    "instanceTypes": GONE,
    "scalingConfig.desiredSize": 0,
}
RESERVED = "cr-0123456789abcdef0"


def nothing(_state: View) -> None:
    """Use the supporting resources unchanged."""


def another(type_: str, id_: str, changes: Mapping[str, Any]) -> Prepare:
    """Change a supporting resource."""

    def prepare(state: View) -> None:
        live = state.get(type_, id_)
        assert live is not None, (type_, id_)
        state.put(type_, id_, land.changed(live, changes))

    return prepare


def template(changes: Mapping[str, Any]) -> Prepare:
    return another(LT, land.TEMPLATE_ID, changes)


def with_interfaces(*places: tuple[int, int, str], **more: Any) -> Prepare:
    """Give the launch template other interfaces: (card, device, type)."""
    rows = [{"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind} for card, device, kind in places]
    return template({"networkInterfaces": [{**row, **more} for row in rows]})


def targeting(**more: Any) -> Prepare:
    target = {"capacityReservationTarget": {"capacityReservationId": RESERVED}}
    return template({"capacityReservationSpecification": target, **more})


def reserved(facts: Mapping[str, Any], **more: Any) -> Prepare:
    return both(targeting(**more), lambda state: state.set("reservations", {RESERVED: facts}))


def both(*steps: Prepare) -> Prepare:
    return lambda state: [step(state) for step in steps]


def existing(type_: str, inputs: Mapping[str, Any]) -> Prepare:
    return lambda state: land.make(state, type_, dict(inputs))


def without(type_: str, id_: str | None = None) -> Prepare:
    def prepare(state: View) -> None:
        for _, one, _ in list(state.all(type_)):
            if id_ in (None, one):
                state.remove(type_, one)

    return prepare


def quota(**limits: int) -> Prepare:
    return lambda state: state.set("quota", limits)


def made_before(state: View, type_: str) -> str:
    """Create the valid request's object in advance."""
    return land.make(state, type_, land.right(state, type_))


def cluster(changes: Mapping[str, Any]) -> Prepare:
    return another(C, "ray", changes)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`changes` invalidate the valid request of a kind, in the cloud state of `prepare`; `says` is a pattern.

    `id_` is the object to update or delete: a supporting resource, unless `prepare` creates it.
    """

    rule: str
    kind: str
    changes: Mapping[str, Any]
    says: str
    verb: Verb = "create"
    prepare: Prepare = nothing
    id_: str | None = None

    @property
    def name(self) -> str:
        """Return the test id."""
        return f"{self.kind.rpartition(':')[2]}-{self.rule}"


def case(rule: str, kind: str, changes: Mapping[str, Any], says: str, prepare: Prepare = nothing, **more: Any) -> Case:
    """Return a case."""
    return Case(rule=rule, kind=kind, changes=changes, says=says, prepare=prepare, **more)


def gone(rule: str, kind: str, id_: str, says: str, prepare: Prepare = nothing) -> Case:
    """Return a case of a deletion."""
    return Case(rule=rule, kind=kind, changes={}, says=says, verb="delete", prepare=prepare, id_=id_)
