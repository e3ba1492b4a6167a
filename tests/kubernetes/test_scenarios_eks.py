"""The stack of Pulumi.eks.yaml with a queue: a RayCluster of fixed size and the nccl-tests Job share its nodes.

Real: Pulumi's engine, the API server, the scheduler, the Job controller, KubeRay's operator 1.6.2 and Kueue 0.19.2 with
its webhooks. Simulated: the cluster autoscaler and its nodes (kwok, which completes a Job's pods at once), the device
plugins of NVIDIA and AWS. The tests are in the order of the stack's life.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.catalog.pins import KUEUE_API
from infra.nccl_job import Sweep, nccl_job
from tests.kubernetes.doctor import findings
from tests.kubernetes.queries import (
    RAY,
    WITHIN_S,
    condition,
    destroy,
    gpu_nodes,
    head,
    name,
    pods,
    ray_cluster,
    until_ready,
    until_reserved,
    workers,
    workload,
)
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api
from workloads.nccl.job_manifest import key_secret, manifests

EFA = "vpc.amazonaws.com/efa"
NODES = 2


@pytest.fixture(scope="module")
def stack(run_stack: Callable[..., RunningStack]) -> RunningStack:
    return run_stack("eks", queue="kueue", nodes={"max": NODES})


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


def test_workers_run_on_nodes_with_all_sixteen_nics(stack: RunningStack, api: Api) -> None:
    """Kueue admits the cluster, KubeRay creates its pods, the scheduler places them by all of their requests. A pod
    that waits for its node's devices gets no second node."""
    two = until_ready(api, NODES)
    nodes = {name(node): node for node in gpu_nodes(api)}
    assert {pod["spec"]["nodeName"] for pod in two} == set(nodes)
    for pod in two:
        assert pod["spec"]["containers"][0]["resources"]["limits"][EFA] == "16"
        assert nodes[pod["spec"]["nodeName"]]["status"]["allocatable"][EFA] == "16"
    assert head(api)["spec"]["nodeName"] not in nodes
    wanted = [event for event in stack.controllers.events if event.kind == "NodesWanted" and event.pool != "system"]
    assert sum(event.count for event in wanted) == NODES
    until_reserved(api, 8 * NODES)
    assert findings(stack) == {}


def test_nccl_job_waits_for_and_releases_quota(stack: RunningStack, api: Api) -> None:
    """Kueue suspends it, and admits it when the cluster is stopped, as `kueuectl stop workload` does; then it
    completes. A preview compares with what Kueue's webhooks and controllers wrote to the RayCluster and its queue."""
    until_reserved(api, 8 * NODES)
    job = nccl_job(stack.settings, Sweep())
    assert (job.nodes, job.queue) == (NODES, "gpu")
    for body in [*manifests(job), key_secret(job, "private", "ssh-ed25519 public")]:
        api.apply(body)

    def waits() -> bool:
        reserved = condition(workload(api, job.name), "QuotaReserved")
        return reserved.get("status") == "False" and "insufficient unused quota" in reserved["message"]

    def ended() -> bool:
        return condition(api.get("batch/v1", "Job", job.name, RAY), "Complete").get("status") == "True"

    def activate(active: bool) -> None:
        cluster = workload(api, name(ray_cluster(api)))
        assert cluster is not None
        api.patch(KUEUE_API, "Workload", name(cluster), RAY, {"spec": {"active": active}})

    api.until("the Job's turn to wait", waits, WITHIN_S)
    assert pods(api, f"batch.kubernetes.io/job-name={job.name}") == []
    activate(False)
    api.until("the end of the Job", ended, WITHIN_S)
    assert workers(api) == []
    until_reserved(api, 0)
    (cause,) = [cause for (check, _), cause in findings(stack).items() if check == "queue"]
    assert cause == "it is deactivated: nothing says why, so a user set spec.active"
    activate(True)
    until_ready(api, NODES)
    until_reserved(api, 8 * NODES)
    for body in manifests(job):
        api.delete(body["apiVersion"], body["kind"], name(body), RAY, propagation="Foreground")
    api.delete("v1", "Secret", job.key_secret, RAY)
    said = stack.engine.preview()
    assert said.ok, said.text


def test_stack_goes_down_without_leftovers(stack: RunningStack) -> None:
    """Kueue and KubeRay release what their finalizers hold."""
    destroy(stack)


def test_kueue_chooses_permanent_nodes_by_their_network_layers(run_stack: Callable[..., RunningStack]) -> None:
    stack = run_stack("eks", queue="kueue", nodes={"max": NODES, "min": NODES})
    two = until_ready(stack.api, NODES)
    admitted = workload(stack.api, name(ray_cluster(stack.api)))
    assert admitted is not None
    (placed,) = filter(
        None, (each.get("topologyAssignment") for each in admitted["status"]["admission"]["podSetAssignments"])
    )
    # Kueue names the lowest level only.
    assert placed["levels"] == ["kubernetes.io/hostname"]
    assert {pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in two} == set(
        map(name, gpu_nodes(stack.api))
    )
    said = stack.engine.preview()
    assert said.ok, said.text
    destroy(stack)
