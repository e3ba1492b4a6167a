"""Placement of a gang: whether it can ever fit, the reason why it waits, and the reservation of its nodes.

Combines the state of Ray's scheduler and of its autoscaler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Event
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from workloads.exits import WorkloadError
from workloads.results.events import emit

FIRST_REPORT_S, NEXT_REPORT_S = 2, 15
"""Seconds until the first report of a wait, and between reports."""
GROUP = "ray.io/node-group"
LABELS = ("ray.io/availability-zone", GROUP, *(f"rdma-ray/topology-{level}" for level in range(1, 10)))
"""Labels of Ray nodes that tell which nodes are close to each other, the widest first.

KubeRay passes the group of a pod, and its zone if the pod has that label (ray: _private/resource_and_label_spec.py,
2.60). An init container of the stack reads the others from the pod's Kubernetes node (infra/kubernetes/init_pod.py).
"""

OTHER_GROUP = "other-group"
"""Group of nodes with other GPUs, which a gang never gets (infra/catalog/names.py)."""
NOT_OTHERS = {GROUP: f"!{OTHER_GROUP}"}
"""Selector of a gang's nodes. A node without the label is one of them (Ray docs, scheduling/labels, read 2026-11)."""


@dataclass(frozen=True)
class GangRequest:
    """`count` bundles of `amount` GPUs or CPUs (`kind`) all at once, each on a separate node if `spread`."""

    count: int
    kind: str
    amount: float
    spread: bool = True

    def __str__(self) -> str:
        if self.spread:
            return f"{self.count} nodes with {self.amount:g} free {self.kind} each"
        return f"{self.count} workers with {self.amount:g} free {self.kind} each"

    @property
    def less(self) -> str:
        """The advice for a request that is too large."""
        options = "--nodes and --per-node" if self.spread else "--workers"
        return f"request less with {options}, or stop the jobs that hold them: rdma-ray list"

    def fits(self, amount: float) -> int:
        """Return how many bundles fit on a node with this amount."""
        return int(amount // self.amount) if not self.spread else int(amount >= self.amount)


@dataclass(frozen=True)
class LiveNode:
    """A live node: its number of GPUs or CPUs, and how many of them are free."""

    address: str
    total: float
    free: float


@dataclass(frozen=True)
class NodeGroup:
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

    nodes: list[LiveNode]
    groups: list[NodeGroup] | None
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
    fitting = sum(request.fits(node.total) for node in seen.nodes)
    if not elastic:
        if fitting >= request.count:
            return None
        table = seen.table(request.kind)
        return f"these nodes can never fit: the run needs {request}; the cluster has\n{table}\n{request.less}"
    able = [group for group in seen.groups or () if request.fits(group.amount)]
    if seen.groups is None or any(group.most is None for group in able):
        return None
    most = max(fitting, sum((group.most or 0) * request.fits(group.amount) for group in able))
    if most >= request.count:
        return None
    kinds = ", ".join(f"{group.most} of {group.name} with {group.amount:g} {request.kind}" for group in seen.groups)
    noun, option = ("nodes", "--nodes") if request.spread else ("workers", "--workers")
    return (
        f"the autoscaler can never add that many: the run needs {request}, and at most {most} such {noun} are"
        f" possible ({kinds or 'no node group'}): use {option} {most}, or raise nodes.max in the stack file"
    )


def waiting(request: GangRequest, seen: Scheduling) -> str:
    """Return what is missing now, in one line."""
    ready = sum(request.fits(node.free) for node in seen.nodes)
    busy = [node for node in seen.nodes if request.fits(node.free) < request.fits(node.total)]
    parts = [f"{min(ready, request.count)} of {request} ready"]
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
        f"{seen.table(request.kind)}\n{waiting(request, seen)}\nwait longer with --wait, {request.less}"
    )


@dataclass(frozen=True)
class Spot:
    """Node of a gang, and its bundle in the placement group."""

    bundle: int
    node_id: str
    address: str
    host: str

    def __str__(self) -> str:
        return f"{self.host} ({self.address})"


class Reservation:
    """Nodes of one gang, reserved all or none: a partial gang would hold nodes while it waits. `close` frees them.

    `spots` are the nodes in the order of their ranks.
    """

    def __init__(self, nodes: int, amount: int, use_gpu: bool, wait_s: float, elastic: bool) -> None:
        """Reserve this many GPUs, or CPUs, on each of the nodes. See `wait_for_nodes` for errors."""
        self.request = request = GangRequest(nodes, "GPU" if use_gpu else "CPU", float(amount))
        bundles, selectors = [{request.kind: request.amount}] * nodes, [NOT_OTHERS] * nodes
        self.group = placement_group(bundles, strategy="STRICT_SPREAD", bundle_label_selector=selectors)
        try:
            wait_for_nodes(self.group, request, wait_s, elastic)
            self.spots = spots_of(placement_group_table(self.group)["bundles_to_node_id"], all_nodes())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        remove_placement_group(self.group)


def spots_of(placed: Mapping[int, str], nodes: Sequence[Mapping[str, Any]]) -> list[Spot]:
    """Return the nodes of a placement group: by the labels of their place, then by numeric address.

    Args:
        placed: ID of the node of each bundle.
        nodes: Ray's nodes, as `ray.nodes()` returns them.
    """
    by_id = {node["NodeID"]: node for node in nodes}

    def order(spot: Spot) -> tuple[Any, ...]:
        labels, address = by_id[spot.node_id].get("Labels") or {}, ip_address(spot.address)
        return (*(labels.get(name, "") for name in LABELS), address.version, int(address), spot.node_id)

    found = [
        Spot(bundle, node_id, by_id[node_id]["NodeManagerAddress"], by_id[node_id]["NodeManagerHostname"])
        for bundle, node_id in placed.items()
    ]
    return sorted(found, key=order)


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


def report_waits(request: GangRequest, over: Event) -> None:
    """Report periodically what a gang is waiting for whose placement group is another library's, until `over`.

    Ray Train has a group of as many bundles as workers.
    """
    table_of: Callable[[], dict[str, dict[str, Any]]] = placement_group_table  # untyped in Ray
    began, pause = time.monotonic(), float(FIRST_REPORT_S)
    while not over.wait(pause):
        for group_id, group in table_of().items():
            if group["state"] == "PENDING" and len(group["bundles"]) == request.count:
                seconds = round(time.monotonic() - began)
                emit("waiting", text=waiting(request, read(request.kind, group_id)), seconds=seconds)
        pause = NEXT_REPORT_S


def read(kind: str, group_id: str | None = None) -> Scheduling:
    """Read the nodes and the autoscaler's state from Ray, without what a gang never gets.

    `group_id` is the placement group's, in hex, if any.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]  # generated

    free_of: Callable[[], dict[str, dict[str, float]]] = ray._private.state.available_resources_per_node
    free = free_of()  # untyped in Ray
    nodes = [
        LiveNode(node["NodeManagerAddress"], node["Resources"].get(kind, 0), free.get(node["NodeID"], {}).get(kind, 0))
        for node in usable_nodes()
    ]
    config: Any = ray._private.state.state.get_cluster_config()
    status: Any = GetClusterStatusReply()  # remains empty without an autoscaler
    status.ParseFromString(GcsClient(ray.get_runtime_context().gcs_address).get_cluster_status(timeout_s=10))
    return autoscaling(status, config, nodes, kind, group_id)


def all_nodes() -> list[dict[str, Any]]:
    """Return Ray's nodes, including dead ones."""
    nodes_of: Callable[[], list[dict[str, Any]]] = ray.nodes  # untyped in Ray
    return nodes_of()


def usable_nodes() -> list[dict[str, Any]]:
    """Return Ray's live nodes that a gang may get, and the head."""
    alive = (node for node in all_nodes() if node["Alive"])
    return [node for node in alive if (node.get("Labels") or {}).get(GROUP) != OTHER_GROUP]


def autoscaling(status: Any, config: Any, nodes: list[LiveNode], kind: str, group_id: str | None) -> Scheduling:
    """Return the scheduling state in Ray's messages GetClusterStatusReply and ClusterConfig (autoscaler.proto)."""
    state = status.autoscaling_state
    groups = None
    if config is not None and config.node_group_configs:
        groups = [
            # Ray's -1 is "no limit"
            NodeGroup(group.name, group.resources.get(kind, 0), None if group.max_count < 0 else group.max_count)
            for group in config.node_group_configs
            if group.name != OTHER_GROUP
        ]
    return Scheduling(
        nodes=nodes,
        groups=groups,
        starting=sorted(
            [f"{found.ray_node_type_name} {found.ip_address}".strip() for found in state.pending_instances]
            + [f"{found.count} of {found.ray_node_type_name}" for found in state.pending_instance_requests]
        ),
        failed=sorted({f"{found.ray_node_type_name}: {found.reason}" for found in state.failed_instance_requests}),
        refused=group_id is not None
        and any(group_id in found.details for found in state.infeasible_gang_resource_requests),
    )
