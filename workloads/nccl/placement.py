"""Placement of a gang: whether it can ever fit, what it waits for, and the wait itself.

Combines the state of Ray's scheduler and of its autoscaler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table

from workloads.exits import WorkloadError
from workloads.results import emit

REQUEST_LESS = "request less with --nodes and --per-node, or free what holds them: rdma-ray list"
FIRST_REPORT_S, NEXT_REPORT_S = 2, 15
"""Seconds until the first report of a wait, and between reports."""


@dataclass(frozen=True)
class GangRequest:
    """One bundle of `amount` GPUs or CPUs (`kind`) on each of `nodes` nodes, all at once."""

    nodes: int
    kind: str
    amount: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes with {self.amount:g} free {self.kind} each"


@dataclass(frozen=True)
class Node:
    """A live node: its number of GPUs or CPUs, and how many of them are free."""

    address: str
    total: float
    free: float


@dataclass(frozen=True)
class Group:
    """A node group of the autoscaler: GPUs or CPUs per node, and its maximum of nodes (None: unlimited)."""

    name: str
    amount: float
    most: int | None


@dataclass(frozen=True)
class Scheduling:
    """Ray's scheduling state.

    `groups` is None without an autoscaler. `starting` lists nodes that are starting, `failed` why others did not start.
    `refused` is whether the autoscaler cannot fit this gang with the nodes that other jobs hold.
    """

    nodes: list[Node]
    groups: list[Group] | None
    starting: list[str]
    failed: list[str]
    refused: bool

    def table(self, kind: str) -> str:
        return "\n".join(f"  {node.address}: {node.free:g} of {node.total:g} {kind} free" for node in self.nodes)


def never(request: GangRequest, seen: Scheduling, elastic: bool) -> str | None:
    """Return why the gang can never be placed; None if it can, or if that is unknown.

    Ray itself reports a group as infeasible only if no node fits one bundle, not if nodes are too few, and also while
    the autoscaler is about to add the first one.
    """
    fitting = sum(node.total >= request.amount for node in seen.nodes)
    if not elastic:
        if fitting >= request.nodes:
            return None
        table = seen.table(request.kind)
        return f"these nodes can never fit: the run needs {request}; the cluster has\n{table}\n{REQUEST_LESS}"
    able = [group for group in seen.groups or () if group.amount >= request.amount]
    if seen.groups is None or any(group.most is None for group in able):
        return None
    most = max(fitting, sum(group.most or 0 for group in able))
    if most >= request.nodes:
        return None
    kinds = ", ".join(f"{group.most} of {group.name} with {group.amount:g} {request.kind}" for group in seen.groups)
    return (
        f"the autoscaler can never add that many: the run needs {request}, and at most {most} such nodes are"
        f" possible ({kinds or 'no node group'}): use --nodes {most}, or raise nodes.max in the stack file"
    )


def waiting(request: GangRequest, seen: Scheduling) -> str:
    """Return what is missing now, in one line."""
    ready = sum(node.free >= request.amount for node in seen.nodes)
    busy = [node for node in seen.nodes if node.total >= request.amount and node.free < request.amount]
    parts = [f"{min(ready, request.nodes)} of {request} ready"]
    if busy:
        held = ", ".join(f"{node.address} ({node.free:g} of {node.total:g} free)" for node in busy)
        parts.append(f"held by others: {held}")
    if seen.starting:
        parts.append(f"starting: {', '.join(seen.starting)}")
    if seen.failed:
        parts.append(f"not started: {', '.join(seen.failed)}")
    if seen.refused and not seen.starting:
        parts.append("the autoscaler cannot fit it now")
    return "; ".join(parts)


def too_late(request: GangRequest, seen: Scheduling, wait_s: float, state: str) -> str:
    """Return the message of a wait that timed out; `state` is Ray's state of the placement group."""
    return (
        f"no room within {wait_s:.0f} s ({state}): the run needs {request}; the cluster has\n"
        f"{seen.table(request.kind)}\n{waiting(request, seen)}\nwait longer with --wait, {REQUEST_LESS}"
    )


def wait_for_nodes(group: PlacementGroup, request: GangRequest, wait_s: float, elastic: bool) -> None:
    """Wait until the group has its nodes, and report periodically what is missing.

    WorkloadError if the group can never be placed, or was not placed within `wait_s` seconds.
    """
    ready = group.ready()
    began = time.monotonic()
    pause = min(FIRST_REPORT_S, wait_s)
    while not ray.wait([ready], timeout=pause)[0]:
        seen = read(request.kind, group.id.hex())
        if reason := never(request, seen, elastic):
            raise WorkloadError(reason)
        waited = time.monotonic() - began
        if waited >= wait_s:
            state = placement_group_table(group)["stats"]["scheduling_state"]
            raise WorkloadError(too_late(request, seen, wait_s, state))
        emit("waiting", text=waiting(request, seen), seconds=round(waited))
        pause = min(NEXT_REPORT_S, wait_s - waited)


def read(kind: str, group_id: str) -> Scheduling:
    """Read the nodes and the autoscaler's state from Ray; `group_id` is the placement group's, in hex."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]  # generated

    free_of: Callable[[], dict[str, dict[str, float]]] = ray._private.state.available_resources_per_node
    nodes_of: Callable[[], list[dict[str, Any]]] = ray.nodes  # both untyped in Ray
    free = free_of()
    nodes = [
        Node(node["NodeManagerAddress"], node["Resources"].get(kind, 0), free.get(node["NodeID"], {}).get(kind, 0))
        for node in nodes_of()
        if node["Alive"]
    ]
    config: Any = ray._private.state.state.get_cluster_config()
    status: Any = GetClusterStatusReply()  # remains empty without an autoscaler
    status.ParseFromString(GcsClient(ray.get_runtime_context().gcs_address).get_cluster_status(timeout_s=10))
    return autoscaling(status, config, nodes, kind, group_id)


def autoscaling(status: Any, config: Any, nodes: list[Node], kind: str, group_id: str) -> Scheduling:
    """Return the scheduling state in Ray's messages GetClusterStatusReply and ClusterConfig (autoscaler.proto)."""
    state = status.autoscaling_state
    groups = None
    if config is not None and config.node_group_configs:
        groups = [
            # Ray's -1 is "no limit"
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
