"""Invariants of a stack, and their evaluation on its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.capacity import EKS_CAPACITIES, GKE_CAPACITIES, EksCapacity, GkeCapacity
from infra.settings import EksSettings, GkeSettings, LocalSettings, Settings
from rehearsal.clouds.kind import value_at
from rehearsal.graph import Graph, Node

Invariant = Callable[["Stack"], Iterator[str]]
"""Yields each violation as text; nothing if the invariant holds. Its docstring describes it."""


@dataclass(frozen=True)
class Stack:
    """Registered stack with its settings."""

    graph: Graph
    settings: Settings

    @property
    def cloud(self) -> GkeSettings | EksSettings:
        """The settings of a cloud's stack."""
        if isinstance(self.settings, LocalSettings):
            raise TypeError("a local stack has no cloud resources")
        return self.settings

    @property
    def gke(self) -> GkeSettings:
        """The settings of a GKE stack."""
        if not isinstance(self.settings, GkeSettings):
            raise TypeError(f"the stack's target is {self.settings.target}, not gke")
        return self.settings

    @property
    def eks(self) -> EksSettings:
        """The settings of an EKS stack."""
        if not isinstance(self.settings, EksSettings):
            raise TypeError(f"the stack's target is {self.settings.target}, not eks")
        return self.settings

    def of(self, type_: str) -> list[Node]:
        """Return the resources of a type, by name."""
        return sorted((node for node in self.graph.nodes.values() if node.type == type_), key=lambda node: node.name)

    def the(self, type_: str, name: str) -> Node | None:
        """Return the resource of this type whose physical or logical name is `name`."""
        found = [node for node in self.of(type_) if name in (node.inputs.get("name"), node.name)]
        return found[0] if found else None

    @property
    def capacities(self) -> list[EksCapacity | GkeCapacity]:
        """The capacities of the GPU nodes: the first, and the fallback if there is one."""
        known: Mapping[str, EksCapacity | GkeCapacity]
        known = EKS_CAPACITIES if self.cloud.target == "eks" else GKE_CAPACITIES
        return [known[capacity] for capacity in self.cloud.nodes.capacities]

    @property
    def capacity_wait_s(self) -> int:
        """Maximum wait for a machine in seconds, by the slowest capacity."""
        return 3600 * max(way.wait_hours for way in self.capacities)


def at(node: Node, path: str) -> Any:
    """Return an input of a resource at a dotted path, or None."""
    return value_at(node.inputs, path)


def expect(node: Node, **wanted: Any) -> Iterator[str]:
    """Yield the inputs of a resource that differ. Paths are written with __ for dots."""
    for key, value in wanted.items():
        path = key.replace("__", ".")
        found = at(node, path)
        if found != value:
            yield f"{node.name}: {path} is {found!r}, not {value!r}"


def description(invariant: Invariant) -> str:
    """Return the first line of an invariant's docstring."""
    return (invariant.__doc__ or invariant.__name__).splitlines()[0]


def violations(invariants: tuple[Invariant, ...], stack: Stack) -> list[str]:
    """Return every violation. An invariant that cannot be checked counts as violated."""
    return [f"{description(invariant)} {wrong}" for invariant in invariants for wrong in _wrongs(invariant, stack)]


def _wrongs(invariant: Invariant, stack: Stack) -> Iterator[str]:
    try:
        yield from invariant(stack)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
        yield f"This cannot be checked: {problem!r}"
