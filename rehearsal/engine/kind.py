"""Kinds of resources in a simulated cloud: identity, computed outputs, replacement, refusals.

Pure data and pure functions; `protocol` serves them to the engine, `state` stores the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rehearsal.engine.state import Json as Json
from rehearsal.engine.state import View

Verb = Literal["create", "update", "delete"]


@dataclass(frozen=True)
class Refusal:
    """Refusal of an API: its status as the API writes it ("400", "409 alreadyExists"), its message, and the source."""

    status: str
    message: str
    source: str


class RefusedError(Exception):
    """The request fails. `kept` is an object that exists nevertheless, as (id, outputs), and stays in the state."""

    def __init__(self, refusal: Refusal, kept: tuple[str, Json] | None = None) -> None:
        super().__init__(f"REHEARSAL: {refusal.status}: {refusal.message}")
        self.refusal = refusal
        self.kept = kept


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


@dataclass(frozen=True)
class Failure:
    """Invalid input that a provider reports in `Check`, before any request: its path and the problem."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Input that names another object of the cloud.

    Args:
        path: dotted input path; lists on the way stand for each of their items ("vpcConfig.subnetIds").
        types: type tokens of the objects that it may name.
        resolve: the object's id (or several) from the value, the inputs (or the live object) and the provider's
            configuration; None for a value that names no object of this cloud.
        holds: the API refuses to delete the named object while this one exists.
        by: live property that has the value, where it is not the id ("name" of a launch template).
    """

    path: str
    types: tuple[str, ...]
    resolve: Callable[[Any, Json, Mapping[str, Any]], str | tuple[str, ...] | None] = field(
        default=lambda value, _inputs, _config: value
    )
    holds: bool = True
    by: str = ""


def nothing(_call: Call) -> Json:
    """Return no computed output."""
    return {}


def no_failure(_inputs: Json) -> Iterator[Failure]:
    """Accept any inputs."""
    yield from ()


def taken(_type: str, id_: str) -> Refusal:
    """Return the refusal of a name that is in use."""
    return Refusal("409 alreadyExists", f"The resource '{id_}' already exists", "rehearsal")


def unchanged(_live: Json, _state: View) -> Json:
    """Return no drift."""
    return {}


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """Kind of resource in a simulated cloud.

    Args:
        type: the Pulumi type token.
        identify: the cloud's id from inputs and provider configuration. The same inputs give the same id, so a second
            create is a conflict.
        from_import: the id from the import id and the provider's configuration, where the two differ.
        compute: outputs that the cloud adds to the inputs.
        replace_on: dotted input paths whose change forces a replacement ("nodeConfig.machineType"), including nested
            paths.
        replace_if: further such paths, which depend on the old and new inputs (a size that gets smaller).
        normalized: inputs as the API stores them, the provider compares them and a refresh returns them.
        computed: dotted input paths that the cloud fills in where the program gives none. A provider does not notice
            that such an input is taken out, nor a block that has nothing else.
        maps: dotted input paths of free-form maps, in which keys that the cloud adds show as a difference.
        planned: outputs of a creation's preview from its inputs: what the cloud adds to a given block is unknown.
        check: failures of the inputs, which the provider reports before any request. Inputs may have unknown values.
        references: inputs that name other objects.
        rules: the API's refusals, checked in this order before anything changes.
        drift: top-level live values that the cloud changes later (deep-merged into the live object).
        cascade: whether another live object is deleted with this one, from (this call, its type and its live value).
        awaited: the provider waits for a long operation. If the operation fails, the resource exists and stays in the
            state.
        remembered: false for values that are only in the engine's state (random values).
        generated_ids: the cloud generates the ids, so the same request again creates a second object.
        conflict: the refusal of a second create with the same id, or with the same values at the paths of `unique`.
        unique: dotted input paths. No two objects of this type have the same values there; the first one may be absent.
        repeatable: a second create is not a conflict and changes nothing (IAM members).
        unsettled: outputs that an update may change, so its preview does not know them.
        whole: an update sends every input (server-side apply), not only the top-level ones that changed.
        nodes: the number of running nodes, from the live value of a node group or node pool.
        recreates: dotted input paths whose change in place replaces the running nodes, one after another.
    """

    type: str
    identify: Callable[[Json, Mapping[str, Any]], str]
    compute: Callable[[Call], Json] = nothing
    replace_on: frozenset[str] = frozenset()
    normalized: Callable[[Json], Json] = field(default=lambda inputs: inputs)
    replace_if: Callable[[Json, Json], frozenset[str]] = field(default=lambda _before, _now: frozenset())
    computed: frozenset[str] = frozenset()
    maps: frozenset[str] = frozenset()
    planned: Callable[[Json], Json] = field(default=lambda inputs: inputs)
    check: Callable[[Json], Iterator[Failure]] = no_failure
    references: Sequence[Reference] = ()
    rules: Sequence[Rule] = ()
    drift: Callable[[Json, View], Json] = unchanged
    cascade: Callable[[Call, str, Json], bool] = field(default=lambda _call, _type, _live: False)
    awaited: bool = False
    remembered: bool = True
    generated_ids: bool = False
    conflict: Callable[[str, str], Refusal] = taken
    unique: tuple[str, ...] = ()
    from_import: Callable[[str, Mapping[str, Any]], str] = field(default=lambda text, _config: text)
    repeatable: bool = False
    unsettled: tuple[str, ...] = ()
    whole: bool = False
    nodes: Callable[[Json], int] = field(default=lambda _live: 0)
    recreates: frozenset[str] = frozenset()

    def replacing(self, before: Json, now: Json) -> frozenset[str]:
        """Return the paths whose change forces a replacement, for old and new inputs."""
        return self.replace_on | self.replace_if(before, now)

    def keeps(self, before: Json, now: Json, live: Json | None = None) -> Callable[[Sequence[str | int]], bool]:
        """Return whether the provider hides a difference, by its path.

        It hides a computed input that is gone, and one that is new and has the value of the `live` object.
        """

        def hidden(path: Sequence[str | int]) -> bool:
            *above, name = path
            if not isinstance(name, str):
                return False
            if name in (value_at(now, above) or {} if above else now):
                place = ".".join(part for part in path if isinstance(part, str))
                known = live is not None and value_at(live, path) == value_at(now, path)
                return known and place in self.computed and value_at(before, path) is None
            place, given = ".".join(part for part in path if isinstance(part, str)), value_at(before, path)
            below = {f"{place}.{field}" for field in given} if isinstance(given, Mapping) else set()
            return place in self.computed or (bool(below) and below <= self.computed)

        return hidden


COPY = "__copy"
"""Number of an object among those with identical requests, from 2; part of the id, not of the inputs."""

Function = Callable[[Json, Mapping[str, Any], View], Json]
"""A provider function (invoke): arguments, provider configuration and cloud state to results."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Simulated provider: its package name, its kinds by type token, its functions by token.

    Args:
        other: serves types without a separate kind (Kubernetes custom resources); None refuses them.
        reaches: why the provider cannot reach its API now (the cluster does not exist), or None.
        replace_on: keys of the provider's configuration whose change replaces it and all of its resources.
        completed: a type's inputs with what the provider's configuration adds to them (default tags).
        failures: this cloud's errors for injected faults ("stockout", "429"), where they differ from the defaults.
    """

    package: str
    kinds: Mapping[str, ResourceKind]
    functions: Mapping[str, Function] = field(default_factory=dict)
    other: Callable[[str], ResourceKind] | None = None
    reaches: Callable[[Mapping[str, Any], View], Refusal | None] = field(default=lambda _config, _state: None)
    replace_on: frozenset[str] = frozenset()
    failures: Mapping[str, Refusal] = field(default_factory=dict)
    completed: Callable[[str, Json, Mapping[str, Any]], Json] = field(default=lambda _type, inputs, _config: inputs)

    def kind(self, type_: str) -> ResourceKind | None:
        """Return the kind of a type token, if this cloud has it."""
        return self.kinds.get(type_) or (self.other(type_) if self.other else None)


def first_refusal(kind: ResourceKind, call: Call) -> Refusal | None:
    """Return the first refusal of a request, or None."""
    return next((refusal for rule in kind.rules if (refusal := rule(call)) is not None), None)


def value_at(value: Any, path: str | Sequence[str | int]) -> Any:
    """Return the value at a path of keys and indexes, or dotted ("networkConfig.podRanges.0.network"), or None."""
    for part in path.split(".") if isinstance(path, str) else path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and str(part).isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a dotted path in which lists stand for each of their items; nothing where there is none."""
    if isinstance(value, list):
        for item in value:
            yield from values_at(item, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        first, _, rest = path.partition(".")
        if value.get(first) is not None:
            yield from values_at(value[first], rest)
