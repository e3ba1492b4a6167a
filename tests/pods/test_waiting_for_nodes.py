"""How long Ray's autoscaler lets a worker's pod wait for its node: the gke stack's RayCluster with real Ray.

The clock is the manifest's, shortened by `scaling`; the code that keeps it is the autoscaler's own. Stand-ins: as in
`test_ray_in_pods`; nodes that a cloud does not have are nodes that take no pod.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rehearsal.cluster.scaling import Scale
from tests.pods.deployed_stack import StackOn
from tests.pods.jobs import GANG
from tests.pods.pod_cluster import Scene
from workloads.train.timeline import seconds

PROMISED_S = 25
SETTING = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"


@pytest.fixture
def gke(scene: Scene) -> Iterator[StackOn]:
    """The stack with the shortened wait, while no GPU node takes a pod."""
    scale = Scale(seconds={SETTING: PROMISED_S, "idleTimeoutSeconds": 10})
    stack = StackOn(scene, "gke", scale)
    for node in ("gpu-0", "gpu-1"):
        stack.open(node, False)
    stack.apply()
    try:
        yield stack
    finally:
        stack.delete()
        for node in ("gpu-0", "gpu-1"):
            stack.open(node, True)


def test_a_pending_pod_keeps_its_place_as_long_as_promised(gke: StackOn) -> None:
    """The pods that a job asked for stay Pending, and the same, for the time that the way to get machines promises (as
    the stack writes it into the autoscaler's environment); only after it are they given up."""
    gke.api.until("the head to be ready", gke.head, 300)
    with gke.forwarded() as port:
        gke.submit(port, "waits", GANG, {})
        gke.api.until("two pending workers", lambda: len(gke.workers()) == 2 or None, 240)
        pods = gke.workers()
    first = {pod["metadata"]["uid"] for pod in pods}
    began = min(seconds(pod["metadata"]["creationTimestamp"]) for pod in pods)

    def given_up() -> float | None:
        """Seconds that the first pods waited, once one of them is gone."""
        assert all(pod["status"]["phase"] == "Pending" for pod in gke.workers())
        left = first & {pod["metadata"]["uid"] for pod in gke.workers()}
        return None if left == first else time.time() - began

    # The autoscaler looks every five seconds, and its clock began up to one look before or after the pods were made.
    waited = gke.api.until("the first pods to be given up", given_up, PROMISED_S + 120)
    assert waited > PROMISED_S - 10
