"""The stack of Pulumi.eks.yaml with a queue: a RayCluster of fixed size and the nccl-tests Job share its nodes.

Real: Pulumi's engine, the API server, the scheduler, the Job controller, KubeRay's operator 1.6.2 and Kueue 0.19.2 with
its webhooks. Simulated: the cluster autoscaler and its nodes (kwok, which completes a Job's pods at once), the device
plugins of NVIDIA and AWS. The tests are in the order of the stack's life.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.catalog.pins import KUEUE_API
from infra.kubernetes.nccl_job import Sweep, nccl_job
from infra.kubernetes.nccl_job_manifest import key_secret, manifests
from infra.kubernetes.queue_objects import CLUSTER_QUEUE, GPU_FLAVOR
from rehearsal.cluster.running_stack import RunningStack
from rehearsal.fork_server import ForkServer
from tests.kubernetes.queries import (
    GPU,
    RAY,
    WITHIN_S,
    condition,
    gpu_nodes,
    head,
    name,
    pods,
    ray_cluster,
    unresolved,
    until_ready,
    workers,
)
from tools.kubernetes.api import Api, Json

ROOT = Path(__file__).resolve().parents[2]
EFA = "vpc.amazonaws.com/efa"
NODES = 2


@pytest.fixture(scope="module")
def stack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("eks") / "stack"
    changes = ("protect=false", "queue=kueue", f"nodes.max={NODES}")
    with RunningStack(ROOT / "Pulumi.eks.yaml", folder, changes=changes, plugins=fork_server.bin) as standing:
        yield standing


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


@pytest.fixture(scope="module")
def two(api: Api) -> list[Json]:
    """The workers of the stack from the start."""
    return until_ready(api, NODES)


def test_workers_run_on_nodes_with_all_sixteen_nics(api: Api, two: list[Json]) -> None:
    """Kueue admits the cluster, KubeRay creates its pods, the scheduler places them by all of their requests."""
    nodes = {name(node): node for node in gpu_nodes(api)}
    assert {pod["spec"]["nodeName"] for pod in two} == set(nodes)
    for pod in two:
        (worker,) = pod["spec"]["containers"]
        assert worker["resources"]["limits"][GPU] == "8"
        assert worker["resources"]["limits"][EFA] == "16"
        assert nodes[pod["spec"]["nodeName"]]["status"]["allocatable"][EFA] == "16"
        assert unresolved(api, pod) == []
    assert head(api)["spec"]["nodeName"] not in nodes
    api.until("the quota held", lambda: held(api) == 8 * NODES, WITHIN_S)


def test_nccl_job_waits_for_and_releases_quota(stack: RunningStack, api: Api, two: list[Json]) -> None:
    """Kueue suspends it, and admits it when the cluster is stopped, as `kueuectl stop workload` does; then it
    completes."""
    assert two
    job = nccl_job(stack.settings, Sweep())
    assert (job.nodes, job.queue) == (NODES, "gpu")
    for body in [*manifests(job), key_secret(job, "private", "ssh-ed25519 public")]:
        api.apply(body)
    api.until("the Job's turn to wait", lambda: waits(api, job.name), WITHIN_S)
    assert pods(api, f"batch.kubernetes.io/job-name={job.name}") == []
    cluster = workload(api, "RayCluster", name(ray_cluster(api)))
    assert cluster is not None
    activate(api, cluster, active=False)
    api.until("the end of the Job", lambda: ended(api, job.name), WITHIN_S)
    assert workers(api) == []
    api.until("the quota back", lambda: held(api) == 0, WITHIN_S)
    activate(api, cluster, active=True)
    assert len(until_ready(api, NODES)) == NODES
    api.until("the quota held", lambda: held(api) == 8 * NODES, WITHIN_S)
    for body in manifests(job):
        api.delete(body["apiVersion"], body["kind"], name(body), RAY, propagation="Foreground")
    api.delete("v1", "Secret", job.key_secret, RAY)


def test_preview_is_empty_after_kueue_stops_and_starts_cluster(stack: RunningStack, two: list[Json]) -> None:
    """The engine compares with what Kueue's webhooks and controllers wrote to the RayCluster and its queue."""
    assert two
    said = stack.engine.preview("--refresh")
    assert said.ok, said.text


def test_stack_goes_down_without_leftovers(stack: RunningStack) -> None:
    """The cluster with the stack; no object is left in the API server."""
    said = stack.engine.destroy()
    assert said.ok, said.text
    assert stack.phases.left() == []
    stack.controllers.check()


def workload(api: Api, kind: str, owner: str) -> Json | None:
    """Return Kueue's Workload of an object."""
    for body in api.list(KUEUE_API, "Workload", RAY):
        if any((of["kind"], of["name"]) == (kind, owner) for of in body["metadata"].get("ownerReferences", [])):
            return body
    return None


def waits(api: Api, job: str) -> bool:
    body = workload(api, "Job", job)
    found = condition(body or {}, "QuotaReserved")
    return found.get("status") == "False" and "insufficient unused quota" in found.get("message", "")


def ended(api: Api, job: str) -> bool:
    """Return whether the Job is complete; kwok completes pods as soon as they run."""
    body = api.get("batch/v1", "Job", job, RAY)
    return body is not None and condition(body, "Complete").get("status") == "True"


def activate(api: Api, body: Json, *, active: bool) -> None:
    api.patch(KUEUE_API, "Workload", name(body), RAY, {"spec": {"active": active}})


def held(api: Api) -> int:
    """Return the GPUs reserved in the ClusterQueue; Kueue writes the number a moment after its decision."""
    queue = api.get(KUEUE_API, "ClusterQueue", CLUSTER_QUEUE)
    assert queue is not None
    flavors = {flavor["name"]: flavor["resources"] for flavor in queue["status"].get("flavorsReservation", [])}
    return sum(int(each["total"]) for each in flavors.get(GPU_FLAVOR, []) if each["name"] == GPU)
