"""A promise, and how a graph is asked whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.capacity import EKS_CAPACITIES, GKE_CAPACITIES, EksCapacity, GkeCapacity
from infra.settings import Settings
from rehearsal.clouds.kind import value_at
from rehearsal.graph import Graph, Node

Invariant = Callable[["Stack"], Iterator[str]]
"""Yields what is wrong, in words; nothing if the promise holds. Its docstring is the promise."""


@dataclass(frozen=True)
class Stack:
    """A stack as it was registered, with the settings that it was made from."""

    graph: Graph
    settings: Settings

    def of(self, type_: str) -> list[Node]:
        """The resources of a type, by name."""
        return sorted((node for node in self.graph.nodes.values() if node.type == type_), key=lambda node: node.name)

    def the(self, type_: str, name: str) -> Node | None:
        """The resource of this type whose physical name or logical name is `name`."""
        found = [node for node in self.of(type_) if name in (node.inputs.get("name"), node.name)]
        return found[0] if found else None

    @property
    def capacities(self) -> list[EksCapacity | GkeCapacity]:
        """The ways in which it gets machines: the first, and the second if there is one."""
        nodes = self.settings.nodes
        known: Mapping[str, EksCapacity | GkeCapacity]
        known = EKS_CAPACITIES if self.settings.target == "eks" else GKE_CAPACITIES
        return [known[way] for way in (nodes.capacity, nodes.fallback) if way is not None]

    @property
    def capacity_wait_s(self) -> int:
        """Seconds that a machine may take, as the slowest of these ways promises."""
        return 3600 * max(way.wait_hours for way in self.capacities)


def at(node: Node, path: str) -> Any:
    """An input of a resource at a dotted path; None if it is not set."""
    return value_at(node.inputs, path)


def expect(node: Node, **wanted: Any) -> Iterator[str]:
    """What of a resource's inputs is not as wanted; paths are written with __ for dots."""
    for key, value in wanted.items():
        path = key.replace("__", ".")
        found = at(node, path)
        if found != value:
            yield f"{node.name}: {path} is {found!r}, not {value!r}"


def description(invariant: Invariant) -> str:
    """A promise in words."""
    return (invariant.__doc__ or invariant.__name__).splitlines()[0]


def violations(invariants: tuple[Invariant, ...], stack: Stack) -> list[str]:
    """Every promise that does not hold, with what is wrong. One that cannot even be checked does not hold."""
    return [f"{description(invariant)} {wrong}" for invariant in invariants for wrong in _wrongs(invariant, stack)]


def _wrongs(invariant: Invariant, stack: Stack) -> Iterator[str]:
    try:
        yield from invariant(stack)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
        yield f"This cannot be checked: {problem!r}"
