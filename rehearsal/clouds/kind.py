"""Kinds of resources in a simulated cloud: identity, computed outputs, replacement, refusals.

Pure data and pure functions; `provider` serves them to the engine, `state` stores the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

from rehearsal.clouds.state import Json as Json
from rehearsal.clouds.state import View

Verb = Literal["create", "update", "delete"]


@dataclass(frozen=True)
class Refusal:
    """Refusal of an API: its status as the API writes it ("400", "409 alreadyExists"), its message, and the source."""

    status: str
    message: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to a simulated API.

    Args:
        inputs: inputs of the program; on delete, those of the last request.
        live: the object in the cloud, empty on create.
        now: the object before the cloud adds anything: the inputs merged over what others added.
        id: the cloud's id.
        config: the provider's configuration.
        state: all other objects in this cloud and the other ones.
    """

    verb: Verb
    type: str
    id: str
    inputs: Json
    live: Json
    config: Mapping[str, Any]
    state: View
    now: Json = field(default_factory=dict)


Rule = Callable[[Call], Refusal | None]


def on(*verbs: Verb) -> Callable[[Rule], Rule]:
    """Restrict a rule to these verbs."""

    def narrowed(rule: Rule) -> Rule:
        @wraps(rule)
        def asked(call: Call) -> Refusal | None:
            return rule(call) if call.verb in verbs else None

        return asked

    return narrowed


def nothing(_call: Call) -> Json:
    """Return no computed output."""
    return {}


def taken(_type: str, id_: str) -> Refusal:
    """Return the refusal of Google Cloud's APIs for a name that is in use."""
    return Refusal("409 alreadyExists", f"The resource '{id_}' already exists", "Google Cloud API errors")


def unchanged(_live: Json, _state: View) -> Json:
    """Return no drift."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Kind of resource in a simulated cloud.

    Args:
        type: the Pulumi type token.
        identify: the cloud's id from inputs and provider configuration. The same inputs give the same id, so a second
            create is a conflict.
        from_import: the id from the import id and the provider's configuration, where the two differ.
        compute: outputs that the cloud adds to the inputs.
        replace_on: dotted input paths whose change forces a replacement ("nodeConfig.machineType"), including nested
            paths.
        maps: dotted input paths of free-form maps, in which keys that the cloud adds show as a difference.
        rules: the API's refusals, checked in this order before anything changes.
        drift: top-level live values that the cloud changes later (deep-merged into the live object).
        cascade: whether another live object is deleted with this one, from (this call, its type and its live value).
        awaited: the provider waits for a long operation. If the operation fails, the resource exists and stays in the
            state.
        remembered: false for values that are only in the engine's state (random values).
        generated_ids: the cloud generates the ids, so the same request again creates a second object.
        conflict: the refusal of a second create with the same id.
        repeatable: a second create is no conflict and changes nothing (IAM members).
    """

    type: str
    identify: Callable[[Json, Mapping[str, Any]], str]
    compute: Callable[[Call], Json] = nothing
    replace_on: frozenset[str] = frozenset()
    maps: frozenset[str] = frozenset()
    rules: Sequence[Rule] = ()
    drift: Callable[[Json, View], Json] = unchanged
    cascade: Callable[[Call, str, Json], bool] = field(default=lambda _call, _type, _live: False)
    awaited: bool = False
    remembered: bool = True
    generated_ids: bool = False
    conflict: Callable[[str, str], Refusal] = taken
    from_import: Callable[[str, Mapping[str, Any]], str] = field(default=lambda text, _config: text)
    repeatable: bool = False


COPY = "__copy"
"""Number of an object among those with identical requests, from 2; part of the id, not of the inputs."""

Function = Callable[[Json, Mapping[str, Any], View], Json]
"""A provider function (invoke): arguments, provider configuration and cloud state to results."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Simulated provider: its package name, its kinds by type token, its functions by token.

    Args:
        other: serves types without a kind of their own (Kubernetes custom resources); None refuses them.
        reaches: why the provider cannot reach its API now (the cluster does not exist), or None.
        replace_on: keys of the provider's configuration whose change replaces it and all of its resources.
        failures: this cloud's errors for injected faults ("stockout", "429"), where they differ from the defaults.
    """

    package: str
    kinds: Mapping[str, Kind]
    functions: Mapping[str, Function] = field(default_factory=dict)
    other: Callable[[str], Kind] | None = None
    reaches: Callable[[Mapping[str, Any], View], Refusal | None] = field(default=lambda _config, _state: None)
    replace_on: frozenset[str] = frozenset()
    failures: Mapping[str, Refusal] = field(default_factory=dict)

    def kind(self, type_: str) -> Kind | None:
        """Return the kind of a type token, if this cloud has it."""
        return self.kinds.get(type_) or (self.other(type_) if self.other else None)


def first_refusal(kind: Kind, call: Call) -> Refusal | None:
    """Return the first refusal of a request, or None."""
    return next((refusal for rule in kind.rules if (refusal := rule(call)) is not None), None)


def value_at(value: Any, path: str) -> Any:
    """Return the value at a dotted path ("networkConfig.additionalNodeNetworkConfigs.0.network"), or None."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
