"""The graph of a deployment, read from `pulumi stack export`: what exists, and who waits for whom and why."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

PROVIDERS = "pulumi:providers:"


class GraphError(ValueError):
    """A deployment that is no graph: a reference to a resource that is not in it, or a cycle."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A resource of the deployment. Components, providers and the stack itself are nodes too, but take no time.

    `depends` is all that must be there before: `data` is what it cannot exist without (the resources whose outputs are
    in its inputs, its provider, its parent, what it is deleted with), `ordering` the rest, which only an explicit
    `depends_on` asks for. All three are URNs, and so are `parent`, `provider` and `deleted_with`. `id` is the cloud's.
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

    @property
    def ordering(self) -> frozenset[str]:
        """What it waits for without needing it."""
        return self.depends - self.data

    @property
    def made(self) -> bool:
        """Whether the engine asks a cloud for it: not a component, a provider, the stack, or a look at what exists."""
        return self.custom and not self.external and not self.type.startswith(PROVIDERS)

    @property
    def key(self) -> tuple[str, str, str]:
        """By what resources are sorted: two runs register them in different orders, and reports must not differ."""
        return self.type, self.name, self.urn


@dataclass(frozen=True)
class Graph:
    """The resources of a deployment by URN, each after everything that it depends on; equal for equal deployments."""

    nodes: Mapping[str, Node]

    @classmethod
    def from_deployment(cls, deployment: Mapping[str, Any]) -> Graph:
        """Read what `pulumi stack export` prints, or the `deployment` inside it; secrets may be encrypted.

        Raises:
            GraphError: a reference leads nowhere, or the references form a cycle.
        """
        inner = deployment.get("deployment", deployment)
        # A resource that waits for its deletion shares its URN with the one that replaced it.
        states = [state for state in inner.get("resources") or [] if not state.get("delete")]
        below = _descendants(states)
        nodes: dict[str, Node] = {}
        for state in states:
            node = _node(state)
            inside = [urn for dep in node.depends for urn in below.get(dep, ()) if dep != node.parent and urn in nodes]
            nodes[node.urn] = node if not inside else _with_depends(node, inside)
        return cls(_sorted(nodes))

    def __getitem__(self, urn: str) -> Node:
        return self.nodes[urn]

    @property
    def made(self) -> list[Node]:
        """The resources that a cloud is asked for, in order of dependence."""
        return [node for node in self.nodes.values() if node.made]

    @cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        """For each URN, those that wait for it."""
        waiting: dict[str, list[str]] = {urn: [] for urn in self.nodes}
        for node in self.nodes.values():
            for urn in node.depends:
                waiting[urn].append(node.urn)
        return {urn: tuple(urns) for urn, urns in waiting.items()}

    def made_before(self, urn: str) -> dict[str, bool]:
        """The made resources that a resource waits for, through what takes no time: URN → whether it needs them."""
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
                if self[before].made:
                    found[before] = found.get(before, False) or step[1]
                else:
                    ahead.append(step)
        return found

    def needs(self, urn: str, *, ordering: bool = True) -> frozenset[str]:
        """What a resource depends on, directly or not; without `ordering`, along data only."""
        return self._reach(urn, lambda node: node.depends if ordering else node.data)

    def falls_with(self, urn: str) -> list[Node]:
        """What cannot stay when a resource goes: everything made that depends on it along data.

        Components are not followed: they take no value away from what is in them.
        """
        reached = self._reach(
            urn,
            lambda node: [u for u in self.dependents[node.urn] if self[u].custom and node.urn in self[u].data],
        )
        return [node for node in self.made if node.urn in reached]

    def waits_for(self, urn: str) -> list[Node]:
        """What is made after a resource, but does not need it: it stays when that goes, and may notice."""
        reached = self._reach(urn, lambda node: self.dependents[node.urn])
        falls = {node.urn for node in self.falls_with(urn)}
        return [node for node in self.made if node.urn in reached - falls]

    def _reach(self, urn: str, following: Callable[[Node], Iterable[str]]) -> frozenset[str]:
        reached: set[str] = set()
        ahead = [urn]
        while ahead:
            for next_urn in following(self[ahead.pop()]):
                if next_urn not in reached:
                    reached.add(next_urn)
                    ahead.append(next_urn)
        return frozenset(reached - {urn})


def provider_urn(reference: str) -> str:
    """The URN in a reference to a provider, which is URN::ID."""
    return reference.rpartition("::")[0]


def _node(state: Mapping[str, Any]) -> Node:
    urn = state["urn"]
    provider = provider_urn(state["provider"]) if state.get("provider") else None
    parent, deleted_with = state.get("parent") or None, state.get("deletedWith") or None
    values = {dep for deps in (state.get("propertyDependencies") or {}).values() for dep in deps or ()}
    # A registration waits for its parent's, and so for all that the parent waits for.
    data = frozenset(values | {other for other in (provider, parent, deleted_with) if other})
    return Node(
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
    )


def _with_depends(node: Node, more: Iterable[str]) -> Node:
    """Waiting for a component is waiting for what is in it (pulumi: pkg/graph, DependenciesOf)."""
    values = {name: getattr(node, name) for name in Node.__dataclass_fields__}
    return Node(**values | {"depends": node.depends | frozenset(more) - {node.urn}})


def _descendants(states: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """For each component, everything below it."""
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


def _sorted(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """In order of dependence; where that leaves a choice, by type and name."""
    missing: dict[str, int] = {}
    dependents: dict[str, list[Node]] = {}
    for node in nodes.values():
        for urn in sorted(node.depends):
            if urn not in nodes:
                raise GraphError(f"{node.type} {node.name} refers to {urn}, which is not in the deployment")
            dependents.setdefault(urn, []).append(node)
        missing[node.urn] = len(node.depends)
    ready = [(node.key, node) for node in nodes.values() if not missing[node.urn]]
    heapq.heapify(ready)
    done: dict[str, Node] = {}
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
