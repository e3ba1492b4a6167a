"""Stacks as invariants see them: a graph of resources and the settings.

An invariant relates resources to each other or to the stack file. The value of a single input is not an invariant: the
golden files list it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infra.settings import EksSettings, GkeSettings, KubernetesSettings, Settings
from rehearsal.engine.kind import value_at
from rehearsal.graph import Graph, GraphNode

Invariant = Callable[["Stack"], Iterator[str]]
"""Yields each violation as text; nothing if the invariant holds. Its docstring describes it."""


@dataclass(frozen=True)
class Stack:
    """Registered stack with its settings.

    Args:
        hidden: Resources that `of` leaves out, by URN.
    """

    graph: Graph
    settings: Settings
    hidden: frozenset[str] = frozenset()

    @property
    def cluster(self) -> GkeSettings | EksSettings | KubernetesSettings:
        """The settings of a stack on Kubernetes."""
        if not isinstance(self.settings, GkeSettings | EksSettings | KubernetesSettings):
            raise TypeError(f"a stack of target {self.settings.target} has no cluster")
        return self.settings

    @property
    def on_users_cluster(self) -> bool:
        """Whether nodes, operators and networks are the user's, so that only Ray's objects are the stack's."""
        return isinstance(self.settings, KubernetesSettings)

    @property
    def in_users_cluster(self) -> bool:
        """Whether nodes, operators and networks are the stack's, in a cluster of the user's on a cloud."""
        return not self.on_users_cluster and not self.cluster.own_cluster

    @property
    def cloud(self) -> GkeSettings | EksSettings:
        """The settings of a cloud's stack."""
        if not isinstance(self.settings, GkeSettings | EksSettings):
            raise TypeError(f"a stack of target {self.settings.target} has no cloud resources")
        return self.settings

    def of(self, *kinds: str) -> list[GraphNode]:
        """Return the resources of these kinds, by name. A kind is a type token or its last part ("NodePool")."""
        found = {node.urn: node for kind in kinds for node in self._by_kind.get(kind, ())}
        return sorted(found.values(), key=lambda node: node.name)

    @cached_property
    def _by_kind(self) -> Mapping[str, list[GraphNode]]:
        found: dict[str, list[GraphNode]] = defaultdict(list)
        for node in (each for each in self.graph.managed if each.urn not in self.hidden):
            found[node.type].append(node)
            found[node.type.rpartition(":")[2]].append(node)
        return found

    def charts(self, *names: str) -> list[GraphNode]:
        """Return the Helm releases of these charts."""
        return [node for node in self.of("Release") if str(at(node, "chart")).rpartition("/")[2] in names]

    def needs(self, node: GraphNode, other: GraphNode) -> bool:
        """Return whether a resource depends on another one, directly or not."""
        return other.urn in self.graph.needs(node.urn)


def at(node: GraphNode, path: str) -> Any:
    """Return an input of a resource at a dotted path, or None."""
    return value_at(node.inputs, path)


def name_of(node: GraphNode) -> str:
    """Return the name by which other objects refer to an object."""
    return str(at(node, "metadata.name") or at(node, "name"))


def differs(what: object, found: Any, wanted: Any) -> Iterator[str]:
    """Yield a violation if a value differs from that of another resource or the stack file."""
    if found != wanted:
        yield f"{what}: {found}, not {wanted}"
