"""The stack of Pulumi.gke-dranet.yaml: workers claim their NICs as devices.

Real: the API server, the controller that creates a claim for each pod, the scheduler, which allocates the devices,
KubeRay's operator 1.6.2, and Ray's own code that requests workers. Simulated: Google's driver, which publishes a node's
devices, the autoscaler, and the nodes (kwok). No device is prepared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.catalog.pins import DEVICE_API
from infra.kubernetes.pods import HEAD_ACCOUNT, WORKER_GROUP
from rehearsal.cluster.running_stack import RunningStack
from rehearsal.fork_server import ForkServer
from tests.kubernetes.queries import RAY, WITHIN_S, gpu_nodes, name, ray_cluster, until_ready
from tests.kubernetes.ray_autoscaler import RayAutoscaler
from tools.kubernetes.api import Json

ROOT = Path(__file__).resolve().parents[2]
RESOURCE = DEVICE_API


@pytest.fixture(scope="module")
def stack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("dranet") / "stack"
    with RunningStack(
        ROOT / "Pulumi.gke-dranet.yaml", folder, changes=("protect=false",), plugins=fork_server.bin
    ) as standing:
        yield standing


@pytest.fixture(scope="module")
def two(stack: RunningStack) -> list[Json]:
    until_ready(stack.api, 0)  # the autoscaler runs in the head's pod, for which the operator creates its role first
    autoscaler = RayAutoscaler(stack.plane, name(ray_cluster(stack.api)), RAY, HEAD_ACCOUNT)
    autoscaler.launch(WORKER_GROUP, 2)
    return until_ready(stack.api, 2)


def test_claims_give_workers_all_nics(stack: RunningStack, two: list[Json]) -> None:
    """One claim per pod from the stack's template, allocated by the scheduler; no NIC is allocated twice."""
    given: set[tuple[str, str]] = set()
    for pod in two:
        (status,) = pod["status"]["resourceClaimStatuses"]
        claim = stack.api.get(RESOURCE, "ResourceClaim", status["resourceClaimName"], RAY)
        assert claim is not None
        assert claim["status"]["reservedFor"] == [
            {"resource": "pods", "name": name(pod), "uid": pod["metadata"]["uid"]}
        ]
        results = claim["status"]["allocation"]["devices"]["results"]
        devices = {(each["pool"], each["device"]) for each in results}
        assert len(devices) == len(results) == 8
        assert {pool for pool, _ in devices} == {pod["spec"]["nodeName"]}
        assert not devices & given
        given |= devices
        (worker,) = pod["spec"]["containers"]
        assert [each["name"] for each in worker["resources"]["claims"]] == [status["name"]]
    assert len(given) == 16


def test_claim_is_deleted_with_worker(stack: RunningStack, two: list[Json]) -> None:
    """By the controller of claims, which owns the pod's claim."""
    autoscaler = RayAutoscaler(stack.plane, name(ray_cluster(stack.api)), RAY, HEAD_ACCOUNT)
    autoscaler.terminate(*map(name, two))
    until_ready(stack.api, 0)
    stack.api.until("no claim", lambda: not stack.api.list(RESOURCE, "ResourceClaim", RAY), WITHIN_S)
    stack.api.until("no GPU node", lambda: not gpu_nodes(stack.api), WITHIN_S)


def test_stack_goes_down_without_leftovers(stack: RunningStack) -> None:
    """The cluster with the stack; no object is left in the API server."""
    said = stack.engine.destroy()
    assert said.ok, said.text
    assert stack.phases.left() == []
    stack.controllers.check()
