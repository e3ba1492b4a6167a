"""Replay of a stack's creates against the simulated clouds, without the engine.

It takes the graph that the engine registered, optionally with a changed input, so thousands of variants run in the time
of one `up`. Inputs with other resources' outputs keep the original values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rehearsal.clouds.kind import Call, Kind, Refusal, first_refusal
from rehearsal.clouds.registry import cloud
from rehearsal.clouds.state import State, View
from rehearsal.graph import PROVIDERS, Graph, Node


@dataclass(frozen=True)
class Refused:
    """The first refused request: its resource and the reason."""

    node: Node
    refusal: Refusal


def replay(graph: Graph) -> Refused | None:
    """Create everything in the order of the graph, in an empty cloud; return the first refusal or None."""
    with tempfile.TemporaryDirectory() as folder, State(Path(folder) / "clouds.sqlite").transaction() as state:
        for node in graph.managed:
            refusal = _create(graph, node, state)
            if refusal is not None:
                return Refused(node, refusal)
    return None


def without(graph: Graph, urn: str, path: tuple[str | int, ...]) -> Graph:
    """Return the same graph without one input of a resource."""
    return changed(graph, urn, _taken_out(graph[urn].inputs, path))


def changed(graph: Graph, urn: str, inputs: Mapping[str, Any]) -> Graph:
    """Return the same graph with other inputs of a resource."""
    return Graph({**graph.nodes, urn: replace(graph[urn], inputs=inputs)})


def _create(graph: Graph, node: Node, state: View) -> Refusal | None:
    package = node.type.partition(":")[0]
    kind = cloud(package).kind(node.type)
    config = _configuration(graph, node)
    if kind is None:
        return Refusal("unknown", f"the simulated cloud has no kind {node.type}", "rehearsal")
    refusal = cloud(package).reaches(config, state)
    if refusal is not None:
        return refusal
    inputs = dict(node.inputs)
    try:
        id_ = kind.identify(inputs, config)
        # A generated id stays the same, whichever input is removed from the request.
        return _made(kind, node.id if kind.generated_ids else id_, inputs, config, state)
    except KeyError as missing:
        # The real provider checks required properties before it calls the API.
        return Refusal("required", f"Missing required argument: {missing.args[0]}", "pulumi: required properties")


def _made(kind: Kind, id_: str, inputs: dict[str, Any], config: Mapping[str, Any], state: View) -> Refusal | None:
    if kind.remembered and state.get(kind.type, id_) is not None:
        return kind.conflict(kind.type, id_)
    call = Call(verb="create", type=kind.type, id=id_, inputs=inputs, live={}, config=config, state=state, now=inputs)
    refusal = first_refusal(kind, call)
    if refusal is not None:
        return refusal
    if kind.remembered:
        state.put(kind.type, id_, {**inputs, **kind.compute(call)})
    return None


def _configuration(graph: Graph, node: Node) -> Mapping[str, Any]:
    provider = graph.nodes.get(node.provider or "")
    return provider.inputs if provider is not None and provider.type.startswith(PROVIDERS) else {}


def _taken_out(value: Any, path: tuple[str | int, ...]) -> Any:
    first, *rest = path
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key != first or rest}
        return {**kept, first: _taken_out(value[first], tuple(rest))} if rest else kept
    if isinstance(first, int):
        inner = [_taken_out(value[first], tuple(rest))] if rest else []
        return [*value[:first], *inner, *value[first + 1 :]]
    raise KeyError(first)
