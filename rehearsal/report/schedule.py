"""Waves of creation, and the critical path by published durations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rehearsal.graph import Graph, GraphNode
from rehearsal.report.durations import published_seconds


@dataclass(frozen=True)
class CriticalPath:
    """Chain of dependent resources with the largest sum of published durations, in the order of creation.

    `published` has the duration of each in seconds, or None; `seconds` is their sum, a lower bound for a real run.
    """

    nodes: tuple[GraphNode, ...]
    published: tuple[float | None, ...]

    @property
    def seconds(self) -> float:
        """The sum of the published durations."""
        return sum(filter(None, self.published))


@dataclass(frozen=True)
class Schedule:
    """Waves of creation and the critical paths of `up` and `destroy`."""

    waves: tuple[tuple[GraphNode, ...], ...]
    up: CriticalPath
    destroy: CriticalPath

    @classmethod
    def of(cls, graph: Graph) -> Schedule:
        """Return the schedule of a graph."""
        up = critical_path(graph, lambda node: published_seconds(node.type, "create"))
        # A resource with `deleted_with` is deleted without a request.
        down = critical_path(graph, lambda node: None if node.deleted_with else published_seconds(node.type, "delete"))
        return cls(waves(graph), up, down)


def waves(graph: Graph) -> tuple[tuple[GraphNode, ...], ...]:
    """Return the resources by wave: one more than the highest wave of the dependencies.

    A node that takes no time has no wave, but its dependents also wait for its dependencies.
    """
    number: dict[str, int] = {}
    for node in graph.nodes.values():
        number[node.urn] = max((number[urn] for urn in node.depends), default=0) + node.managed
    made = sorted(graph.managed, key=lambda node: node.key)
    last = max((number[node.urn] for node in made), default=0)
    return tuple(tuple(node for node in made if number[node.urn] == wave) for wave in range(1, last + 1))


def critical_path(graph: Graph, seconds: Callable[[GraphNode], float | None]) -> CriticalPath:
    """Return the chain of created resources with the largest sum; of equal ones, the longest."""
    best: dict[str, tuple[float, int, tuple[str, ...]]] = {}
    for node in graph.nodes.values():
        longest = max((best[urn] for urn in sorted(node.depends)), default=(0.0, 0, ()), key=lambda path: path[:2])
        takes = seconds(node) if node.managed else None
        own = (node.urn,) if node.managed else ()
        best[node.urn] = (longest[0] + (takes or 0.0), longest[1] + len(own), longest[2] + own)
    _, _, urns = max(best.values(), default=(0.0, 0, ()), key=lambda path: path[:2])
    nodes = tuple(graph[urn] for urn in urns)
    return CriticalPath(nodes, tuple(seconds(node) for node in nodes))
