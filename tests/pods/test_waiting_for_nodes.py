"""Time that Ray's autoscaler lets a worker's pod wait for its node: the gke stack's RayCluster with real Ray.

The timeout is the manifest's, shortened by `scaling`; the autoscaler's own code applies it. Simulated: as in
`test_ray_in_pods`; cordoned nodes represent missing ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rehearsal.cluster.scaling import Scale
from tests.pods.deployed_stack import DeployedStack
from tests.pods.jobs import GANG
from tests.pods.pod_cluster import PodCluster
from workloads.train.timeline import seconds

PROMISED_S = 25
SETTING = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"


@pytest.fixture
def gke(pod_cluster: PodCluster) -> Iterator[DeployedStack]:
    """The stack with the shortened wait, while all GPU nodes are cordoned."""
    scale = Scale(seconds={SETTING: PROMISED_S, "idleTimeoutSeconds": 10})
    stack = DeployedStack(pod_cluster, "gke", scale, {})
    stack.open(False, "gpu-0", "gpu-1")
    stack.apply()
    try:
        yield stack
    finally:
        stack.delete()
        stack.open(True, "gpu-0", "gpu-1")


def test_pending_pod_is_kept_for_capacity_wait(gke: DeployedStack) -> None:
    """The pods of a job stay Pending, and the same, for the time that the capacity may take (the stack writes it into
    the autoscaler's environment); only after it are they replaced."""
    gke.api.until("the head to be ready", gke.head, 300)
    with gke.forwarded() as port:
        gke.submit(port, "waits", GANG, {})
        gke.api.until("two pending workers", lambda: len(gke.workers()) == 2 or None, 240)
        pods = gke.workers()
    first = {pod["metadata"]["uid"] for pod in pods}
    began = min(seconds(pod["metadata"]["creationTimestamp"]) for pod in pods)

    def given_up() -> float | None:
        """Return the seconds that the first pods waited, once one of them is deleted."""
        assert all(pod["status"]["phase"] == "Pending" for pod in gke.workers())
        left = first & {pod["metadata"]["uid"] for pod in gke.workers()}
        return None if left == first else time.time() - began

    # The autoscaler runs every five seconds, and its clock started up to one run before or after the creation of the
    # pods.
    waited = gke.api.until("the first pods to be given up", given_up, PROMISED_S + 120)
    assert waited > PROMISED_S - 10
