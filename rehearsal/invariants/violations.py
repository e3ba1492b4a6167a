"""Invariants of every simulated stack, and their evaluation: every public function of the modules about a relation.

An invariant about resources of the other cloud holds without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import isfunction
from types import ModuleType

import yaml

from infra.settings import EksSettings, GkeSettings
from rehearsal.graph import Graph, GraphNode
from rehearsal.invariants import existing, fabric, order, protection, queues, reach, scheduling
from rehearsal.invariants.invariant import Invariant, Stack


def _public(module: ModuleType) -> Iterator[Invariant]:
    for name, value in vars(module).items():
        if isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield value


INVARIANTS = tuple(
    found for module in (order, protection, scheduling, fabric, queues, reach, existing) for found in _public(module)
)


IN_CLOUD = {protection.identities_are_used_by_whom_they_trust, protection.cloud_rights_belong_to_existing_accounts}
"""About rights in the cloud, which no team has."""


def violations(stack: Stack, invariants: Iterable[Invariant] = INVARIANTS) -> list[str]:
    """Return every violation. An invariant that cannot be checked counts as violated."""
    return [
        f"{whose}{' '.join(str(invariant.__doc__).split())} {wrong}"
        for whose, seen in _views(stack)
        for invariant in invariants
        if not whose.startswith("team-") or invariant not in IN_CLOUD
        for wrong in _wrongs(invariant, seen)
    ]


def _views(stack: Stack) -> Iterator[tuple[str, Stack]]:
    """Yield the stack as its own Ray and each team's Ray see it: without what is another's."""
    settings = stack.settings
    if not isinstance(settings, GkeSettings | EksSettings) or not settings.teams:
        yield "", stack
        return
    owners = {node.urn: _owner(stack.graph, node) for node in stack.graph.managed}
    views = {"ray": settings} | {f"team-{team.name}": settings.for_team(team) for team in settings.teams}
    for whose, own in views.items():
        others = frozenset(urn for urn, owner in owners.items() if owner not in (None, whose))
        yield f"{whose}: ", Stack(stack.graph, own, others)


def _owner(graph: Graph, node: GraphNode) -> str | None:
    """Return whose an object is, by the name of its workload, namespace or ClusterQueue; None for a shared one."""
    if node.type.endswith(":ClusterQueue"):
        return node.name.removeprefix("queue-of-") if node.name.startswith("queue-of-") else "ray"
    while node.parent is not None:
        node = graph[node.parent]
        if node.type in ("rdma-ray:kubernetes:RayCluster", "rdma-ray:kubernetes:Namespace"):
            return node.name
    return None


def _wrongs(invariant: Invariant, stack: Stack) -> Iterator[str]:
    try:
        yield from invariant(stack)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError) as problem:
        yield f"This cannot be checked: {problem!r}"
