"""Graph of a deployment, read from `pulumi stack export`: resources, their dependencies and the reasons."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

PROVIDERS = "pulumi:providers:"


class GraphError(ValueError):
    """A deployment is not a graph: it refers to a missing resource or has a cycle."""


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """Resource of a deployment. Components, providers and the stack are also nodes, but take no time.

    `depends` are all dependencies. `data` are those that the resource cannot exist without: the resources whose outputs
    are in its inputs, its provider, its parent, and the target of `deleted_with`. `ordering` are the others, which only
    an explicit `depends_on` requires. All are URNs, and so are `parent`, `provider` and `deleted_with`. `id` is the
    cloud's. `timeouts` are the program's own, in seconds by verb.
    """

    urn: str
    type: str
    name: str
    custom: bool
    external: bool
    protect: bool
    parent: str | None
    provider: str | None
    depends: frozenset[str]
    data: frozenset[str]
    deleted_with: str | None
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    id: str = ""
    timeouts: Mapping[str, float] = field(default_factory=dict)

    @property
    def ordering(self) -> frozenset[str]:
        """The dependencies without data."""
        return self.depends - self.data

    @property
    def managed(self) -> bool:
        """Whether a cloud creates it: not a component, a provider, the stack, or a read of an existing resource."""
        return self.custom and not self.external and not self.type.startswith(PROVIDERS)

    @property
    def key(self) -> tuple[str, str, str]:
        """Sort key, because two runs register resources in different orders and reports must not differ."""
        return self.type, self.name, self.urn


@dataclass(frozen=True)
class Graph:
    """Resources of a deployment by URN, each after its dependencies. Equal deployments give equal graphs."""

    nodes: Mapping[str, GraphNode]
    _needed: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_deployment(cls, deployment: Mapping[str, Any]) -> Graph:
        """Read the output of `pulumi stack export` or the `deployment` inside it. Secrets may be encrypted.

        Raises:
            GraphError: a reference has no target, or the references form a cycle.
        """
        inner = deployment.get("deployment", deployment)
        # A resource that awaits deletion shares its URN with its replacement.
        states = [state for state in inner.get("resources") or [] if not state.get("delete")]
        below = _descendants(states)
        nodes: dict[str, GraphNode] = {}
        for state in states:
            node = _node(state)
            inside = [urn for dep in node.depends for urn in below.get(dep, ()) if dep != node.parent and urn in nodes]
            # A dependency on a component is one on its children (pulumi: pkg/graph, DependenciesOf).
            nodes[node.urn] = replace(node, depends=node.depends | frozenset(inside) - {node.urn})
        return cls(_sorted(nodes))

    def __getitem__(self, urn: str) -> GraphNode:
        return self.nodes[urn]

    @cached_property
    def managed(self) -> list[GraphNode]:
        """The resources that a cloud creates, in order of dependence."""
        return [node for node in self.nodes.values() if node.managed]

    @cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        """For each URN, the resources that depend on it."""
        waiting: dict[str, list[str]] = {urn: [] for urn in self.nodes}
        for node in self.nodes.values():
            for urn in node.depends:
                waiting[urn].append(node.urn)
        return {urn: tuple(urns) for urn, urns in waiting.items()}

    def managed_before(self, urn: str) -> dict[str, bool]:
        """Return the created resources that a resource waits for, directly or through nodes that take no time.

        Returns:
            URN → whether the dependency is data.
        """
        found: dict[str, bool] = {}
        seen: set[tuple[str, bool]] = set()
        ahead = [(urn, True)]
        while ahead:
            at, needed = ahead.pop()
            for before in self[at].depends:
                step = (before, needed and before in self[at].data)
                if step in seen:
                    continue
                seen.add(step)
                if self[before].managed:
                    found[before] = found.get(before, False) or step[1]
                else:
                    ahead.append(step)
        return found

    def configuration(self, node: GraphNode) -> Mapping[str, Any]:
        """Return the inputs of a resource's provider."""
        provider = self.nodes.get(node.provider or "")
        return {} if provider is None else provider.inputs

    def with_inputs(self, urn: str, inputs: Mapping[str, Any]) -> Graph:
        """Return the same graph with other inputs of a resource. Dependencies stay as they are."""
        return Graph({**self.nodes, urn: replace(self[urn], inputs=inputs)}, self._needed)

    def needs(self, urn: str) -> frozenset[str]:
        """Return the direct and indirect dependencies of a resource."""
        if urn not in self._needed:
            self._needed[urn] = self._reach(urn, lambda node: node.depends)
        return self._needed[urn]

    def falls_with(self, urn: str) -> list[GraphNode]:
        """Return the created resources that depend on the data of a resource, and are deleted with it.

        Components are not followed, because their children do not use their values.
        """
        reached = self._reach(
            urn, lambda node: [u for u in self.dependents[node.urn] if self[u].custom and node.urn in self[u].data]
        )
        return [node for node in self.managed if node.urn in reached]

    def waits_for(self, urn: str) -> list[GraphNode]:
        """Return the resources that are created after a resource but do not use its data, so they can outlive it."""
        reached = self._reach(urn, lambda node: self.dependents[node.urn])
        falls = {node.urn for node in self.falls_with(urn)}
        return [node for node in self.managed if node.urn in reached - falls]

    def _reach(self, urn: str, following: Callable[[GraphNode], Iterable[str]]) -> frozenset[str]:
        reached: set[str] = set()
        ahead = [urn]
        while ahead:
            for next_urn in following(self[ahead.pop()]):
                if next_urn not in reached:
                    reached.add(next_urn)
                    ahead.append(next_urn)
        return frozenset(reached - {urn})


def _node(state: Mapping[str, Any]) -> GraphNode:
    urn = state["urn"]
    # A reference to a provider is URN::ID.
    provider = str(state.get("provider") or "").rpartition("::")[0] or None
    parent, deleted_with = state.get("parent") or None, state.get("deletedWith") or None
    values = {dep for deps in (state.get("propertyDependencies") or {}).values() for dep in deps or ()}
    # A registration waits for its parent's, and therefore for all dependencies of the parent.
    data = frozenset(values | {other for other in (provider, parent, deleted_with) if other})
    return GraphNode(
        urn=urn,
        type=state["type"],
        name=urn.split("::", 3)[-1],
        custom=bool(state.get("custom")),
        external=bool(state.get("external")),
        protect=bool(state.get("protect")),
        parent=parent,
        provider=provider,
        depends=data | frozenset(state.get("dependencies") or ()),
        data=data,
        deleted_with=deleted_with,
        inputs=state.get("inputs") or {},
        outputs=state.get("outputs") or {},
        id=state.get("id") or "",
        timeouts=state.get("customTimeouts") or {},
    )


def _descendants(states: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return all descendants of each component."""
    parents = {state["urn"]: state.get("parent") for state in states}
    components = {state["urn"] for state in states if not state.get("custom")}
    below: dict[str, list[str]] = {}
    for urn in parents:
        above, seen = parents[urn], {urn}
        while above and above not in seen:
            seen.add(above)
            if above in components:
                below.setdefault(above, []).append(urn)
            above = parents.get(above)
    return below


def _sorted(nodes: Mapping[str, GraphNode]) -> dict[str, GraphNode]:
    """Sort by dependence, then by type and name."""
    missing: dict[str, int] = {}
    dependents: dict[str, list[GraphNode]] = {}
    for node in nodes.values():
        for urn in sorted(node.depends):
            if urn not in nodes:
                raise GraphError(f"{node.type} {node.name} refers to {urn}, which is not in the deployment")
            dependents.setdefault(urn, []).append(node)
        missing[node.urn] = len(node.depends)
    ready = [(node.key, node) for node in nodes.values() if not missing[node.urn]]
    heapq.heapify(ready)
    done: dict[str, GraphNode] = {}
    while ready:
        _, node = heapq.heappop(ready)
        done[node.urn] = node
        for dependent in dependents.get(node.urn, ()):
            missing[dependent.urn] -= 1
            if not missing[dependent.urn]:
                heapq.heappush(ready, (dependent.key, dependent))
    if len(done) < len(nodes):
        left = ", ".join(sorted(node.name for node in nodes.values() if node.urn not in done))
        raise GraphError(f"these resources wait for each other: {left}")
    return done
