"""The data of a finished rehearsal: its phases, the graph that `up` made, and what a change would do to a stack."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from rehearsal.graph import Graph, Node
from rehearsal.report.labels import BANNER, POOLS, called, has_gpus, kind
from rehearsal.report.schedule import Prediction, predict

Operation = Literal["create", "update", "replace", "delete"]

CLUSTERS = frozenset({"gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster"})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the rehearsal: up, preview, drift, refresh preview, destroy …

    `said` is what it found, or why it failed; `seconds` is what it took here, against simulated clouds.
    """

    name: str
    ok: bool
    seconds: float
    said: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """What the engine would do to a resource. `reasons` are the property paths that force a replacement."""

    urn: str
    name: str
    type: str
    op: Operation
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Damage:
    """What a replacement or a deletion costs: what falls with the resource, and what merely waited for it."""

    falls: tuple[Node, ...]
    waits: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished rehearsal.

    `seconds` is what it took here; `parallel` is how many resources the engine would handle at a time. `graph` is the
    deployment after the last `up`, `graph_before` the one that the changes are made to, where there are any;
    `leftovers` is what was still there after `destroy`; `changes` is what the program would do to the stack that it is
    compared with; `timeline` is what happened in a real cluster, with the seconds since it stands; `notes` say what
    stood in for the real thing, and what was not rehearsed.
    """

    stack: str
    target: str
    seconds: float
    parallel: int
    phases: tuple[Phase, ...]
    graph: Graph
    graph_before: Graph | None = None
    leftovers: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    timeline: tuple[tuple[float, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every phase went well and nothing was left over. A rehearsal without phases is no success."""
        return bool(self.phases) and all(phase.ok for phase in self.phases) and not self.leftovers

    @cached_property
    def prediction(self) -> Prediction:
        """What the real thing would take."""
        return predict(self.graph, self.parallel)

    @property
    def kinds(self) -> dict[str, int]:
        """How many resources of each type a cloud was asked for, by type."""
        return dict(sorted(Counter(node.type for node in self.graph.made).items()))

    @property
    def sorted_changes(self) -> tuple[Change, ...]:
        """The changes, the worst first: replacements, then deletions, GPU pools and clusters before all else."""
        worst = ("replace", "delete", "update", "create")
        return tuple(sorted(self.changes, key=lambda c: (worst.index(c.op), self._weight(c.urn), c.type, c.name)))

    @property
    def _before(self) -> Graph:
        """What the changes are made to."""
        return self.graph_before or self.graph

    def damage(self, change: Change) -> Damage:
        """What would fall with a resource; nothing for changes that leave it in place.

        The graph knows what is there now; a resource that it does not have has nothing that depends on it.
        """
        if change.op not in ("replace", "delete") or change.urn not in self._before.nodes:
            return Damage((), ())
        return Damage(
            tuple(sorted(self._before.falls_with(change.urn), key=weight)),
            tuple(sorted(self._before.waits_for(change.urn), key=weight)),
        )

    def machines(self, change: Change) -> str:
        """What a change ends that is no resource of the stack: the machines of a pool; empty if nothing."""
        node = self._before.nodes.get(change.urn)
        if change.op not in ("replace", "delete") or node is None or node.type not in POOLS:
            return ""
        bounds = node.inputs.get("autoscaling") or node.inputs.get("scalingConfig") or {}
        most = bounds.get("totalMaxNodeCount") or bounds.get("maxSize")
        return f"its nodes (at most {most}) and every pod on them"

    def changed(self, change: Change) -> str:
        """What a change is about, in words: its sort and name."""
        node = self._before.nodes.get(change.urn)
        return called(node) if node else f"{kind(change.type)} {change.name}"

    def _weight(self, urn: str) -> int:
        return weight(self._before[urn])[0] if urn in self._before.nodes else 3


def weight(node: Node) -> tuple[int, str, str]:
    """Sorts what hurts most to the front: GPU pools, clusters, other pools, then the rest by type and name."""
    if node.type in POOLS:
        return 0 if has_gpus(node) else 2, node.type, node.name
    return 1 if node.type in CLUSTERS else 3, node.type, node.name


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain JSON. It has no inputs or outputs of resources, and so none of their secrets."""
    prediction, graph = outcome.prediction, outcome.graph
    return {
        "rehearsal": BANNER,
        "stack": outcome.stack,
        "target": outcome.target,
        "ok": outcome.ok,
        "seconds": round(outcome.seconds, 1),
        "phases": [asdict(phase) | {"seconds": round(phase.seconds, 1)} for phase in outcome.phases],
        "resources": outcome.kinds,
        "waves": [[_name(node) for node in wave] for wave in prediction.waves],
        "predicted": {
            "parallel": prediction.parallel,
            "upSeconds": round(prediction.up.makespan, 1),
            "boundSeconds": round(prediction.bound, 1),
            "ratio": round(prediction.ratio, 3),
            "destroySeconds": round(prediction.destroy.makespan, 1),
            "critical": [_name(graph[urn]) for urn in prediction.up.critical],
        },
        "ordering": [
            {"waits": _name(edge.waits), "until": _name(edge.until), "why": edge.why} for edge in prediction.ordering
        ],
        "changes": [
            {
                "urn": change.urn,
                "op": change.op,
                "type": change.type,
                "name": change.name,
                "reasons": list(change.reasons),
                "takesDown": [_name(node) for node in outcome.damage(change).falls],
                "endsMachines": outcome.machines(change) or None,
            }
            for change in outcome.sorted_changes
        ],
        "timeline": [{"seconds": round(seconds, 1), "what": what} for seconds, what in outcome.timeline],
        "leftovers": sorted(outcome.leftovers),
        "notes": list(outcome.notes),
    }


def _name(node: Node) -> dict[str, str]:
    return {"kind": kind(node.type), "type": node.type, "name": node.name}
