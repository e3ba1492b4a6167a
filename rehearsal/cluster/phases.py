"""Phases of a rehearsal inside the cluster: scale workers up and down, delete objects.

The controllers are real. The rehearsal scales the workers in place of Ray's autoscaler, with its requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import requests

from rehearsal.clouds.kubernetes.identity import api as api_of_type
from rehearsal.cluster.controllers.cloud_controllers import ControllerError
from rehearsal.cluster.environment import Environment
from rehearsal.cluster.objects import place_of
from rehearsal.engine.commands import PARALLEL, Engine
from rehearsal.engine.kind import Json, value_at
from rehearsal.graph import Graph, GraphNode
from tools.kubernetes.api import ApiError, NotYet
from tools.process import ProgramEnded
from workloads.exits import WorkloadError

CLUSTER = "kubernetes:ray.io/v1:RayCluster"
RAY_JOB = "kubernetes:ray.io/v1:RayJob"
JOB = "kubernetes:batch/v1:Job"
WORKERS = 2
"""Enough workers for a network test; fewer if the stack allows fewer."""
GPUS = "nvidia.com/gpu"
_ONE_BY_ONE = ("destroy", "--yes", "--skip-preview", "--parallel", str(PARALLEL))


class PhaseError(Exception):
    """The cluster is not in the expected state. The message describes the difference."""


class ClusterPhases:
    """Cluster of a running stack. `comes_s` and `goes_s` are timeouts in seconds, `ends` the errors of a failure."""

    comes_s = 120.0
    goes_s = 120.0
    ends: tuple[type[Exception], ...] = (PhaseError,)
    traces: Callable[[], list[str]] | None = None

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._users: list[Json] = []

    def put(self, users: Iterable[Json]) -> None:
        """Make the objects of a cluster that the user has, without the fields of the simulation."""
        for each in users:
            body = {name: value for name, value in each.items() if not name.startswith("__")}
            self._users.append(self.environment.api.apply(body, manager="kubectl"))

    def left(self) -> list[str]:
        """Return the stack's objects that still exist in the cluster, and the user's that are not as before."""
        with _telling():
            changed = [each for each in self._users if self._differs(each)]
            told = (
                f"changed, although it is the user's: {each['kind']} {each['metadata']['name']}" for each in changed
            )
            return [*self.environment.left(), *told]
        raise AssertionError

    def _differs(self, before: Json) -> bool:
        """Return whether an object is gone, was made again, or has other labels, annotations or spec."""
        metadata, api = before["metadata"], self.environment.api
        now = api.get(before["apiVersion"], before["kind"], metadata["name"], metadata.get("namespace"))
        same = ("uid", "generation", "labels", "ownerReferences", "finalizers")
        return now is None or any(now["metadata"].get(each) != metadata.get(each) for each in same)

    def scale_up(self, graph: Graph) -> str:
        """Start everything that runs on GPUs: workers of a RayCluster, a Job. Return a summary."""
        began = time.monotonic()
        with _telling():
            for node in gpu_workloads(graph):
                (self._want if autoscaled(self._live(node)) else self._wait)(node)
            nodes = self._gpu_nodes()
            return f"{self._said(graph)}, on {len(nodes)} GPU nodes, after {time.monotonic() - began:.0f} s"
        raise AssertionError

    def scale_down(self, graph: Graph) -> str:
        """Scale the workers down, as the autoscaler does, and wait until the last GPU node is deleted.

        Objects that keep their nodes for minutes or longer are not awaited; their deletion releases the nodes.
        """
        began = time.monotonic()
        with _telling():
            scaled = [node for node in gpu_workloads(graph) if autoscaled(self._live(node))]
            for node in scaled:
                self._let_go(node, self._workers(node))
            keeping = [f"{display_name(node)} {why}" for node in gpu_workloads(graph) if (why := self._keeping(node))]
            if keeping:
                return f"{'; '.join(keeping)}: not awaited, see below"
            self._until("the GPU nodes to be removed", lambda: not self._gpu_nodes(), self.goes_s, self._gpu_nodes)
            for node in scaled:
                self._let_go(node, [])
        return f"no GPU node is left after {time.monotonic() - began:.0f} s"

    def delete_one_by_one(self, engine: Engine, graph: Graph) -> str:
        """Delete every object individually, which `destroy` does not do; nothing may block a deletion."""
        urns = [node.urn for node in graph.managed if node.type.startswith("kubernetes:")]
        targets = [word for urn in urns for word in ("--target", urn)]
        said = engine.run(*_ONE_BY_ONE, *targets, stack=True)
        if not said.ok:
            raise PhaseError(said.text.strip())
        with _telling():
            # The program does not wait for these deletions.
            left = self.environment.left(self.comes_s)
            self._until("the GPU nodes to be removed", lambda: not self._gpu_nodes(), self.goes_s, self._gpu_nodes)
        if left:
            raise PhaseError(f"{len(left)} objects are left: {', '.join(left[:9])}")
        return f"{len(urns)} deleted one by one, no finalizer stuck, 0 left in the API server, no GPU node"

    def _let_go(self, node: GraphNode, workers: Sequence[str]) -> None:
        """Scale to 0; without names the operator forgets those that it has deleted."""
        self._scale(node, 0, workers)

    def _keeping(self, node: GraphNode) -> str:
        return keeps(self._live(node))

    def _head_alone(self, node: GraphNode) -> None:
        """Wait for the head. There must be no GPU node before a worker needs one."""
        began = time.monotonic()
        self._until("the head", lambda: state(self._live(node)) == "ready", self.comes_s, lambda: self._status(node))
        early = self._gpu_nodes()
        if early:
            raise PhaseError(f"GPU nodes exist before a worker needs one: {', '.join(early)}")
        after_s = time.monotonic() - began
        self.environment.timeline.said(f"{display_name(node)}: head ready after {after_s:.0f} s, no GPU node")

    def _want(self, node: GraphNode) -> None:
        self._head_alone(node)
        wanted = min(WORKERS, int(group(self._live(node)).get("maxReplicas", WORKERS)))
        self._scale(node, wanted)

        def there() -> bool:
            status = self._status(node)
            return (status.get("readyWorkerReplicas"), status.get("state")) == (wanted, "ready")

        self._until(f"{wanted} workers", there, self.comes_s, lambda: self._status(node))

    def _wait(self, node: GraphNode) -> None:
        def there() -> bool:
            live = self._live(node)
            problem = failed(live)
            if problem:
                raise PhaseError(f"{display_name(node)} failed: {problem}")
            return started(live)

        self._until(f"{display_name(node)} runs", there, self.comes_s, lambda: self._status(node))

    def _scale(self, node: GraphNode, replicas: int, ends: Sequence[str] = ()) -> None:
        """Set the number of workers and name those to delete: without names the operator deletes none.

        The patch is that of Ray's autoscaler (ray 2.60: autoscaler/_private/kuberay/node_provider.py).
        """
        kind, (name, namespace) = api_of_type(node.type), place_of(node.id)
        group = "/spec/workerGroupSpecs/0"
        patch = [
            {"op": "replace", "path": f"{group}/replicas", "value": replicas},
            {"op": "replace", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": list(ends)}},
        ]
        if ends or replicas:
            self.environment.timeline.said(f"{display_name(node)}: {replicas} workers requested")
        self.environment.api.patch(kind.written, kind.kind, name, namespace, patch, type="json")

    def _workers(self, node: GraphNode) -> list[str]:
        name, namespace = place_of(node.id)
        selector = f"ray.io/cluster={name},ray.io/node-type=worker"
        return [pod["metadata"]["name"] for pod in self.environment.api.list("v1", "Pod", namespace, selector)]

    def _live(self, node: GraphNode) -> Json:
        kind, (name, namespace) = api_of_type(node.type), place_of(node.id)
        live = self.environment.api.get(kind.written, kind.kind, name, namespace)
        if live is None:
            raise PhaseError(f"{display_name(node)} is not in the API server")
        return live

    def _status(self, node: GraphNode) -> Json:
        status: Json = self._live(node).get("status") or {}
        return status

    def _gpu_nodes(self) -> list[str]:
        nodes = self.environment.api.list("v1", "Node")
        return [each["metadata"]["name"] for each in nodes if (value_at(each, "status.capacity") or {}).get(GPUS)]

    def _said(self, graph: Graph) -> str:
        words = []
        for node in gpu_workloads(graph):
            live = self._live(node)
            # A job's pods may have finished before their readiness was checked.
            count = value_at(live, "status.readyWorkerReplicas")
            words.append(f"{display_name(node)} {state(live)}" + (f" with {count} workers" if count else ""))
        return "; ".join(words) or "no object of this stack uses GPUs automatically"

    def _until(self, what: str, look: Callable[[], bool], within_s: float, seen: Callable[[], object]) -> None:
        def there() -> bool:
            self.environment.controllers.check()
            if look():
                return True
            raise NotYet(str(seen()))

        self.environment.api.until(what, there, within_s)


@contextmanager
def _telling() -> Iterator[None]:
    """Convert errors of the cluster and of the cloud controllers into `PhaseError`."""
    try:
        yield
    except (ApiError, ControllerError, ProgramEnded, TimeoutError, WorkloadError, requests.RequestException) as problem:
        raise PhaseError(str(problem)) from problem


def gpu_workloads(graph: Graph) -> Iterator[GraphNode]:
    """Yield the GPU workloads of a stack: RayClusters, RayJobs and Jobs."""
    return (node for node in graph.managed if node.type in (CLUSTER, RAY_JOB, JOB))


def autoscaled(live: Json) -> bool:
    """Return whether Ray's autoscaler sets the number of workers."""
    return live.get("kind") == "RayCluster" and bool(value_at(live, "spec.enableInTreeAutoscaling"))


def group(live: Json) -> Json:
    """Return the worker group of a RayCluster; a stack has one."""
    found: Json = live["spec"]["workerGroupSpecs"][0]
    return found


def state(live: Json) -> str:
    """Return the status that its controller reports, in one word."""
    status = live.get("status") or {}
    if live.get("kind") == "Job":
        return "complete" if "Complete" in _true(status) else f"active: {status.get('active', 0)}"
    return str(status.get("jobDeploymentStatus") or status.get("state") or "unseen")


def started(live: Json) -> bool:
    """Return whether its pods run, or have run because the workload has ended successfully."""
    status = live.get("status") or {}
    if live.get("kind") == "Job":
        return bool(status.get("ready")) or "Complete" in _true(status)
    if live.get("kind") == "RayJob":
        return status.get("jobDeploymentStatus") in ("Running", "Complete")
    return bool(status.get("state") == "ready")


def keeps(live: Json) -> str:
    """Return why it does not release its nodes soon, or ""."""
    if live.get("kind") == "RayJob":
        # The operator keeps them by default.
        spec = live["spec"]
        if not spec.get("shutdownAfterJobFinishes"):
            return "keeps its nodes after its end"
        kept = spec.get("ttlSecondsAfterFinished", 0)
        return f"keeps its nodes for {kept} s after its end" if kept else ""
    if live.get("kind") == "RayCluster":
        return "" if autoscaled(live) else "keeps its nodes until it is deleted"
    return "" if state(live) == "complete" else "keeps its nodes until its end"


def failed(live: Json) -> str:
    """Return why it has failed permanently, or ""."""
    status = live.get("status") or {}
    if status.get("jobDeploymentStatus") == "Failed" or status.get("state") == "failed":
        return str(status.get("message") or status.get("reason") or status)
    return "its Failed condition is true" if "Failed" in _true(status) else ""


def _true(status: Json) -> set[str]:
    return {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}


def display_name(node: GraphNode) -> str:
    """Return the kind and name of an object of a stack."""
    return f"{api_of_type(node.type).kind} {place_of(node.id)[0]}"
