"""The cluster autoscaler: pools grow for pods that the real scheduler finds no node for, and empty nodes go.

Stands in for GKE's own autoscaler and for the release cluster-autoscaler on EKS (kubernetes/autoscaler:
cluster-autoscaler, 1.35; GKE docs, cluster autoscaler, read 2026-11). It knows less than they do: it takes empty nodes
only, and never moves pods to make one empty. A pool in need gets its machines after a delay, or is out of stock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rehearsal.clouds.kind import Json
from rehearsal.cluster.landlord import compute_class
from rehearsal.cluster.landlord.devices import GPU, expected
from rehearsal.cluster.landlord.events import NodesWanted, OutOfStock
from rehearsal.cluster.landlord.fitting import Place, name_of, unschedulable
from rehearsal.cluster.landlord.fleet import Fleet, busy
from rehearsal.cluster.landlord.nodes import pool_of, template
from rehearsal.cluster.landlord.pools import Pool
from rehearsal.cluster.landlord.scene import Desk, Scene, condition

CONSUMES = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
"""Annotations of pods that use the nodes of a ProvisioningRequest: no pool grows for them (kueue 0.19.2: pkg/
controller/admissionchecks/provisioning; the older name until autoscaler 1.30)."""
ACCELERATORS = ("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")
"""Labels by which the autoscaler knows that a node will have GPUs (kubernetes/autoscaler: cloudprovider/aws README and
cloudprovider/gce; from memory, 2026-11)."""
CHART = "cluster-autoscaler"


@dataclass
class Growth:
    """Machines that a pool was promised: `count` at the time `due`, wanted at `asked`, for `pods`."""

    pool: Pool
    asked: float
    due: float
    places: list[Place] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many machines."""
        return len(self.places)


class Autoscaler:
    """Grows and shrinks the pools that may be."""

    name = "autoscaler"

    def __init__(self, desk: Desk, fleet: Fleet) -> None:
        self._desk = desk
        self._fleet = fleet
        self._coming: list[Growth] = []
        self._refused: dict[str, float] = {}
        self._empty_since: dict[str, float] = {}
        self.booked: dict[str, float] = {}
        """Until when a node stays although it is empty: those of a ProvisioningRequest."""
        self.out_of_stock: set[str] = set()
        """The names of pools for which the cloud has no machine now."""

    def step(self, scene: Scene) -> None:
        """Look at the pods that wait, at what is due, and at nodes without pods."""
        if not runs(scene):
            self._coming = []
            return
        kept = self._plan(scene)
        self._deliver(scene)
        self._shrink(scene, kept)

    def _plan(self, scene: Scene) -> set[str]:
        """Promise machines for the pods that fit nowhere; returns the nodes that waiting pods are about to get."""
        pools = {pool.name: pool for pool in scene.pools}
        self._coming = [growth for growth in self._coming if pools.get(growth.pool.name) is not None]
        waiting = [pod for pod in scene.pods if unschedulable(pod) and not consumer(pod)]
        places = [self._as_expected(scene, place, pools[place.pool]) for place in scene.places if place.pool in pools]
        upcoming = [
            template(growth.pool, place.name, expected(growth.pool, scene.networks))
            for growth in self._coming
            for place in growth.places
        ]
        new = plan(
            waiting,
            [*places, *upcoming],
            [pool for pool in scene.pools if self._may_grow(scene, pool)],
            {pool.name: self._room(scene, pool) for pool in scene.pools},
            {pool.name: expected(pool, scene.networks) for pool in scene.pools},
            {body["metadata"]["name"]: body for body in scene.custom(compute_class.KIND, compute_class.API)},
        )
        for growth in new:
            growth.asked, growth.due = scene.now, scene.now + self._desk.delays.grant
            self._desk.tell(NodesWanted(pool=growth.pool.name, count=growth.count, pods=tuple(growth.pods)))
        self._coming += new
        needed = {name_of(pod) for pod in waiting}
        return {place.name for place in places if needed & set(place.pods)}

    def _as_expected(self, scene: Scene, place: Place, pool: Pool) -> Place:
        """A node that starts, or is to have GPUs by its label and offers none yet, counts as one still to come."""
        needed = {"cpu", GPU} if any(label in pool.labels for label in ACCELERATORS) else {"cpu"}
        if needed <= place.offers:
            return place
        return template(pool, place.name, expected(pool, scene.networks))

    def _deliver(self, scene: Scene) -> None:
        for growth in [growth for growth in self._coming if growth.due <= scene.now]:
            self._coming.remove(growth)
            pool = growth.pool
            if pool.name in self.out_of_stock:
                self._refused[pool.name] = scene.now + self._desk.delays.refusal
                self._desk.tell(OutOfStock(pool=pool.name, count=growth.count))
                continue
            if not self._fleet.has_room(pool, growth.count):
                self._refused[pool.name] = scene.now + self._desk.delays.refusal
                continue
            self.deliver(scene, pool, growth.count, scene.now - growth.asked)

    def deliver(self, scene: Scene, pool: Pool, count: int, after_s: float) -> list[str]:
        """Make a pool larger by some nodes; returns their names."""
        self._fleet.resize(pool, count)
        return [self._fleet.grant(scene, pool, after_s) for _ in range(count)]

    def has(self, pool: Pool, count: int) -> bool:
        """Whether the cloud has so many machines for a pool now."""
        return pool.name not in self.out_of_stock and self._fleet.has_room(pool, count)

    def _shrink(self, scene: Scene, kept: set[str]) -> None:
        occupied = {pod["spec"].get("nodeName") for pod in scene.pods if busy(pod)}
        there = {its["metadata"]["name"] for its in scene.nodes}
        self.booked = {name: until for name, until in self.booked.items() if name in there and until > scene.now}
        self._empty_since = {name: since for name, since in self._empty_since.items() if name in there - occupied}
        for its, pool in list(_own(scene)):
            name = its["metadata"]["name"]
            starts = condition(its, "Ready") != "True"
            if starts or name in occupied or name in kept or name in self.booked:
                self._empty_since.pop(name, None)
                continue
            since = self._empty_since.setdefault(name, scene.now)
            count = sum(pool_of(other) == pool.name for other in scene.nodes)
            if scene.now - since < self._desk.delays.idle or count <= (pool.least or 0) or pool.wanted < count:
                continue
            if self._fleet.vacate(scene, its):
                self._fleet.resize(pool, -1)
                self._fleet.take(scene, its, f"empty for {scene.now - since:.0f} s")
                # The sizes of this round are out of date; there is a next one.
                return
            del self._empty_since[name]

    def _may_grow(self, scene: Scene, pool: Pool) -> bool:
        return pool.autoscaled and not pool.queued and self._refused.get(pool.name, 0.0) <= scene.now

    def _room(self, scene: Scene, pool: Pool) -> int:
        there = sum(pool_of(its) == pool.name for its in scene.nodes)
        coming = sum(growth.count for growth in self._coming if growth.pool.name == pool.name)
        return pool.most - max(there, pool.wanted) - coming


def plan(
    waiting: Sequence[Json],
    places: Sequence[Place],
    pools: Sequence[Pool],
    room: Mapping[str, int],
    devices: Mapping[str, Mapping[str, int]],
    classes: Mapping[str, Json],
) -> list[Growth]:
    """Which pools are to grow, by how much, for pods that wait. Pure but for `places`, on which pods are counted.

    Pods go where they fit already; then on machines planned for others; then each on a new machine of the first pool in
    its order that has room and would take it. `room` is nodes that a pool may still get, `devices` what a node of it is
    expected to offer, `classes` the ComputeClasses by name.
    """
    growths: dict[str, Growth] = {}
    for pod in waiting:
        planned = [place for growth in growths.values() for place in growth.places]
        place = next((place for place in [*places, *planned] if place.why_not(pod) is None), None)
        if place is None:
            found = _new_place(pod, pools, room, devices, classes, growths)
            if found is None:
                continue
            pool, place = found
            growths.setdefault(pool.name, Growth(pool, 0.0, 0.0)).places.append(place)
        for growth in growths.values():
            if place in growth.places:
                growth.pods.append(name_of(pod))
        place.take(pod)
    return list(growths.values())


def _new_place(
    pod: Json,
    pools: Sequence[Pool],
    room: Mapping[str, int],
    devices: Mapping[str, Mapping[str, int]],
    classes: Mapping[str, Json],
    growths: Mapping[str, Growth],
) -> tuple[Pool, Place] | None:
    for pool in compute_class.order(pod, pools, classes):
        planned = growths[pool.name].count if pool.name in growths else 0
        place = template(pool, f"new-{pool.name}-{planned}", devices[pool.name])
        if planned < room[pool.name] and place.why_not(pod) is None:
            return pool, place
    return None


def runs(scene: Scene) -> bool:
    """Whether there is an autoscaler: GKE's own, or on EKS a release that was told to look after this cluster."""
    if scene.cluster is None:
        return False
    if scene.cluster.cloud == "gke":
        return True
    values = scene.charts.get(CHART) or {}
    return (values.get("autoDiscovery") or {}).get("clusterName") == scene.cluster.name


def consumer(pod: Json) -> bool:
    """Whether a pod uses the nodes of a ProvisioningRequest."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in CONSUMES)


def _own(scene: Scene) -> Iterator[tuple[Json, Pool]]:
    pools = {pool.name: pool for pool in scene.pools if pool.autoscaled}
    for its in scene.nodes:
        pool = pools.get(str(pool_of(its)))
        if pool is not None:
            yield its, pool
