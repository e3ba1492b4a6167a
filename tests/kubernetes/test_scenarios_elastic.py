"""A RayCluster in a queue whose size Ray's autoscaler changes: Kueue admits each size before its pods start.

Real: Pulumi's engine, the API server, the scheduler, KubeRay's operator 1.6.2 and Kueue 0.19.2 with its webhooks.
Simulated: nodes (kwok), Google Cloud's controllers, and the decisions of Ray's autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.queue_objects import ELASTIC_ANNOTATION
from tests.kubernetes.queries import (
    GPU,
    RAY,
    WITHIN_S,
    gpu_nodes,
    head,
    is_ready,
    name,
    ray_cluster,
    scale,
    until_ready,
    workers,
)
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api, Json


@pytest.fixture(scope="module")
def stack(run_stack: Callable[..., RunningStack]) -> RunningStack:
    return run_stack("gke", nodes={"max": 2}, queue="kueue", ray={"minWorkers": 0})


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


def reserved(api: Api) -> int:
    """Return the GPUs whose quota is reserved."""
    (queue,) = api.list(KUEUE_API, "ClusterQueue")
    flavors = queue.get("status", {}).get("flavorsReservation") or []
    amounts = [each for flavor in flavors for each in flavor["resources"] if each["name"] == GPU]
    return sum(int(each["total"]) for each in amounts)


def until_quota(api: Api, nodes: int) -> None:
    api.until(f"quota of {nodes} nodes", lambda: reserved(api) == 8 * nodes, WITHIN_S)


def gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


def test_head_starts_without_workers(api: Api) -> None:
    """Kueue admits the head alone, and takes the gate off its pod."""
    until_ready(api, 0)
    assert gates(head(api)) == []
    assert (reserved(api), gpu_nodes(api)) == (0, [])


def test_quota_follows_the_workers(stack: RunningStack, api: Api) -> None:
    """More workers are another workload; their pods wait behind the gate until it is admitted."""
    for count in (1, 2):
        pods = scale(api, count)
        assert all(is_ready(pod) and gates(pod) == [] for pod in pods)
        until_quota(api, count)
    assert stack.engine.preview().ok
    scale(api, 1, workers(api)[0])
    until_quota(api, 1)


def test_quota_of_others_holds_workers_back(api: Api) -> None:
    """Of two nodes, another job holds one."""
    until_ready(api, 1)
    container = {
        "name": "main",
        "image": "registry.example.com/busybox",
        "resources": {"requests": {"cpu": "1", GPU: "8"}, "limits": {GPU: "8"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {"kueue.x-k8s.io/queue-name": "gpu"}
    its = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other", "namespace": RAY, "labels": labels}}
    api.create(its | {"spec": {"suspend": True, "template": template}})
    until_quota(api, 2)
    group = "/spec/workerGroupSpecs/0/replicas"
    more = [{"op": "replace", "path": group, "value": 2}]
    api.patch(RAY_API, "RayCluster", name(ray_cluster(api)), RAY, more, type="json")
    held = api.until("a worker behind the gate", lambda: [pod for pod in workers(api) if gates(pod)] or None, WITHIN_S)
    assert [gates(pod) for pod in held] == [[ELASTIC_ANNOTATION]]
    assert reserved(api) == 16
    api.delete("batch/v1", "Job", "other", RAY)
    until_ready(api, 2)
    assert [gates(pod) for pod in workers(api)] == [[], []]
