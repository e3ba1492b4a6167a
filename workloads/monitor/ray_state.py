"""State of the cluster as Ray keeps it: nodes, jobs, actors, placement groups, and why pending demands wait.

Ray's state is read in its own messages: GetClusterStatusReply has nodes and demands at once (autoscaler.proto, 2.60),
also without an autoscaler.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray

from workloads.gang.placement import autoscaling
from workloads.hardware.nic import natural
from workloads.monitor.snapshot import (
    DEAD,
    DRAINING,
    IDLE,
    RUNNING,
    ActorClass,
    Amount,
    Demand,
    JobRow,
    NodeState,
    PlacementGroupState,
)

HEAD = "node:__internal_head__"
ENDED_JOBS = 20  # of all that ended; Ray keeps every job
OWN_ACTORS = ("NodeProbe", "JobSupervisor")
"""Actors of the monitor, and of Ray for each job."""
_STATES = {"RUNNING": RUNNING, "IDLE": IDLE, "DRAINING": DRAINING, "DEAD": DEAD}


def read_status(gcs_client: Any) -> Any:
    """Return Ray's message GetClusterStatusReply."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]  # generated

    status: Any = GetClusterStatusReply()
    status.ParseFromString(gcs_client.get_cluster_status(timeout_s=10))
    return status


def nodes_of(status: Any) -> list[NodeState]:
    """Return the nodes that Ray knows, the head first, without readings. Dead ones stay known for long."""
    used = in_use(status)
    nodes = []
    for node in status.cluster_resource_state.node_states:
        total, free = node.total_resources, node.available_resources
        name, state = node.node_id.hex(), _state(node)
        head = HEAD in total
        if state in (RUNNING, IDLE):
            # To Ray, a node with a probe is never idle; the head never is.
            state = RUNNING if head or name in used else IDLE
        amounts = {
            field: Amount(used=max(0, round(total[kind] - free[kind], 4)), total=total[kind])
            if kind in total
            else Amount(used=0, total=0)
            for field, kind in (("cpus", "CPU"), ("gpus", "GPU"))
        }
        nodes.append(
            NodeState(
                id=name,
                address=node.node_ip_address,
                role="head" if head else "worker",
                group=node.ray_node_type_name,
                state=state,
                idle_s=node.idle_duration_ms / 1000 or None,
                **amounts,
            )
        )
    return sorted(nodes, key=lambda node: (node.role, natural(node.address)))


def in_use(status: Any) -> frozenset[str]:
    """Return the IDs of the nodes some of whose resources are in use."""
    return frozenset(
        node.node_id.hex()
        for node in status.cluster_resource_state.node_states
        if any(node.available_resources[name] < total for name, total in node.total_resources.items())
    )


def demands_of(status: Any, config: Any) -> tuple[list[Demand], list[str], list[str]]:
    """Return the pending demands, the nodes that are starting, and why others did not start.

    Args:
        status: Ray's message GetClusterStatusReply.
        config: Ray's message ClusterConfig, which has the autoscaler's node groups; None without an autoscaler.
    """
    state, resources = status.autoscaling_state, status.cluster_resource_state
    scaling = autoscaling(status, None, [], "", "")
    alive = [node for node in resources.node_states if _state(node) not in (DEAD, DRAINING)]
    refused = {_key(request.resources_bundle) for request in state.infeasible_resource_requests}
    refused_groups = {group.details for group in state.infeasible_gang_resource_requests}
    demands: list[Demand] = []

    def why(bundles: list[dict[str, float]], refused: bool) -> str:
        hardest = min(bundles, key=lambda bundle: sum(_fits(bundle, node.total_resources) for node in alive))
        able = [node for node in alive if _fits(hardest, node.total_resources)]
        addable = (
            [group.name for group in config.node_group_configs if _fits(hardest, group.resources)] if config else []
        )
        if refused:
            return f"infeasible: no node group of the autoscaler fits {words(hardest)} within its maximum"
        if scaling.starting:
            return f"waiting for nodes: {', '.join(scaling.starting)} starting"
        if scaling.failed:
            return f"waiting for nodes that did not start: {', '.join(scaling.failed)}"
        if able:
            free = sum(_fits(hardest, node.available_resources) for node in able)
            return f"waiting for free resources: {free} of {len(able)} nodes that fit {words(hardest)} have them free"
        if addable:
            return f"waiting for the autoscaler to add nodes of {', '.join(addable)}"
        most = {name: max((node.total_resources.get(name, 0) for node in alive), default=0) for name in hardest}
        return f"infeasible: no node has {words(hardest)}; the most on any node: {words(most)}"

    for pending in resources.pending_resource_requests:
        bundle = dict(pending.request.resources_bundle)
        # A placement group is a demand of its own. Demands for resources inside of it wait for the group.
        if not any("_group_" in name for name in bundle):
            demands.append(Demand(what=words(bundle), count=pending.count, why=why([bundle], _key(bundle) in refused)))
    for gang in resources.pending_gang_resource_requests:
        requests = [request for selector in gang.bundle_selectors for request in selector.resource_requests]
        bundles = [dict(request.resources_bundle) for request in requests or gang.requests] or [{}]
        name, _, strategy = gang.details.partition(":")
        what = f"placement group {name[:8]} {strategy.partition('|')[0]}: {bundle_words(bundles)}"
        demands.append(Demand(what=what, count=1, why=why(bundles, gang.details in refused_groups)))
    return demands, scaling.starting, scaling.failed


def words(bundle: Mapping[str, float]) -> str:
    """Return `8 GPU, 16 CPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(bundle.items(), key=_gpu_first)) or "nothing"


def bundle_words(bundles: Iterable[Mapping[str, float]]) -> str:
    """Return `2 × {8 GPU, 16 CPU}`."""
    counted = Counter(words(bundle) for bundle in bundles)
    return ", ".join(f"{n} × {{{text}}}" for text, n in counted.items())


def read_actors() -> list[ActorClass]:
    """Return the actors by class and state, without the monitor's and Ray's own."""
    table: dict[str, dict[str, Any]] = ray._private.state.state.actor_table(None)
    actors: dict[str, Counter[str]] = {}
    for actor in table.values():
        if (name := actor["ActorClassName"]) not in OWN_ACTORS:
            actors.setdefault(name, Counter())[actor["State"]] += 1
    return [ActorClass(name=name, states=dict(sorted(states.items()))) for name, states in sorted(actors.items())]


def read_groups() -> list[PlacementGroupState]:
    """Return the placement groups that exist."""
    reasons = {
        "INFEASIBLE": "no node fits a bundle now",
        "NO_RESOURCES": "the nodes that fit are busy, or too few",
        "QUEUED": "queued",
    }
    table_of: Callable[[], dict[str, dict[str, Any]]] = ray._private.state.state.placement_group_table  # untyped in Ray
    return [
        PlacementGroupState(
            id=group["placement_group_id"],
            name=group["name"],
            strategy=group["strategy"],
            state=group["state"],
            bundles=bundle_words(group["bundles"].values()),
            why=reasons.get(group["stats"]["scheduling_state"], "") if group["state"] != "CREATED" else "",
        )
        for group in table_of().values()
        if group["state"] != "REMOVED"
    ]


def read_jobs(gcs_client: Any) -> list[JobRow]:
    """Return the submitted jobs, newest first, without monitors."""
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    jobs: dict[str, Any] = asyncio.run(JobInfoStorageClient(gcs_client).get_all_jobs(timeout=10))
    rows = [
        JobRow(
            id=name,
            workload=(job.metadata or {}).get("workload", ""),
            status=job.status.value,
            started=job.start_time / 1000 if job.start_time else None,
            ended=job.end_time / 1000 if job.end_time else None,
            message="" if job.status.value == "RUNNING" else (job.message or "").strip()[:500],
        )
        for name, job in jobs.items()
    ]
    rows = sorted((row for row in rows if row.workload != "monitor"), key=lambda row: row.started or 0, reverse=True)
    return [row for row in rows if row.ended is None] + [row for row in rows if row.ended is not None][:ENDED_JOBS]


def _state(node: Any) -> str:
    """Return the state of a node in Ray's message NodeState."""
    from ray.core.generated.autoscaler_pb2 import NodeStatus  # type: ignore[attr-defined]  # generated

    return _STATES.get(NodeStatus.Name(node.status), RUNNING)


def _fits(bundle: Mapping[str, float], amounts: Mapping[str, float]) -> bool:
    return all(name in amounts and amounts[name] >= amount for name, amount in bundle.items())


def _key(bundle: Mapping[str, float]) -> frozenset[tuple[str, float]]:
    return frozenset(bundle.items())


def _gpu_first(item: tuple[str, float]) -> tuple[bool, str]:
    return item[0] != "GPU", item[0]
