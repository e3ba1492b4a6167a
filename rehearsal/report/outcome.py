"""Data of a finished rehearsal: its phases, the graph of `up`, and the effects of a change on the stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from rehearsal.clouds.registry import kind_of
from rehearsal.engine.values import covers
from rehearsal.graph import Graph, GraphNode
from rehearsal.report.labels import POOLS, display_name, has_gpus, kind
from rehearsal.report.schedule import Schedule

Operation = Literal["create", "update", "delete", "replace"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

CLUSTERS = frozenset({"gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster"})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Phase of a rehearsal, such as up, preview or destroy.

    `said` is its result or the reason of its failure; `seconds` is its duration against simulated clouds.
    """

    name: str
    ok: bool
    seconds: float
    said: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """Planned change of a resource. `reasons` are the property paths that force a replacement, and `recreates` those
    whose update replaces the running nodes of a group."""

    urn: str
    name: str
    type: str
    op: Operation
    reasons: tuple[str, ...] = ()
    recreates: tuple[str, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Iterator[Change]:
        """Yield the engine's steps as changes. A replacement has several steps and is one change."""
        for step in steps:
            if (op := step["op"]) not in OPERATIONS:
                continue
            types, name = step["urn"].split("::")[-2:]
            type_, details = types.rpartition("$")[2], step.get("detailedDiff") or {}
            forced = (path for path, how in sorted(details.items()) if "replace" in how["kind"])
            inputs = found.recreates if (found := kind_of(type_)) else frozenset()
            recreates = (path for path in sorted(details) if covers(inputs, tuple(path.split("."))))
            yield cls(
                urn=step["urn"],
                name=name,
                type=type_,
                op=op,
                reasons=tuple(forced) if op == "replace" else (),
                recreates=tuple(recreates) if op == "update" else (),
            )

    @property
    def ends(self) -> bool:
        """Whether the resource as it is ends: the change replaces or deletes it."""
        return self.op in ("replace", "delete")


@dataclass(frozen=True)
class Damage:
    """Cost of a replacement or deletion: the resources deleted with it, and those that only waited for it."""

    falls: tuple[GraphNode, ...]
    waits: tuple[GraphNode, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Finished rehearsal.

    Args:
        seconds: duration here.
        graph: deployment after the last `up`.
        graph_before: deployment to which the changes apply, if there are any.
        leftovers: resources that still existed after `destroy`.
        changes: planned changes of the stack that the program is compared with.
        cost: what the stack costs per hour at most, US dollars: before the changes, and with them. None if unknown.
        timeline: events in a real cluster, with the seconds since its start.
        notes: the simulated parts, and the parts that were not rehearsed.
    """

    stack: str
    target: str
    seconds: float
    phases: tuple[Phase, ...]
    graph: Graph
    graph_before: Graph | None = None
    leftovers: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    cost: tuple[float | None, float | None] = (None, None)
    timeline: tuple[tuple[float, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every phase succeeded, at least one phase ran, and nothing was left over."""
        return bool(self.phases) and all(phase.ok for phase in self.phases) and not self.leftovers

    @cached_property
    def schedule(self) -> Schedule:
        """The waves of creation and the critical paths."""
        return Schedule.of(self.graph)

    @property
    def kinds(self) -> dict[str, int]:
        """The number of created resources by type."""
        return dict(sorted(Counter(node.type for node in self.graph.managed).items()))

    @property
    def sorted_changes(self) -> tuple[Change, ...]:
        """The changes, the worst first: replacements, then deletions, GPU pools and clusters before the rest."""
        worst = ("replace", "delete", "update", "create")
        return tuple(sorted(self.changes, key=lambda c: (worst.index(c.op), self._weight(c.urn), c.type, c.name)))

    @property
    def _before(self) -> Graph:
        """The graph to which the changes apply."""
        return self.graph_before or self.graph

    def damage(self, change: Change) -> Damage:
        """Return the cost of a change; empty for changes in place and for resources that do not exist yet."""
        if not change.ends or change.urn not in self._before.nodes:
            return Damage((), ())
        return Damage(
            tuple(sorted(self._before.falls_with(change.urn), key=weight)),
            tuple(sorted(self._before.waits_for(change.urn), key=weight)),
        )

    def machines(self, change: Change) -> str:
        """Return the machines that a change ends, at once or one by one; empty if none. They are not resources."""
        node = self._before.nodes.get(change.urn)
        if not (change.ends or change.recreates) or node is None or node.type not in POOLS:
            return ""
        bounds = node.inputs.get("autoscaling") or node.inputs.get("scalingConfig") or {}
        most = bounds.get("totalMaxNodeCount") or bounds.get("maxSize")
        return f"its nodes (at most {most}) and every pod on them"

    def changed(self, change: Change) -> str:
        """Return the label and name of the changed resource."""
        node = self._before.nodes.get(change.urn)
        return display_name(node) if node else f"{kind(change.type)} {change.name}"

    def _weight(self, urn: str) -> int:
        return weight(self._before[urn])[0] if urn in self._before.nodes else 3


def weight(node: GraphNode) -> tuple[int, str, str]:
    """Sort key: GPU pools, clusters, other pools, then the rest by type and name."""
    if node.type in POOLS:
        return 0 if has_gpus(node) else 2, node.type, node.name
    return 1 if node.type in CLUSTERS else 3, node.type, node.name
