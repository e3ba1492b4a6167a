"""The gke stack's RayJob in real pods, with Kueue: real KubeRay, Kueue, kubelets, Ray; the rest is simulated as
elsewhere.

The operator reaches the head's dashboard by the name of its Service, with the stack's token, as in a cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import pytest

from infra.catalog.fabrics import HOST_GIB, INSTALLED
from infra.catalog.names import NAMESPACE
from infra.catalog.pins import KUEUE_API, RAY_IMAGE
from rehearsal.cluster.scaling import Scale
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import condition
from tests.pods.deployed_stack import DeployedStack, end_of_rayjob
from tests.pods.jobs import GANG, INSTALLED_GANG, running
from tests.pods.pod_cluster import PodCluster, run_to_end
from tools.kubernetes.api import Json


@pytest.fixture(scope="module")
def queued(pod_cluster: PodCluster) -> Iterator[None]:
    """The real Kueue in a pod, with the stack's values."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: Kueue would be the cluster's own")
    pod_cluster.cluster.operators.start_kueue(stack_objects.release("gke, queued", "kueue"))
    yield
    pod_cluster.cluster.operators.stop_kueue()


@pytest.fixture
def late_installer(pod_cluster: PodCluster) -> Iterator[Callable[[DeployedStack], None]]:
    """A GPU node without gIB. The function writes it, like the installer of a new node, when a worker there waits."""
    node, gone = pod_cluster.nodes["gpu-0"], False

    def run(script: str) -> None:
        phase, log = run_to_end(
            pod_cluster.api,
            RAY_IMAGE,
            ["bash", "-ec", f"cd /gib; {script}"],
            container={"securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "gib", "mountPath": "/gib"}]},
            nodeName=node,
            tolerations=[{"operator": "Exists"}],
            volumes=[{"name": "gib", "hostPath": {"path": HOST_GIB}}],
        )
        assert phase == "Succeeded", log

    def install(stack: DeployedStack) -> None:
        nonlocal gone

        def waits() -> bool:
            there = (pod for pod in stack.workers() if pod["spec"].get("nodeName") == node)
            return any(stack.has_said(pod, "waiting for the gIB installer") for pod in there)

        stack.api.until("a worker to wait for gIB", waits, 600)
        run(f"mv gone scripts; touch {INSTALLED}")
        gone = False

    run(f"mv scripts gone; rm {INSTALLED}")
    gone = True
    yield install
    if gone:
        run(f"mv gone scripts; touch {INSTALLED}")


@pytest.fixture(params=["none", "kueue"])
def stack(pod_cluster: PodCluster, request: pytest.FixtureRequest) -> Iterator[DeployedStack]:
    """The gke stack with a RayJob that requests a gang, without a queue on nodes of which one lacks gIB, and with a
    queue, applied."""
    code = GANG if request.param == "kueue" else INSTALLED_GANG
    changes: Json = {"ray": {"mode": "job", "entrypoint": shlex.join(running(code))}, "nodes": {"max": 2}}
    prepared = request.getfixturevalue("queued" if request.param == "kueue" else "late_installer")
    if request.param == "kueue":
        changes["queue"] = "kueue"
    stack = DeployedStack(pod_cluster, "gke", Scale(seconds={"ttlSecondsAfterFinished": 10}), changes)
    assert stack.one("RayJob")["spec"].get("suspend", False) is (request.param == "kueue")
    stack.apply()
    if request.param == "none":
        prepared(stack)
    yield stack
    print(stack.describe())
    stack.delete()


def test_rayjob_runs_gang_and_deletes_its_cluster(stack: DeployedStack) -> None:
    """KubeRay creates the cluster, submits over HTTP with the token, the gang runs on two nodes, and every pod is
    deleted afterwards automatically. Without a queue, one node gets gIB late; Ray starts there after it, with its
    settings. With `queue: kueue` the RayJob is suspended as the stack writes it, Kueue admits its Workload within the
    quota and starts it, and the quota is free again when it has ended."""
    api = stack.api
    status = end_of_rayjob(api, "gke-ray", 600)
    assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED"), status
    api.until("its pods to go", lambda: not stack.pods() or None, 240)
    if not any(body["kind"] == "ClusterQueue" for body in stack.objects):
        return

    def finished() -> bool:
        found = api.list(KUEUE_API, "Workload", NAMESPACE)
        queue = api.get(KUEUE_API, "ClusterQueue", "gpu") or {}
        done = [condition(workload, "Finished").get("status") for workload in found]
        return done == ["True"] and queue["status"].get("admittedWorkloads", 0) == 0

    api.until("the Workload to be finished, the quota to be free", finished, 120)
