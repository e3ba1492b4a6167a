"""Replay of a stack's creates against the simulated clouds, without the engine.

It takes the graph that the engine registered, optionally with a changed input, so thousands of variants run in the time
of one `up`. Inputs with other resources' outputs keep the original values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.clouds.registry import cloud
from rehearsal.engine.kind import Json, Refusal, RefusedError
from rehearsal.engine.protocol import created
from rehearsal.engine.state import View
from rehearsal.graph import Graph, GraphNode

Objects = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Refused:
    """The first refused request: its resource and the reason."""

    node: GraphNode
    refusal: Refusal


class Replay:
    """Creates of everything in a graph, in its order, in empty clouds.

    It keeps the objects before each create, so that a graph with other inputs of one resource is replayed from there.
    """

    def __init__(self, graph: Graph) -> None:
        self._before: dict[str, Objects] = {}
        memory = _Memory({})
        for node in graph.managed:
            self._before[node.urn] = dict(memory.objects)
            refusal = _create(graph, node, memory)
            if refusal is not None:
                raise ValueError(f"{node.name} is refused: {refusal.message}")

    def refused(self, graph: Graph, urn: str) -> Refused | None:
        """Return the first refusal of a graph with other inputs of one resource, or None."""
        memory = _Memory(dict(self._before[urn]))
        nodes = graph.managed
        for node in nodes[[node.urn for node in nodes].index(urn) :]:
            refusal = _create(graph, node, memory)
            if refusal is not None:
                return Refused(node, refusal)
        return None


class _Memory(View):
    """Objects in memory, as text: nothing that reads one can change it."""

    def __init__(self, objects: dict[tuple[str, str], str]) -> None:
        self.objects = objects

    def get(self, type_: str, id_: str) -> Json | None:
        text = self.objects.get((type_, id_))
        document: Json | None = None if text is None else json.loads(text)
        return document

    def all(self, type_: str | None = None) -> Iterator[tuple[str, str, Json]]:
        for found, id_ in sorted(key for key in self.objects if type_ in (None, key[0])):
            yield found, id_, json.loads(self.objects[found, id_])

    def put(self, type_: str, id_: str, live: Mapping[str, Any]) -> None:
        self.objects[type_, id_] = json.dumps(live)

    def remove(self, type_: str, id_: str) -> None:
        self.objects.pop((type_, id_), None)

    def setting(self, _name: str, default: Any = None) -> Any:
        return default


def _create(graph: Graph, node: GraphNode, state: View) -> Refusal | None:
    package = node.type.partition(":")[0]
    kind = cloud(package).kind(node.type)
    config = graph.configuration(node)
    if kind is None:
        return Refusal("unknown", f"the simulated cloud has no kind {node.type}", "rehearsal")
    refusal = cloud(package).reaches(config, state)
    if refusal is not None:
        return refusal
    inputs = dict(node.inputs)
    for failure in kind.check(inputs):
        return Refusal("check", f"{failure.path}: {failure.reason}", "provider")
    try:
        id_ = kind.identify(inputs, config)
        # A generated id stays the same, whichever input is removed from the request.
        created(kind, node.id if kind.generated_ids else id_, inputs, config, state)
    except RefusedError as refused:
        return refused.refusal
    except KeyError as missing:
        # The real provider checks required properties before it calls the API.
        return Refusal("required", f"Missing required argument: {missing.args[0]}", "pulumi: required properties")
    except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as unread:
        # In a rehearsal, this error of the simulated cloud ends the request.
        return Refusal("unreadable", f"the simulated cloud cannot read the request: {unread!r}", "rehearsal")
    return None
