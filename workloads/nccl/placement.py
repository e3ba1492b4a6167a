"""Whether a gang can ever be placed, and what it waits for: what Ray's scheduler and autoscaler know, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FREE_THEM = "ask for less with --nodes and --per-node, or free what holds them: rdma-ray list"


@dataclass(frozen=True)
class Wanted:
    """One bundle of `amount` GPUs or CPUs (`kind`) on each of `nodes` nodes, all at once."""

    nodes: int
    kind: str
    amount: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes with {self.amount:g} free {self.kind} each"


@dataclass(frozen=True)
class Node:
    """A living node: how many GPUs or CPUs it has, and how many of them nobody holds."""

    address: str
    total: float
    free: float


@dataclass(frozen=True)
class Group:
    """A kind of node that the autoscaler may add: GPUs or CPUs of each, and how many nodes at most (None: no limit)."""

    name: str
    amount: float
    most: int | None


@dataclass(frozen=True)
class Scheduling:
    """Ray's scheduling state. `groups` is None where no autoscaler says what it may add.

    `starting` names the kinds of nodes that are on their way, `failed` the reasons why others are not, `refused` says
    that the autoscaler finds no way to fit this gang as long as the others hold what they hold.
    """

    nodes: list[Node]
    groups: list[Group] | None
    starting: list[str]
    failed: list[str]
    refused: bool

    def table(self, kind: str) -> list[str]:
        return [f"  {node.address}: {node.free:g} of {node.total:g} {kind} free" for node in self.nodes]


def never(wanted: Wanted, seen: Scheduling, elastic: bool) -> str | None:
    """Why the gang cannot be placed however long it waits; None where it can, or where nobody knows.

    Ray itself calls a group infeasible only where no node could take one bundle, not where nodes are too few, and says
    so as well while the autoscaler is about to add the first one.
    """
    fitting = sum(node.total >= wanted.amount for node in seen.nodes)
    if not elastic:
        if fitting >= wanted.nodes:
            return None
        return "\n".join(
            [
                f"these nodes can never fit: {wanted} are wanted; the cluster has",
                *seen.table(wanted.kind),
                FREE_THEM,
            ]
        )
    if seen.groups is None:
        return None
    able = [group for group in seen.groups if group.amount >= wanted.amount]
    if any(group.most is None for group in able):
        return None
    most = max(fitting, sum(group.most or 0 for group in able))
    if most >= wanted.nodes:
        return None
    kinds = ", ".join(f"{group.most} of {group.name} with {group.amount:g} {wanted.kind}" for group in seen.groups)
    return (
        f"the autoscaler can never have that many: {wanted} are wanted, and it may have at most {most} such nodes"
        f" ({kinds or 'no kind of node at all'}): use --nodes {most}, or raise nodes.max in the stack file"
    )


def waiting(wanted: Wanted, seen: Scheduling) -> str:
    """What is missing now, in one line."""
    ready = sum(node.free >= wanted.amount for node in seen.nodes)
    busy = [node for node in seen.nodes if node.total >= wanted.amount and node.free < wanted.amount]
    parts = [f"{min(ready, wanted.nodes)} of {wanted} ready"]
    if busy:
        held = ", ".join(f"{node.address} ({node.free:g} of {node.total:g} free)" for node in busy)
        parts.append(f"held by others: {held}")
    if seen.starting:
        parts.append(f"starting: {', '.join(seen.starting)}")
    if seen.failed:
        parts.append(f"not started: {', '.join(seen.failed)}")
    if seen.refused and not seen.starting:
        parts.append("the autoscaler sees no way to fit it in now")
    return "; ".join(parts)


def too_late(wanted: Wanted, seen: Scheduling, wait_s: float, state: str) -> str:
    """The message of a wait that is over; `state` is Ray's word for the placement group."""
    lines = [f"no room within {wait_s:.0f} s ({state}): {wanted} are wanted; the cluster has"]
    return "\n".join([*lines, *seen.table(wanted.kind), waiting(wanted, seen), f"wait longer with --wait, {FREE_THEM}"])


def read(kind: str, group_id: str) -> Scheduling:
    """Ask Ray for the nodes and for what its autoscaler does; `group_id` is the placement group's, in hex."""
    import ray

    free_of: Callable[[], dict[str, dict[str, float]]] = ray._private.state.available_resources_per_node
    nodes_of: Callable[[], list[dict[str, Any]]] = ray.nodes  # both untyped in Ray
    free = free_of()
    nodes = [
        Node(node["NodeManagerAddress"], node["Resources"].get(kind, 0), free.get(node["NodeID"], {}).get(kind, 0))
        for node in nodes_of()
        if node["Alive"]
    ]
    config: Any = ray._private.state.state.get_cluster_config()
    return autoscaling(_status(), config, nodes, kind, group_id)


def autoscaling(status: Any, config: Any, nodes: list[Node], kind: str, group_id: str) -> Scheduling:
    """The scheduling state out of Ray's messages GetClusterStatusReply and ClusterConfig (autoscaler.proto)."""
    state = status.autoscaling_state
    groups = None
    if config is not None and config.node_group_configs:
        groups = [
            # -1 is Ray's "no limit"
            Group(group.name, group.resources.get(kind, 0), None if group.max_count < 0 else group.max_count)
            for group in config.node_group_configs
        ]
    return Scheduling(
        nodes=nodes,
        groups=groups,
        starting=sorted(
            [f"{found.ray_node_type_name} {found.ip_address}".strip() for found in state.pending_instances]
            + [f"{found.count} of {found.ray_node_type_name}" for found in state.pending_instance_requests]
        ),
        failed=sorted({f"{found.ray_node_type_name}: {found.reason}" for found in state.failed_instance_requests}),
        refused=any(group_id in found.details for found in state.infeasible_gang_resource_requests),
    )


def _status() -> Any:
    """The autoscaler's report; an empty one where there is none."""
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]  # generated

    reply: Any = GetClusterStatusReply()
    reply.ParseFromString(GcsClient(ray.get_runtime_context().gcs_address).get_cluster_status(timeout_s=10))
    return reply
