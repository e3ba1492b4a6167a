"""Ray's placement groups: what waits, what can never fit, who holds the resources, and what a job leaves behind.

Read from the dashboard's State API, so a client needs no Ray. Fields as in ray: util/state/common.py, 2.60.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from infra.catalog.names import NODE_GROUP
from infra.outputs import Nodes
from workloads import untrusted
from workloads.client.api import Job, JobsApi
from workloads.exits import WorkloadError
from workloads.untrusted import MALFORMED

Json = dict[str, Any]
Amounts = Mapping[str, float]
FIRST_LOOK_S, NEXT_LOOK_S = 5, 15
"""Seconds from the start of following a job until the first look at what waits, and between looks."""
SHORT_S = 2  # a group that waits for less is not reported
LOOK_S = 5  # limit of a request
DEVICES = ("CPU", "GPU")
UNKNOWN = "*"  # every other resource of a node that may still come
MOST_LINES, MOST_HOLDERS = 4, 6  # at a time, and in a line
LONGEST_NAME = 80
EXIST = "detail=1&limit=10000&filter_keys=state&filter_predicates=!%3D&filter_values="
GROUPS, ACTORS = f"/api/v0/placement_groups?{EXIST}REMOVED", f"/api/v0/actors?{EXIST}DEAD"
NODES = "/api/v0/nodes?detail=1&limit=10000"
WAITING = ("PENDING", "RESCHEDULING")  # states of a placement group
RAYS_OWN = ("_ray_internal", "SUPERVISOR_ACTOR_RAY_NAMESPACE", "serve")
"""Starts of the namespaces of detached actors of Ray itself and of Ray Serve, which no job owns (ray:
dashboard/modules/job/common.py, serve/_private/constants.py; 2.60)."""
# Compares the ID: another job may use the name again.
ENDER = """import json, ray, sys
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, remove_placement_group
ray.init(log_to_driver=False)
actors, groups = json.loads(sys.argv[1])
for id, name, namespace in actors:
    try:
        actor = ray.get_actor(name, namespace)
    except ValueError:
        continue
    if actor._actor_id.hex() == id:
        ray.kill(actor)
for id in groups:
    remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(id))))
"""


@dataclass(frozen=True)
class Room:
    """Total resources of each live node, and of nodes that may still come: the stack's own, and those of `others`."""

    nodes: list[Amounts]
    more: list[Amounts] = field(default_factory=list)
    others: list[Amounts] = field(default_factory=list)

    @staticmethod
    def of(rows: Iterable[Json], most: Nodes, *, missing: bool = False) -> Room:
        """Return the room on nodes as Ray's State API lists them.

        Args:
            missing: Count also the nodes of a stack of fixed size that are not up now.
        """
        alive = [node for node in rows if node["state"] == "ALIVE"]
        groups = [(node.get("labels") or {}).get(NODE_GROUP) for node in alive if not node["is_head_node"]]
        own = len(groups) - sum(groups.count(other.group) for other in most.others)
        more, others = [], []
        if most.elastic or missing:
            more = _new(most.gpus_per_node, most.cpus_per_node, most.max - own)
            for other in most.others:
                others += _new(other.gpus, other.cpus, other.max - groups.count(other.group))
        return Room([node["resources_total"] for node in alive], more, others)

    def fits(self, shape: Amounts) -> bool:
        """Return whether a node has these resources in total."""
        return any(all(_amount(node, name) >= amount for name, amount in shape.items()) for node in self._all)

    def never(self, shapes: list[Json], infeasible: bool) -> str | None:
        """Return why bundles of these shapes can never fit; None if they can, or if that is unknown.

        Args:
            infeasible: See `is_infeasible`.
        """
        for shape in shapes:
            if not self.fits(shape):
                most = {name: max((_amount(node, name) for node in self._all), default=0) for name in shape}
                return f"no node has {shown([shape])}; the most on a node: {shown([most])}"
        for name, amount in total(shapes).items():
            if amount > (all_have := sum(_amount(node, name) for node in self._all)):
                return f"it needs {amount:g} {name} in all; the nodes have {all_have:g}"
        if infeasible and not self.more and not self.others:
            return "no node has room for all bundles that its strategy puts on one node"
        return None

    @property
    def _all(self) -> list[Amounts]:
        return [*self.nodes, *self.more, *self.others]


def _new(gpus: int, cpus: int, count: int) -> list[Amounts]:
    return [{"CPU": cpus, "GPU": gpus, UNKNOWN: math.inf}] * count


@dataclass(frozen=True)
class Holder:
    """Actor or placement group with CPUs or GPUs: `kind` is actor or placement group; `job` is the ID of its driver.

    Those of an actor in a placement group are the group's.
    """

    kind: str
    id: str
    name: str
    class_name: str
    namespace: str
    job: str
    detached: bool
    amounts: dict[str, float]

    @property
    def outlives_its_job(self) -> bool:
        return self.detached and not self.namespace.startswith(RAYS_OWN)

    def __str__(self) -> str:
        class_name = f" ({self.class_name})" if self.class_name else ""
        return f"{self.kind} {self.name or self.id[:12]}{class_name}: {shown([self.amounts])}"

    def as_json(self) -> Json:
        named = {"kind": self.kind, "name": self.name, "class": self.class_name or None}
        return {**named, "cpus": self.amounts.get("CPU", 0), "gpus": self.amounts.get("GPU", 0)}


def _amount(node: Amounts, name: str) -> float:
    return node.get(name, node.get(UNKNOWN, 0))


def holders(groups: Iterable[Json], actors: Iterable[Json]) -> list[Holder]:
    """Return what of these rows of the State API has CPUs or GPUs."""
    found = []
    for row in groups:
        if row["state"] == "CREATED":
            shapes = shapes_of(row)
            found.append(_holder("placement group", row, row["placement_group_id"], row["creator_job_id"], shapes))
    for row in actors:
        if row["state"] == "ALIVE":
            shapes = [] if row.get("placement_group_id") else [row.get("required_resources") or {}]
            found.append(_holder("actor", row, row["actor_id"], row["job_id"], shapes))
    return [holder for holder in found if holder.amounts]


def shapes_of(group: Json) -> list[Json]:
    """Return the resources of a placement group's bundles."""
    return [bundle["unit_resources"] for bundle in group.get("bundles") or []]


def is_infeasible(group: Json) -> bool:
    """Return whether Ray finds that a group does not fit on its nodes by its strategy, were these free."""
    return (group.get("stats") or {}).get("scheduling_state") == "INFEASIBLE"


def total(shapes: Iterable[Amounts]) -> dict[str, float]:
    """Return the sum of resources."""
    found: Counter[str] = Counter()
    for shape in shapes:
        for name, amount in shape.items():
            found[name] += untrusted.number(amount) or 0  # type: ignore[assignment]
    return dict(found)


def shown(shapes: Iterable[Amounts]) -> str:
    """Return `3 x (1 GPU, 2 CPU); 1 CPU`."""
    counts: dict[str, int] = {}
    for shape in shapes:
        text = ", ".join(f"{amount:g} {name}" for name, amount in shape.items())
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x ({text})" if count > 1 else text for text, count in counts.items())


def left_by(api: JobsApi, job: Job) -> list[Holder]:
    """Return what has CPUs or GPUs and outlives its job. WorkloadError as for `JobsApi`."""
    if job.driver is None:
        return []
    try:
        found = holders(_rows(api, GROUPS), _rows(api, ACTORS))
    except MALFORMED:
        raise WorkloadError(
            "Ray's answer is not a list of actors and placement groups: see `rdma-ray doctor`"
        ) from None
    return [holder for holder in found if holder.outlives_its_job and holder.job == job.driver]


def ender(left: Iterable[Holder]) -> list[str]:
    """Return the words of Python that end these on the cluster."""
    actors = [[each.id, each.name, each.namespace] for each in left if each.kind == "actor"]
    groups = [each.id for each in left if each.kind != "actor"]
    return ["-c", ENDER, json.dumps([actors, groups])]


@dataclass
class PendingGroups:
    """Looks periodically at the placement groups of a job that wait."""

    api: JobsApi
    nodes: Nodes
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self._next = self.clock() + FIRST_LOOK_S

    def look(self, job: Job) -> Iterator[tuple[str, int]]:
        """Yield what groups of the job wait for, and for how many seconds, if it is time.

        Nothing if Ray does not answer: the job is followed in any case.
        """
        if job.driver is None or self.clock() < self._next:
            return
        with suppress(WorkloadError, *MALFORMED):
            yield from list(self._waiting(job.driver))
        self._next = self.clock() + NEXT_LOOK_S

    def _waiting(self, driver: str) -> Iterator[tuple[str, int]]:
        groups = _rows(self.api, GROUPS, LOOK_S)
        own = [row for row in groups if row["creator_job_id"] == driver and row["state"] in WAITING]
        ages = [time.time() - float(row["stats"]["creation_request_received_ns"]) / 1e9 for row in own]
        if max(ages, default=0) < SHORT_S:
            return
        room = Room.of(_rows(self.api, NODES, LOOK_S), self.nodes, missing=True)
        jobs = {job.driver: job.id for job in self.api.jobs()}
        having = holders(groups, _rows(self.api, ACTORS, LOOK_S))
        alike: dict[str, list[tuple[str, float]]] = {}
        for row, age in zip(own, ages, strict=True):
            shapes = shapes_of(row)
            text = shown(shapes)
            if reason := room.never(shapes, is_infeasible(row)):
                text += f"; it can never fit: {reason}"
            else:
                held = _held(having, total(shapes), driver, jobs)
                text += f"; held: {held}" if held else ""
                text += f"; {self.nodes.max - len(room.more)} of {self.nodes.max} nodes are up" if room.more else ""
            alike.setdefault(text, []).append((row["name"][:LONGEST_NAME] or row["placement_group_id"][:12], age))
        for text, waiting in [*alike.items()][:MOST_LINES]:
            (name, _), *more = sorted(waiting)
            which = (
                f"placement groups {name} and {len(more)} more each need" if more else f"placement group {name} needs"
            )
            yield f"{which} {text}", round(max(age for _, age in waiting))


def _held(having: list[Holder], wanted: Amounts, driver: str, jobs: Mapping[str | None, str]) -> str:
    """Return who holds what is wanted, by job, and each detached one by its name."""
    sums: dict[str, list[Amounts]] = {}
    for holder in having:
        amounts = {name: amount for name, amount in holder.amounts.items() if name in wanted}
        if amounts:
            who = "this job" if holder.job == driver else f"job {jobs.get(holder.job, holder.job)}"
            if holder.detached:
                who = f"detached {holder.kind} {holder.name or holder.id[:12]} of {who}"
            sums.setdefault(who, []).append(amounts)
    texts = [f"{shown([total(amounts)])} by {who}" for who, amounts in sums.items()]
    more = len(texts) - MOST_HOLDERS
    return ", ".join(texts[:MOST_HOLDERS]) + (f", and {more} more" if more > 0 else "")


def _holder(kind: str, row: Json, identity: str, job: str, shapes: list[Json]) -> Holder:
    amounts = {name: amount for name, amount in total(shapes).items() if name in DEVICES and amount > 0}
    name, class_name, namespace = (row.get(key) or "" for key in ("name", "class_name", "ray_namespace"))
    return Holder(
        kind=kind,
        id=identity,
        name=name[:LONGEST_NAME],
        class_name=class_name[:LONGEST_NAME],
        namespace=namespace,
        job=job,
        detached=row.get("is_detached") is True,
        amounts=amounts,
    )


def _rows(api: JobsApi, path: str, timeout_s: float | None = None) -> list[Json]:
    """Return the rows of a list of the State API; with a limit, by one attempt."""
    answer = api.call(path) if timeout_s is None else api.once(path, timeout_s=timeout_s)
    return list(answer["data"]["result"]["result"])
