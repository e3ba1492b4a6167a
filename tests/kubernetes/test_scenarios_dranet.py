"""The stack of Pulumi.gke-dranet.yaml and a ComputeClass: workers claim their NICs as devices, on the fallback nodes.

Real: the API server, the controller that creates a claim for each pod, the scheduler, which allocates the devices, and
KubeRay's operator 1.6.2. Simulated: Google's driver, which publishes a node's devices, the autoscalers, and the nodes
(kwok). No device is prepared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.catalog.pins import DEVICE_API
from tests.kubernetes.queries import RAY, WITHIN_S, destroy, gpu_nodes, scale, until_ready
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import ApiError


def test_claims_give_workers_all_nics_and_end_with_them(run_stack: Callable[..., RunningStack]) -> None:
    """One claim per pod from the stack's template, allocated by the scheduler; no NIC is allocated twice. The
    controller of claims deletes a pod's claim with the pod. The simulated autoscaler reads the stack's ComputeClass:
    the first pool is out of stock, so the second one serves the pods, which select the class and no pool."""
    settings = {"computeClass": True, "nodes": {"fallback": "flex-start"}}
    stack = run_stack(
        "gke-dranet", before=lambda controllers: controllers.autoscaler.out_of_stock.add("gpu"), **settings
    )
    api = stack.api
    until_ready(api, 0)
    two = scale(api, 2)
    assert {node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] for node in gpu_nodes(api)} == {"fallback"}
    assert {event.pool for event in stack.controllers.events if event.kind == "OutOfStock"} == {"gpu"}
    selector = {"cloud.google.com/compute-class": "rdma", "cloud.google.com/gke-nodepool": "gpu"}
    spec = {"containers": [{"name": "a", "image": "a"}], "nodeSelector": selector}
    both = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "both", "namespace": RAY}, "spec": spec}
    with pytest.raises(ApiError, match=r"compute-class cannot be combined with cloud\.google\.com/gke-nodepool"):
        api.create(both, dry_run=True)
    given: set[tuple[str, str]] = set()
    for pod in two:
        (status,) = pod["status"]["resourceClaimStatuses"]
        claim = api.get(DEVICE_API, "ResourceClaim", status["resourceClaimName"], RAY) or {}
        assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        results = claim["status"]["allocation"]["devices"]["results"]
        assert {each["pool"] for each in results} == {pod["spec"]["nodeName"]}
        given |= {(each["pool"], each["device"]) for each in results}
        (worker,) = pod["spec"]["containers"]
        assert [each["name"] for each in worker["resources"]["claims"]] == [status["name"]]
    assert len(given) == 16
    scale(api, 0, *two)
    api.until("no claim", lambda: not api.list(DEVICE_API, "ResourceClaim", RAY), WITHIN_S)
    api.until("no GPU node", lambda: not gpu_nodes(api), WITHIN_S)
    destroy(stack)
