"""The gke stack's RayJob in real pods, with Kueue: real KubeRay, Kueue, kubelets, Ray; the rest is simulated as
elsewhere.

The operator reaches the head's dashboard by the name of its Service, with the stack's token, as in a cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from rehearsal.cluster.scaling import Scale
from tests.kubernetes import stack_objects
from tests.pods.deployed_stack import NAMESPACE, DeployedStack, Timeline
from tests.pods.jobs import GANG, running
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json


def rayjob(pod_cluster: PodCluster, code: str, **changes: object) -> DeployedStack:
    """Return the gke stack with a RayJob that runs this code."""
    ray = {"mode": "job", "entrypoint": shlex.join(running(code))}
    return DeployedStack(
        pod_cluster,
        "gke",
        Scale(seconds={"ttlSecondsAfterFinished": 10}),
        changes={"ray": ray, "nodes": {"max": 2}, **changes},
    )


@pytest.fixture(scope="module")
def queued(pod_cluster: PodCluster) -> Iterator[None]:
    """The real Kueue in a pod, with the stack's values."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: Kueue would be the cluster's own")
    pod_cluster.cluster.operators.start_kueue(stack_objects.release("gke, queued", "kueue"))
    yield
    pod_cluster.cluster.operators.stop_kueue()


def ended(stack: DeployedStack, within_s: float = 600) -> Json:
    """Return the RayJob's status once its deployment is complete or failed."""

    def over() -> Json | None:
        status = (stack.api.get(RAY_API, "RayJob", "gke-ray", NAMESPACE) or {}).get("status", {})
        return status if status.get("jobDeploymentStatus") in ("Complete", "Failed") else None

    return stack.api.until("the RayJob to end", over, within_s)


def test_rayjob_creates_and_deletes_cluster(pod_cluster: PodCluster) -> None:
    """From the stack's RayJob to its end: KubeRay creates the cluster, submits over HTTP with the token, the gang runs
    on two nodes, and every pod is deleted afterwards automatically."""
    stack, timeline = rayjob(pod_cluster, GANG), Timeline()
    stack.apply()
    try:
        status = ended(stack)
        timeline.done("RayJob ended")
        assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED"), status
        stack.api.until("its pods to go", lambda: not stack.pods() or None, 240)
        timeline.done("no pod any more")
    finally:
        print(stack.describe())
        stack.delete()


@pytest.mark.usefixtures("queued")
def test_kueue_admits_rayjob_within_quota(pod_cluster: PodCluster) -> None:
    """With `queue: kueue`: the RayJob is suspended as the stack writes it, Kueue admits its Workload within the quota
    and starts it, and its quota is free again when it has ended."""
    stack = rayjob(pod_cluster, GANG, queue="kueue")
    assert stack.one("RayJob")["spec"]["suspend"] is True
    stack.apply()
    try:
        status = ended(stack)
        assert status["jobStatus"] == "SUCCEEDED", status

        def finished() -> bool | None:
            found = stack.api.list(KUEUE_API, "Workload", NAMESPACE)
            conditions = [each for workload in found for each in workload["status"]["conditions"]]
            return any(each["type"] == "Finished" and each["status"] == "True" for each in conditions) or None

        def free() -> bool | None:
            queue = stack.api.get(KUEUE_API, "ClusterQueue", "gpu") or {}
            return queue["status"].get("admittedWorkloads", 0) == 0 or None

        stack.api.until("the Workload to be finished", finished, 120)
        stack.api.until("the quota to be free", free, 120)
    finally:
        print(stack.describe())
        stack.delete()
