"""Configurations that real clouds and providers accepted, and changes that they refused, as data with their origin.

`accepted/*.yaml` are lists of configurations; `refused/*.yaml` are lists of changes of one of them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rehearsal.clouds.registry import kind_of
from rehearsal.engine.kind import Call, Json, ResourceKind, Verb, value_at
from rehearsal.engine.protocol import compared
from rehearsal.engine.state import View
from rehearsal.engine.values import applied, merged

GONE = object()
"""Value that removes the path that it is set at."""
_FOLDER = Path(__file__).parent
_REFERENCE = re.compile(r"\$\{(?P<name>[\w-]+)\.(?P<path>[\w.-]+)\}")


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Configuration that somebody saw accepted: `resources` by logical name, each with a type and inputs."""

    name: str
    origin: str
    resources: Mapping[str, Json]
    config: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Change of an accepted configuration that somebody saw refused, and what has to catch it.

    `change` maps logical names to dotted paths with other values, `remove` to dotted paths. `caught` is "check",
    "replace" (the change recreates the resource), "reference_exists", "reference_is_gone", "name_is_free" or a semantic
    rule's name.
    """

    name: str
    origin: str
    said: str
    base: str
    caught: str
    change: Mapping[str, Json] = field(default_factory=dict)
    remove: Mapping[str, list[str]] = field(default_factory=dict)
    verb: Verb = "create"

    @property
    def resource(self) -> str:
        """The logical name of the resource that is refused: the last one that changes."""
        return [*self.change, *self.remove][-1]


@dataclass(frozen=True)
class Verdict:
    """Refusal of a resource: its logical name, what caught it, and the message."""

    resource: str
    caught: str
    message: str


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


def accepted() -> list[Accepted]:
    """Return every accepted configuration."""
    return [Accepted(**one) for one in _entries("accepted")]


def refused() -> list[Refused]:
    """Return every refused change."""
    return [Refused(**one) for one in _entries("refused")]


def deploy(configuration: Accepted, state: View) -> Verdict | None:
    """Create every resource in an empty state; return the first refusal or None."""
    ids: dict[str, tuple[str, str]] = {}
    for name, resource in configuration.resources.items():
        verdict = _create(name, resource, configuration.config, state, ids)
        if verdict is not None:
            return verdict
    return None


def deployed(configuration: Accepted, state: View) -> Iterator[tuple[str, Json, Json]]:
    """Create every resource in an empty state; yield the type, the inputs and the live value of each."""
    ids: dict[str, tuple[str, str]] = {}
    for name, resource in configuration.resources.items():
        inputs = _resolved(resource["inputs"], state, ids)
        assert _create(name, resource, configuration.config, state, ids) is None, configuration.name
        type_, id_ = ids[name]
        yield type_, inputs, state.get(type_, id_) or {}


def judge(change: Refused, base: Accepted, state: View) -> Verdict | None:
    """Apply a change to its base in an empty state; return the first refusal or None."""
    changes = {
        name: {**change.change.get(name, {}), **dict.fromkeys(change.remove.get(name, ()), GONE)}
        for name in (*change.change, *change.remove)
    }
    if change.verb == "create":
        resources = {
            name: {**resource, "inputs": changed(resource["inputs"], changes.get(name, {}))}
            for name, resource in base.resources.items()
        }
        return deploy(Accepted(name=base.name, origin=base.origin, resources=resources, config=base.config), state)
    ids: dict[str, tuple[str, str]] = {}
    for name, resource in base.resources.items():
        assert _create(name, resource, base.config, state, ids) is None, f"{base.name} is not accepted"
    name = change.resource
    type_, id_ = ids[name]
    before = _resolved(base.resources[name]["inputs"], state, ids)
    now = _resolved(changed(before, changes[name]), state, ids)
    call = request(state, type_, now, base.config, change.verb, id_=id_)
    if change.verb == "update":
        for failure in kind(type_).check(now):
            return Verdict(name, "check", f"{failure.path}: {failure.reason}")
        if replaced := list(compared(before, now, kind(type_).replacing(before, now)).replaces):
            return Verdict(name, "replace", ", ".join(replaced))
        call = replace(call, now=applied(call.live, before, now))
    return _judged(name, call)


def _create(name: str, resource: Json, config: Json, state: View, ids: dict[str, tuple[str, str]]) -> Verdict | None:
    type_, inputs = resource["type"], _resolved(resource["inputs"], state, ids)
    for failure in kind(type_).check(inputs):
        return Verdict(name, "check", f"{failure.path}: {failure.reason}")
    call = request(state, type_, inputs, config)
    ids[name] = (type_, call.id)
    verdict = _judged(name, call)
    if verdict is None:
        state.put(type_, call.id, {**inputs, **kind(type_).compute(call)})
    return verdict


def _judged(name: str, call: Call) -> Verdict | None:
    for rule in kind(call.type).rules:
        refusal = rule(call)
        if refusal is not None:
            return Verdict(name, str(getattr(rule, "name", getattr(rule, "__name__", ""))), refusal.message)
    return None


def kind(type_: str) -> ResourceKind:
    """Return a kind of a simulated cloud."""
    found = kind_of(type_)
    assert found is not None, f"there is no kind {type_}"
    return found


def request(
    state: View, type_: str, inputs: Json, config: Json, verb: Verb = "create", *, id_: str | None = None
) -> Call:
    """Return a request as the provider sends it."""
    id_ = id_ or kind(type_).identify(inputs, config)
    live = (state.get(type_, id_) or {}) if verb != "create" else {}
    now = {"create": inputs, "update": applied(live, live, inputs), "delete": {}}[verb]
    return Call(verb=verb, type=type_, id=id_, inputs=inputs, live=live, config=config, state=state, now=now)


def drift(state: View) -> None:
    """Change every object as its cloud does in time."""
    for type_, id_, live in list(state.all()):
        state.put(type_, id_, merged(live, kind(type_).drift(live, state)))


def _resolved(value: Any, state: View, ids: Mapping[str, tuple[str, str]]) -> Any:
    """Replace references ("${cluster.name}") by live values; a value that is one reference keeps its type."""
    if isinstance(value, Mapping):
        return {key: _resolved(item, state, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, state, ids) for item in value]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return _output(whole, state, ids)
    return _REFERENCE.sub(lambda found: str(_output(found, state, ids)), value)


def _output(found: re.Match[str], state: View, ids: Mapping[str, tuple[str, str]]) -> Any:
    type_, id_ = ids[found["name"]]
    value = value_at({"id": id_, **(state.get(type_, id_) or {})}, found["path"])
    assert value is not None, f"{found[0]} has no value"
    return value


def _entries(folder: str) -> Iterator[Json]:
    for path in sorted((_FOLDER / folder).glob("*.yaml")):
        yield from yaml.safe_load(path.read_text()) or []
