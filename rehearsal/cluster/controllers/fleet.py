"""Nodes of the pools: as many as the cloud's size of each pool, with their own names and numbers.

Replaces the managed instance groups of Google Cloud and the Auto Scaling groups of AWS: when the autoscaler or a user
changes the size of a pool in the cloud state, nodes are added, or empty ones removed. A deleted pool takes its nodes
with it (GKE docs, node pools; EKS docs, managed node groups).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rehearsal.cluster.controllers.devices import offered
from rehearsal.cluster.controllers.nodes import node, pool_of
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.scheduling import of_daemon_set, over
from rehearsal.cluster.controllers.snapshot import Context, Snapshot, condition
from rehearsal.cluster.real_nodes import RealNodes
from rehearsal.engine.kind import Json
from tools.kubernetes.api import Api, ApiError


class Fleet:
    """Creates and removes nodes, also for the autoscaler and queued provisioning."""

    def __init__(self, context: Context, machines: RealNodes | None = None) -> None:
        self._context = context
        self._machines = machines
        self._numbers: dict[tuple[str, str], int] = {}
        self._coming: dict[str, float] = {}
        self._full: set[str] = set()

    def reconcile(self, snapshot: Snapshot) -> None:
        """Resize each pool to its size in the cloud."""
        pools = {pool.name: pool for pool in snapshot.pools}
        for its in list(snapshot.nodes):
            if str(pool_of(its)) not in pools:
                self.take(snapshot, its, "its pool was deleted")
            else:
                self._welcome(its)
        for pool in snapshot.pools:
            names = _names(snapshot, pool)
            missing = pool.wanted - len(names)
            if missing > 0 and not self.has_room(pool, missing):
                missing = self._room()
            for _ in range(missing):
                self.grant(snapshot, pool, after_s=0.0)
            if pool.wanted < len(names):
                self._shrink(snapshot, pool, len(names) - pool.wanted)

    def has_room(self, pool: Pool, count: int) -> bool:
        """Return whether that many more nodes fit; if not, report it once for each pool."""
        room = self._room()
        if count <= room:
            self._full.discard(pool.name)
            return True
        if pool.name not in self._full:
            self._full.add(pool.name)
            self._context.report("MachineFull", pool=pool.name, count=count, room=room)
        return False

    def _room(self) -> int:
        return sys.maxsize if self._machines is None else self._machines.room()

    def grant(self, snapshot: Snapshot, pool: Pool, after_s: float) -> str:
        """Create a node; return its name."""
        number = self._numbers.get(pool.key, 0) + 1
        taken = _names(snapshot, pool)
        while pool.node_name(number) in taken:
            number += 1
        self._numbers[pool.key] = number
        name = pool.node_name(number)
        body = node(pool, name, offered(pool, snapshot.networks, snapshot.charts))
        if self._machines is None:
            # kwok simulates its kubelet.
            snapshot.nodes.append(self._context.api.create(body))
        else:
            snapshot.nodes.append(self._machines.start(pool, body))
            self._coming[name] = self._context.now()
        self._context.report("NodeGranted", node=name, pool=pool.name, after_s=after_s)
        return name

    def resize(self, pool: Pool, by: int) -> None:
        """Change the size of a pool in the cloud, as its autoscaler does."""
        with self._context.state.transaction() as view:
            live = view.get(*pool.key)
            if live is not None:
                view.put(*pool.key, pool.resized(live, by))

    def take(self, snapshot: Snapshot, its: Json, why: str) -> None:
        """Remove a node and its pods, as when its machine is deleted."""
        name = its["metadata"]["name"]
        api = self._context.api
        api.delete("v1", "Node", name)
        if self._machines is not None:
            self._machines.stop(name)
        self._coming.pop(name, None)
        snapshot.nodes[:] = [other for other in snapshot.nodes if other["metadata"]["name"] != name]
        # No kubelet is left to end them gracefully.
        for pod in pods_on(snapshot, name):
            _end_at_once(api, pod)
        self._context.report("NodeRemoved", node=name, pool=str(pool_of(its)), why=why)

    def vacate(self, snapshot: Snapshot, its: Json) -> bool:
        """Cordon a node and return whether it is empty. If a pod was scheduled in the meantime, uncordon it."""
        name = its["metadata"]["name"]
        api = self._context.api
        api.patch("v1", "Node", name, None, {"spec": {"unschedulable": True}})
        if not any(busy(pod) for pod in pods_on(snapshot, name)):
            return True
        api.patch("v1", "Node", name, None, {"spec": {"unschedulable": None}})
        return False

    def _welcome(self, its: Json) -> None:
        name = its["metadata"]["name"]
        if name in self._coming and condition(its, "Ready") == "True":
            self._context.report("NodeJoined", node=name, after_s=self._context.now() - self._coming.pop(name))

    def _shrink(self, snapshot: Snapshot, pool: Pool, by: int) -> None:
        """Remove nodes after a pool was made smaller: empty nodes first, then the newest."""
        own = [its for its in reversed(snapshot.nodes) if pool_of(its) == pool.name]
        occupied = {pod["spec"].get("nodeName") for pod in snapshot.pods if busy(pod)}
        for its in sorted(own, key=lambda its: its["metadata"]["name"] in occupied)[:by]:
            self.take(snapshot, its, "the pool was made smaller")


def busy(pod: Json) -> bool:
    """Return whether a pod needs its node."""
    return bool((pod.get("spec") or {}).get("nodeName")) and not over(pod) and not of_daemon_set(pod)


def pods_on(snapshot: Snapshot, name: str) -> Iterable[Json]:
    """Read the pods of a node from the API server."""
    api = snapshot.api
    pods: list[Json] = (
        api.request("GET", api.path("v1", "Pod"), query={"fieldSelector": f"spec.nodeName={name}"}).get("items") or []
    )
    return pods


def _names(snapshot: Snapshot, pool: Pool) -> set[str]:
    return {str(its["metadata"]["name"]) for its in snapshot.nodes if pool_of(its) == pool.name}


def _end_at_once(api: Api, pod: Json) -> None:
    try:
        path = api.path("v1", "Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        api.request("DELETE", path, body={"gracePeriodSeconds": 0})
    except ApiError as problem:
        if problem.status != 404:
            raise
