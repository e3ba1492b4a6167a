"""Predicted duration of a real `up` and `destroy`, the critical path, and the cost of ordering edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rehearsal.durations import duration
from rehearsal.graph import Graph, Node
from rehearsal.report.list_schedule import Task, Timetable, timetable
from rehearsal.report.ordering import reason


@dataclass(frozen=True)
class OrderingEdge:
    """A resource waits for another without using its data. `why` is None if no reason is recorded."""

    waits: Node
    until: Node
    why: str | None


@dataclass(frozen=True)
class Prediction:
    """Predicted times of a real run, in seconds.

    `up` uses every edge and the engine's parallelism. `bound` is the longest path through data edges and the ordering
    edges that have a reason; no parallelism can be faster. `ordering` are the ordering edges that data edges do not
    imply.
    """

    parallel: int | None
    waves: tuple[tuple[Node, ...], ...]
    up: Timetable
    bound: float
    destroy: Timetable
    ordering: tuple[OrderingEdge, ...]

    @property
    def ratio(self) -> float:
        """The ratio of `up` to its lower bound; 1 is as fast as the graph allows."""
        return self.up.makespan / self.bound if self.bound else 1.0

    @property
    def unexplained(self) -> tuple[OrderingEdge, ...]:
        """The ordering edges without a reason."""
        return tuple(edge for edge in self.ordering if edge.why is None)


def predict(graph: Graph, parallel: int | None) -> Prediction:
    """Predict `up` and `destroy` with this many resources at a time; None is no limit.

    Raises:
        UnknownDurationError: a resource's type has no row in `rehearsal.durations`.
    """
    create = {urn: duration(node.type).create.seconds if node.managed else 0.0 for urn, node in graph.nodes.items()}
    ordering = tuple(_ordering_edges(graph))
    unexplained = {(edge.waits.urn, edge.until.urn) for edge in ordering if edge.why is None}
    every = {urn: node.depends for urn, node in graph.nodes.items()}
    needed = {urn: frozenset(dep for dep in deps if (urn, dep) not in unexplained) for urn, deps in every.items()}
    return Prediction(
        parallel=parallel,
        waves=waves(graph),
        up=timetable(_tasks(graph, create, every), parallel),
        bound=timetable(_tasks(graph, create, needed), None).makespan,
        destroy=timetable(_tasks(graph, _delete_seconds(graph), _engine_destroy_order(graph)), parallel),
        ordering=ordering,
    )


def waves(graph: Graph) -> tuple[tuple[Node, ...], ...]:
    """Return the resources by wave: one more than the highest wave of the dependencies.

    A node that takes no time has no wave, but its dependents also wait for its dependencies.
    """
    number: dict[str, int] = {}
    for node in graph.nodes.values():
        number[node.urn] = max((number[urn] for urn in node.depends), default=0) + node.managed
    made = sorted(graph.managed, key=lambda node: node.key)
    last = max((number[node.urn] for node in made), default=0)
    return tuple(tuple(node for node in made if number[node.urn] == wave) for wave in range(1, last + 1))


def _ordering_edges(graph: Graph) -> Iterable[OrderingEdge]:
    for node in sorted(graph.nodes.values(), key=lambda node: node.key):
        implied = graph.needs(node.urn, ordering=False)
        for until in sorted((graph[urn] for urn in node.ordering - implied), key=lambda node: node.key):
            yield OrderingEdge(node, until, reason(node, until))


def _tasks(graph: Graph, seconds: Mapping[str, float], after: Mapping[str, frozenset[str]]) -> dict[str, Task]:
    return {urn: Task(node.key, seconds[urn], after[urn]) for urn, node in graph.nodes.items()}


def _delete_seconds(graph: Graph) -> dict[str, float]:
    """A resource with `deleted_with` is deleted without a request."""
    return {
        urn: duration(node.type).delete.seconds if node.managed and node.deleted_with is None else 0.0
        for urn, node in graph.nodes.items()
    }


def _engine_destroy_order(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the dependencies of each deletion: the engine deletes in groups, each after the group before.

    A group has the nodes of equal depth in the graph, including components and providers, the deepest first (pulumi
    3.259.0: pkg/resource/deploy/step_generator.go, ScheduleDeletes; deployment_executor.go, performPostSteps).
    """
    depth: dict[str, int] = {}
    for node in graph.nodes.values():
        depth[node.urn] = max((depth[urn] for urn in node.depends), default=0) + 1
    groups: dict[int, set[str]] = {}
    for urn, level in depth.items():
        groups.setdefault(level, set()).add(urn)
    return {urn: frozenset(groups.get(level + 1, ())) for urn, level in depth.items()}
