"""Cluster autoscaler: pools grow for pods that the real scheduler cannot place, and empty nodes are removed.

Replaces GKE's autoscaler and the release cluster-autoscaler on EKS (kubernetes/autoscaler: cluster-autoscaler, 1.35;
GKE docs, cluster autoscaler, read 2026-11). Unlike these, it removes only empty nodes and never evicts pods. A pool
gets its machines after a delay, or is out of stock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rehearsal.cluster.controllers import compute_class
from rehearsal.cluster.controllers.admission import CONSUMES
from rehearsal.cluster.controllers.devices import GPU, expected
from rehearsal.cluster.controllers.fleet import Fleet, busy
from rehearsal.cluster.controllers.nodes import pool_of, template
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.scheduling import CandidateNode, name_of, of_daemon_set, unschedulable
from rehearsal.cluster.controllers.snapshot import Context, Snapshot, condition
from rehearsal.engine.kind import Json

ACCELERATORS = ("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")
"""Labels by which the autoscaler expects GPUs on a node (kubernetes/autoscaler: cloudprovider/aws README and
cloudprovider/gce; unverified, 2026-11)."""
CHART = "cluster-autoscaler"


@dataclass
class Growth:
    """Pending machines of a pool: `count` at the time `due`, requested at `asked`, for `pods`."""

    pool: Pool
    asked: float
    due: float
    places: list[CandidateNode] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of machines."""
        return len(self.places)


class Autoscaler:
    """Scales the autoscaled pools up and down."""

    def __init__(self, context: Context, fleet: Fleet) -> None:
        self._context = context
        self._fleet = fleet
        self._coming: list[Growth] = []
        self._refused: dict[str, float] = {}
        self._empty_since: dict[str, float] = {}
        self.booked: dict[str, float] = {}
        """Time until which an empty node stays: nodes of a ProvisioningRequest."""
        self.out_of_stock: set[str] = set()
        """Names of the pools for which the cloud has no machine now."""

    def reconcile(self, snapshot: Snapshot) -> None:
        """Check pending pods, due machines, and empty nodes."""
        if not runs(snapshot):
            self._coming = []
            return
        kept = self._plan(snapshot)
        self._deliver(snapshot)
        self._shrink(snapshot, kept)

    def _plan(self, snapshot: Snapshot) -> set[str]:
        """Plan machines for the pods that fit on no node; return the nodes that pending pods will use."""
        pools = {pool.name: pool for pool in snapshot.pools}
        self._coming = [growth for growth in self._coming if pools.get(growth.pool.name) is not None]
        waiting = [pod for pod in snapshot.pods if unschedulable(pod) and not of_daemon_set(pod) and not consumer(pod)]
        places = [
            self._as_expected(snapshot, place, pools[place.pool]) for place in snapshot.places if place.pool in pools
        ]
        upcoming = [
            template(growth.pool, place.name, expected(growth.pool, snapshot.networks))
            for growth in self._coming
            for place in growth.places
        ]
        new = plan(
            waiting,
            [*places, *upcoming],
            [pool for pool in snapshot.pools if self._may_grow(snapshot, pool)],
            {pool.name: self._room(snapshot, pool) for pool in snapshot.pools},
            {pool.name: expected(pool, snapshot.networks) for pool in snapshot.pools},
            {body["metadata"]["name"]: body for body in snapshot.custom(compute_class.KIND, compute_class.API)},
        )
        for growth in new:
            growth.asked, growth.due = snapshot.now, snapshot.now + self._context.delays.grant
            pool, pending = growth.pool.name, len(growth.pods)
            self._context.report("NodesWanted", pool=pool, count=growth.count, pending=pending)
        self._coming += new
        needed = {name_of(pod) for pod in waiting}
        return {place.name for place in places if needed & set(place.pods)}

    def _as_expected(self, snapshot: Snapshot, place: CandidateNode, pool: Pool) -> CandidateNode:
        """Treat a node as upcoming while it starts, or while it lacks the GPUs that its label announces."""
        needed = {"cpu", GPU} if any(label in pool.labels for label in ACCELERATORS) else {"cpu"}
        if needed <= place.offers:
            return place
        return template(pool, place.name, expected(pool, snapshot.networks))

    def _deliver(self, snapshot: Snapshot) -> None:
        for growth in [growth for growth in self._coming if growth.due <= snapshot.now]:
            self._coming.remove(growth)
            pool = growth.pool
            if pool.name in self.out_of_stock:
                self._refused[pool.name] = snapshot.now + self._context.delays.refusal
                self._context.report("OutOfStock", pool=pool.name, count=growth.count)
                continue
            if not self._fleet.has_room(pool, growth.count):
                self._refused[pool.name] = snapshot.now + self._context.delays.refusal
                continue
            self.deliver(snapshot, pool, growth.count, snapshot.now - growth.asked)

    def deliver(self, snapshot: Snapshot, pool: Pool, count: int, after_s: float) -> list[str]:
        """Add nodes to a pool; return their names."""
        self._fleet.resize(pool, count)
        return [self._fleet.grant(snapshot, pool, after_s) for _ in range(count)]

    def has(self, pool: Pool, count: int) -> bool:
        """Return whether the cloud has that many machines for a pool now."""
        return pool.name not in self.out_of_stock and self._fleet.has_room(pool, count)

    def _shrink(self, snapshot: Snapshot, kept: set[str]) -> None:
        occupied = {pod["spec"].get("nodeName") for pod in snapshot.pods if busy(pod)}
        there = {its["metadata"]["name"] for its in snapshot.nodes}
        self.booked = {name: until for name, until in self.booked.items() if name in there and until > snapshot.now}
        self._empty_since = {name: since for name, since in self._empty_since.items() if name in there - occupied}
        for its, pool in list(_own(snapshot)):
            name = its["metadata"]["name"]
            starts = condition(its, "Ready") != "True"
            if starts or name in occupied or name in kept or name in self.booked:
                self._empty_since.pop(name, None)
                continue
            since = self._empty_since.setdefault(name, snapshot.now)
            count = sum(pool_of(other) == pool.name for other in snapshot.nodes)
            if snapshot.now - since < self._context.delays.idle or count <= (pool.least or 0) or pool.wanted < count:
                continue
            if self._fleet.vacate(snapshot, its):
                self._fleet.resize(pool, -1)
                self._fleet.take(snapshot, its, f"empty for {snapshot.now - since:.0f} s")
                # The sizes of this round are outdated; wait for the next one.
                return
            del self._empty_since[name]

    def _may_grow(self, snapshot: Snapshot, pool: Pool) -> bool:
        return pool.autoscaled and not pool.queued and self._refused.get(pool.name, 0.0) <= snapshot.now

    def _room(self, snapshot: Snapshot, pool: Pool) -> int:
        there = sum(pool_of(its) == pool.name for its in snapshot.nodes)
        coming = sum(growth.count for growth in self._coming if growth.pool.name == pool.name)
        return pool.most - max(there, pool.wanted) - coming


def plan(
    waiting: Sequence[Json],
    places: Sequence[CandidateNode],
    pools: Sequence[Pool],
    room: Mapping[str, int],
    devices: Mapping[str, Mapping[str, int]],
    classes: Mapping[str, Json],
) -> list[Growth]:
    """Return which pools grow, and by how much, for pending pods. Pure, except that `places` count the pods.

    Pods use existing nodes first, then machines planned for other pods, then a new machine of the first pool in their
    order that has room and accepts them. Devices that a pod claims are known of a running node, and of an empty pool
    where GKE runs the driver (GoogleCloudPlatform/cluster-autoscaler: gke/dynamicresources, 7d25050, 2026-08-21).

    Args:
        room: nodes that a pool may still get.
        devices: devices expected on a pool's node.
        classes: the ComputeClasses by name.
    """
    growths: dict[str, Growth] = {}
    known = {place.pool for place in places} | {pool.name for pool in pools if pool.managed_dranet}
    for pod in waiting:
        planned = [place for growth in growths.values() for place in growth.places]
        place = next((place for place in [*places, *planned] if place.why_not(pod) is None), None)
        for pool in compute_class.order(pod, pools, classes) if place is None else ():
            count = growths[pool.name].count if pool.name in growths else 0
            fresh = template(pool, f"new-{pool.name}-{count}", devices[pool.name])
            unknown = pod["spec"].get("resourceClaims") and pool.name not in known
            if count < room[pool.name] and not unknown and fresh.why_not(pod) is None:
                growths.setdefault(pool.name, Growth(pool, 0.0, 0.0)).places.append(fresh)
                place = fresh
                break
        if place is None:
            continue
        for growth in growths.values():
            if place in growth.places:
                growth.pods.append(name_of(pod))
        place.take(pod)
    return list(growths.values())


def runs(snapshot: Snapshot) -> bool:
    """Return whether there is an autoscaler: GKE's, or on EKS a release configured for this cluster."""
    if snapshot.cluster is None:
        return False
    if snapshot.cluster.cloud == "gke":
        return True
    values = snapshot.charts.get(CHART) or {}
    return (values.get("autoDiscovery") or {}).get("clusterName") == snapshot.cluster.name


def consumer(pod: Json) -> bool:
    """Return whether a pod uses the nodes of a ProvisioningRequest."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in CONSUMES)


def _own(snapshot: Snapshot) -> Iterator[tuple[Json, Pool]]:
    pools = {pool.name: pool for pool in snapshot.pools if pool.autoscaled}
    for its in snapshot.nodes:
        pool = pools.get(str(pool_of(its)))
        if pool is not None:
            yield its, pool
