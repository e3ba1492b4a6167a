"""What a simulated cloud says about a kind of resource: identity, computed outputs, replacement, refusals.

Pure data and pure functions; `provider` serves them to the engine, `world` remembers what they made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rehearsal.clouds.state import View

Json = dict[str, Any]
Verb = Literal["create", "update", "delete"]


@dataclass(frozen=True)
class Refusal:
    """An API's refusal: its status as the API writes it ("400", "409 alreadyExists"), its words, and who says so."""

    status: str
    message: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to a simulated API.

    `inputs` are what the program asks for (of a delete: what it had asked for), `live` is what the cloud holds (empty
    on create), `now` what it becomes before the cloud adds anything (the inputs over what others added), `id` the
    cloud's own name for it, `config` the provider's configuration, `world` everything else that exists in this cloud
    and beside it.
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
    """The rule is asked for these verbs only, and silent otherwise."""

    def narrowed(rule: Rule) -> Rule:
        @wraps(rule)
        def asked(call: Call) -> Refusal | None:
            return rule(call) if call.verb in verbs else None

        return asked

    return narrowed


def nothing(_call: Call) -> Json:
    """No computed output."""
    return {}


def taken(_type: str, id_: str) -> Refusal:
    """The words of Google Cloud's APIs for a name that is in use."""
    return Refusal("409 alreadyExists", f"The resource '{id_}' already exists", "Google Cloud API errors")


def unchanged(_live: Json, _state: View) -> Json:
    """The cloud leaves it alone."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of resource in a simulated cloud.

    type: the Pulumi type token. identify: the cloud's id from inputs and provider configuration; the same inputs give
    the same id, so a second create is a conflict. from_import: the id of what is imported by something else than its
    id, from that and the provider's configuration. compute: outputs that the cloud adds to the inputs. replace_on:
    dotted input paths whose change means a new resource ("nodeConfig.machineType"; a path covers what is below it).
    maps: dotted input paths of free-form maps, in which keys that the cloud adds show as a difference, too. rules: the
    API's refusals, asked in this order before anything changes. drift: top-level live values that the cloud changes by
    itself after a while (merged into the live object, deep). cascade: whether another live object goes when this one
    is deleted, given (this call, type and live value of the other). awaited: the provider waits for the end of a long
    operation; when it waits in vain, the resource exists and stays in the state. remembered: false for what lives in
    the state alone (random values). repeatable: a second create is no conflict, but changes nothing (IAM members).
    generated_ids: the cloud generates the ids, so the same request again makes a second object. conflict: the refusal
    of a second create with the same id.
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
"""Counts the objects made by one and the same request, from the second on; part of the id, never of the inputs."""

Function = Callable[[Json, Mapping[str, Any], "View"], Json]
"""A provider function (invoke): arguments, provider configuration and world to results."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A simulated provider: its package name, its kinds by type token, its functions by token.

    `other` serves every type that has no kind of its own (Kubernetes' custom resources); None refuses them.
    `reaches` says why the provider cannot reach its API now (a cluster that does not exist), or None.
    `replace_on` are keys of the provider's own configuration whose change replaces it and everything made by it.
    `trouble` is what this cloud says of a fault ("stockout", "429"), where it has words of its own.
    """

    package: str
    kinds: Mapping[str, Kind]
    functions: Mapping[str, Function] = field(default_factory=dict)
    other: Callable[[str], Kind] | None = None
    reaches: Callable[[Mapping[str, Any], View], Refusal | None] = field(default=lambda _config, _state: None)
    replace_on: frozenset[str] = frozenset()
    failures: Mapping[str, Refusal] = field(default_factory=dict)

    def kind(self, type_: str) -> Kind | None:
        """The kind of a type token, if this cloud has it."""
        return self.kinds.get(type_) or (self.other(type_) if self.other else None)


def first_refusal(kind: Kind, call: Call) -> Refusal | None:
    """What the API says to a request, if it does not simply do it."""
    return next((refusal for rule in kind.rules if (refusal := rule(call)) is not None), None)


def value_at(value: Any, path: str) -> Any:
    """What lies at a dotted path ("networkConfig.additionalNodeNetworkConfigs.0.network"); None if nothing does."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
