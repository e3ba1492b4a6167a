"""Generic constraints of every cloud: referenced objects exist and cannot be deleted, and names are unique.

`rule` marks a semantic rule with its two sources: a refusal that somebody saw, and an accepted neighbor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rehearsal.clouds.facts import Shape
from rehearsal.engine.kind import Call, Json, Reference, Refusal, ResourceKind, Rule, Verb, value_at, values_at
from rehearsal.engine.state import View


@dataclass(frozen=True)
class SemanticRule:
    """Rule that no schema states. It refuses a call by returning the API's message.

    Args:
        judge: returns the message of the refusal, or None.
        verbs: the requests that it judges.
        status: the API's status ("400 badRequest").
        refused: source of a refusal that somebody saw: an issue, with its date, or code, with its revision.
        accepted: source of an accepted neighbor: an acceptance test, an example or a recorded log.
    """

    judge: Callable[[Call], str | None]
    verbs: tuple[Verb, ...]
    status: str
    refused: str
    accepted: str

    @property
    def name(self) -> str:
        """The function's name."""
        return self.judge.__name__

    def __call__(self, call: Call) -> Refusal | None:
        """Return the refusal of a call, or None."""
        message = self.judge(call) if call.verb in self.verbs else None
        return None if message is None else Refusal(self.status, message, self.refused)


def rule(
    *verbs: Verb, refused: str, accepted: str, status: str = "400 badRequest"
) -> Callable[[Callable[[Call], str | None]], SemanticRule]:
    """Mark a function as a semantic rule of these requests (create and update, if there is none)."""
    return lambda judge: SemanticRule(judge, verbs or ("create", "update"), status, refused, accepted)


def rules_of(module: Mapping[str, object]) -> tuple[SemanticRule, ...]:
    """Return the rules in a module's globals, in the order of their definition."""
    return tuple(each for each in module.values() if isinstance(each, SemanticRule))


def constrained(kinds: Iterable[ResourceKind], shapes: Mapping[str, Shape]) -> dict[str, ResourceKind]:
    """Return the kinds by type, each with its shape, and with the generic constraints around its own rules."""
    return {
        type_: replace(
            kind,
            check=shapes[type_].check,
            planned=shapes[type_].planned,
            replace_on=kind.replace_on | shapes[type_].immutable,
            computed=kind.computed | shapes[type_].computed,
            rules=(_shaped(shapes[type_]), *kind.rules),
        )
        for type_, kind in linked(kinds).items()
    }


def linked(kinds: Iterable[ResourceKind]) -> dict[str, ResourceKind]:
    """Return the kinds by type, each with the constraints of references and names around its own rules."""
    kinds = tuple(kinds)
    return {
        kind.type: replace(kind, rules=(_exists(kind), *kind.rules, _free(kind), _unused(kind, kinds)))
        for kind in kinds
    }


def referenced(
    kind: ResourceKind, value: Json, config: Mapping[str, Any], *, holding: bool = False
) -> Iterator[tuple[Reference, str]]:
    """Yield what an object's inputs or live value name, as (reference, id or value of its `by`).

    With `holding`, only what cannot be deleted before the object.
    """
    for reference in kind.references:
        if holding and not reference.holds:
            continue
        for text in values_at(value, reference.path):
            ids = reference.resolve(text, value, config)
            yield from ((reference, id_) for id_ in ((ids,) if isinstance(ids, str) else ids or ()))


def _there(state: View, reference: Reference, value: str) -> bool:
    if not reference.by:
        return any(state.get(type_, value) is not None for type_ in reference.types)
    return any(value_at(live, reference.by) == value for type_ in reference.types for _, _, live in state.all(type_))


def _shaped(shape: Shape) -> Rule:
    def check(call: Call) -> Refusal | None:
        """Refuse values that only the API checks."""
        message = None if call.verb == "delete" else shape.refused(call.inputs)
        return None if message is None else Refusal("400 badRequest", message, "rehearsal: facts")

    return check


def _exists(kind: ResourceKind) -> Rule:
    def reference_exists(call: Call) -> Refusal | None:
        if call.verb == "delete":
            return None
        for reference, id_ in referenced(kind, call.inputs, call.config):
            if not _there(call.state, reference, id_):
                return Refusal("404 notFound", f"{reference.path}: {id_} does not exist", "rehearsal: references")
        return None

    return reference_exists


def _free(kind: ResourceKind) -> Rule:
    def name_is_free(call: Call) -> Refusal | None:
        wanted = [value_at(call.inputs, path) for path in kind.unique]
        if call.verb != "create" or not any(wanted[:1]):
            return None
        for _, other, live in call.state.all(kind.type):
            if [value_at(live, path) for path in kind.unique] == wanted:
                return kind.conflict(kind.type, other)
        return None

    return name_is_free


def _unused(kind: ResourceKind, kinds: Iterable[ResourceKind]) -> Rule:
    holders = [
        one for one in kinds if any(kind.type in reference.types and reference.holds for reference in one.references)
    ]

    def reference_is_gone(call: Call) -> Refusal | None:
        if call.verb != "delete":
            return None
        for holder in holders:
            for _, other, live in call.state.all(holder.type):
                if (holder.type, other) == (kind.type, call.id):
                    continue
                for reference, id_ in referenced(holder, live, call.config, holding=True):
                    own = value_at(call.live, reference.by) if reference.by else call.id
                    if kind.type in reference.types and id_ == own:
                        words = f"{call.id} is in use by {other} ({reference.path})"
                        return Refusal("400 inUse", words, "rehearsal: references")
        return None

    return reference_is_gone
