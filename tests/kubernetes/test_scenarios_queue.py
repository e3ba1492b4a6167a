"""The stack of Pulumi.gke-dws.yaml: a RayJob waits in Kueue for machines, runs on them, and releases its quota.

Real: Pulumi's engine, the API server, the scheduler, KubeRay's operator 1.6.2 and Kueue 0.19.2 with its webhooks.
Simulated: Google's queue, which answers ProvisioningRequests (without machines until a test adds them), its nodes
(kwok), the networks' webhook, and the head's job API, which reports the end of the entry point. The tests are in the
order of the job's life; each one states what else is shown, and by which component.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.queue_objects import ADMISSION_CHECK
from infra.settings import GkeSettings
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from tests.kubernetes.queries import (
    GPU,
    RAY,
    WITHIN_S,
    condition,
    destroy,
    gpu_nodes,
    head,
    is_ready,
    name,
    pods,
    until_reserved,
    workers,
    workload,
)
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api, ApiError, Json, NotYet

POOL = "gpu"
REQUEST = ("autoscaling.x-k8s.io/v1", "ProvisioningRequest")


def without_machines(controllers: CloudControllers) -> None:
    """Google has no machines, which the RayJob could get at once, and its entry point ends on request of a test."""
    controllers.autoscaler.out_of_stock.add(POOL)
    controllers.dashboard.manual = True


@pytest.fixture(scope="module")
def stack(run_stack: Callable[..., RunningStack]) -> RunningStack:
    return run_stack("gke-dws", before=without_machines)


@pytest.fixture(scope="module")
def api(stack: RunningStack) -> Api:
    return stack.api


@pytest.fixture(scope="module")
def nodes(stack: RunningStack) -> int:
    """The number of requested nodes."""
    assert isinstance(stack.settings, GkeSettings)
    return stack.settings.nodes.max


@pytest.fixture(scope="module")
def granted(stack: RunningStack, api: Api, nodes: int) -> list[Json]:
    """The job's worker pods, after Google has granted machines."""
    stack.controllers.autoscaler.out_of_stock.remove(POOL)

    def look() -> list[Json]:
        found = workers(api)
        if len(found) == nodes and all(map(is_ready, found)):
            return found
        waiting = [its.get("status", {}) for its in (*api.list(*REQUEST, RAY), *api.list(KUEUE_API, "Workload", RAY))]
        raise NotYet(f"{len(found)} workers; {waiting}")

    return api.until("the job's workers", look, WITHIN_S)


def test_queued_job_reserves_quota_without_pods(api: Api, nodes: int) -> None:
    """Kueue suspends it, reserves its quota and requests machines; KubeRay ignores a suspended RayJob. The request
    waits because the simulated queue reports no machines."""

    def accepted() -> Json | None:
        found = api.list(*REQUEST, RAY)
        return next((each for each in found if condition(each, "Accepted").get("status") == "True"), None)

    request = api.until("the request, accepted", accepted, WITHIN_S)
    # Exactly one pod set: GKE refuses more, and the head needs no GPU.
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == nodes
    assert request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert request["spec"]["parameters"]["maxRunDurationSeconds"].isdigit()
    template = api.get("v1", "PodTemplate", pod_set["podTemplateRef"]["name"], RAY) or {}
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["limits"][GPU] == "8"
    until_reserved(api, 8 * nodes)
    found = workload(api, name(ray_job(api)))
    assert condition(found, "QuotaReserved")["status"] == "True"
    assert condition(found, "Admitted").get("status") != "True"
    (check,) = (found or {})["status"]["admissionChecks"]
    assert (check["name"], check["state"]) == (ADMISSION_CHECK, "Pending")
    assert ray_job(api)["spec"]["suspend"] is True
    assert pods(api) == api.list(RAY_API, "RayCluster", RAY) == gpu_nodes(api) == []


def test_second_job_waits_for_quota(api: Api) -> None:
    """Kueue's decision. The webhook has suspended it: it had only the queue's label. The reason is in an event, because
    the workload's condition has only the last try, and Kueue tries the remaining flavors, none of which is for the
    head."""
    # As another user would submit it.
    first = ray_job(api)
    metadata = {key: first["metadata"][key] for key in ("namespace", "labels", "annotations")} | {"name": "another"}
    spec = {key: value for key, value in first["spec"].items() if key not in ("suspend", "jobId")}
    assert api.create(first | {"metadata": metadata, "spec": spec})["spec"]["suspend"] is True
    try:
        waiting = api.until("the other job's workload", lambda: workload(api, "another"), WITHIN_S)

        def refused() -> bool:
            found = condition(workload(api, "another"), "QuotaReserved")
            events = api.list("events.k8s.io/v1", "Event", RAY)
            notes = [event.get("note", "") for event in events if event["regarding"].get("name") == name(waiting)]
            if found.get("status") == "False" and any(f"insufficient unused quota for {GPU}" in note for note in notes):
                return True
            raise NotYet(f"{found}; {notes}")

        api.until("Kueue's reason", refused, WITHIN_S)
        assert len(api.list(*REQUEST, RAY)) == 1
    finally:
        api.delete(RAY_API, "RayJob", "another", RAY)
    api.until("its workload gone", lambda: workload(api, "another") is None, WITHIN_S)


def test_wrong_request_is_refused_or_fails(api: Api, nodes: int) -> None:
    """By the simulated queue: GKE refuses a request with several pod sets, and fails one that no pool can serve."""
    (request,) = api.list(*REQUEST, RAY)
    first = request["spec"]["podSets"][0]

    def other(*pod_sets: Json) -> None:
        metadata = {"name": "other", "namespace": RAY}
        own = {key: request[key] for key in ("apiVersion", "kind")}
        api.create(own | {"metadata": metadata, "spec": request["spec"] | {"podSets": pod_sets}})

    with pytest.raises(ApiError, match="currently supports only single PodSet per request"):
        other(first, first)
    other(first | {"count": nodes + 1})
    try:
        seen = api.until("the end of the request", lambda: failure(api, "other"), WITHIN_S)
    finally:
        api.delete(*REQUEST, "other", RAY)
    assert seen == f"Max nodepool size reached, affected nodepools: {POOL}"


def failure(api: Api, request: str) -> str | None:
    """Return why a ProvisioningRequest failed, or None."""
    failed = condition(api.get(*REQUEST, request, RAY), "Failed")
    return failed["message"] if failed.get("status") == "True" else None


def test_granted_workers_run_on_requested_nodes(stack: RunningStack, api: Api, granted: list[Json], nodes: int) -> None:
    """Kueue starts it, KubeRay creates its cluster, the scheduler places it; the nodes are simulated. No pool grows for
    pods that use a request."""
    assert len({pod["spec"]["nodeName"] for pod in granted}) == nodes == len(gpu_nodes(api))
    (request,) = api.list(*REQUEST, RAY)
    for pod in granted:
        annotations = pod["metadata"]["annotations"].items()
        assert {value for key, value in annotations if key.endswith("/consume-provisioning-request")} == {name(request)}
    assert head(api)["spec"]["nodeName"] not in {name(node) for node in gpu_nodes(api)}
    assert condition(workload(api, name(ray_job(api))), "Admitted")["status"] == "True"
    until_reserved(api, 8 * nodes)
    assert not [event for event in stack.controllers.events if event.kind == "NodesWanted" and event.pool == POOL]


@pytest.mark.usefixtures("granted")
def test_preview_is_empty_while_job_runs(stack: RunningStack, api: Api) -> None:
    """Kueue and KubeRay have written to the RayJob and to the queue's objects. KubeRay has submitted the entry point
    over HTTP, with the token of the cluster's Secret, to the stub of the head's job API."""
    dashboard = stack.controllers.dashboard
    (job,) = api.until("a job handed in", lambda: dashboard.jobs or None, WITHIN_S)
    assert job.request["entrypoint"] == ray_job(api)["spec"]["entrypoint"]
    dashboard.change(job.id, "RUNNING")
    api.until("a running job", lambda: ray_job(api)["status"].get("jobStatus") == "RUNNING", WITHIN_S)
    said = stack.engine.preview()
    assert said.ok, said.text


@pytest.mark.usefixtures("granted")
def test_quota_is_released_after_job(stack: RunningStack, api: Api) -> None:
    """KubeRay gets the end from the stub of the job API, Kueue ends the workload, and the next one gets the quota. No
    pod keeps a machine that the next one may request: KubeRay deletes the cluster at once."""
    (job,) = stack.controllers.dashboard.jobs
    stack.controllers.dashboard.change(job.id, "SUCCEEDED", "Job finished successfully.")

    def complete() -> bool:
        return bool(ray_job(api)["status"].get("jobDeploymentStatus") == "Complete")

    api.until("the end of the RayJob", complete, WITHIN_S)
    assert ray_job(api)["status"]["jobStatus"] == "SUCCEEDED"
    until_reserved(api, 0)
    assert condition(workload(api, name(ray_job(api))), "Finished")["status"] == "True"
    api.until("the pods to go", lambda: not pods(api, "ray.io/cluster"), WITHIN_S)
    assert api.list(RAY_API, "RayCluster", RAY) == []


@pytest.mark.usefixtures("granted")
def test_queued_jobs_run_on_their_own_nodes_only(stack: RunningStack, api: Api) -> None:
    """By the selector that Kueue gives the pods of each request. The nodes of the second request have not joined when
    it is provisioned, and the node of the first one has room: its pod waits."""

    def submit(called: str) -> Json:
        """Create another user's Job of one GPU; return its request when Google has accepted it."""
        resources = {"requests": {"cpu": "1", "memory": "1Gi", GPU: "1"}, "limits": {GPU: "1"}}
        tolerations = [{"key": GPU, "operator": "Exists"}]
        pod = {"containers": [{"name": "work", "image": "work", "resources": resources}], "tolerations": tolerations}
        metadata = {
            "name": called,
            "namespace": RAY,
            "labels": {"kueue.x-k8s.io/queue-name": "gpu"},
            "annotations": {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "3600"},
        }
        spec = {"suspend": True, "template": {"spec": {**pod, "restartPolicy": "Never"}}}
        api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

        def accepted() -> Json | None:
            found = [each for each in api.list(*REQUEST, RAY) if f"job-{called}-" in name(each)]
            return next((each for each in found if condition(each, "Accepted").get("status") == "True"), None)

        return api.until(f"the request of {called}", accepted, WITHIN_S)

    def decided(called: str, status: str) -> Json | None:
        """Return the Job's pod once the scheduler has placed it ("True") or found no node for it ("False")."""
        found = pods(api, f"batch.kubernetes.io/job-name={called}")
        return next((pod for pod in found if condition(pod, "PodScheduled").get("status") == status), None)

    api.until("no node of the RayJob", lambda: not gpu_nodes(api), WITHIN_S)
    submit("one")
    one = api.until("the pod of one on a node", lambda: decided("one", "True"), WITHIN_S)
    assert [one["spec"]["nodeName"]] == [name(node) for node in gpu_nodes(api)]
    stack.controllers.autoscaler.out_of_stock.add(POOL)
    request = submit("two")
    provisioned = {**condition(request, "Provisioned"), "status": "True", "reason": "Provisioned"}
    others = [each for each in request["status"]["conditions"] if each["type"] != "Provisioned"]
    changed = {"status": {"conditions": [*others, provisioned]}}
    api.patch(*REQUEST, name(request), RAY, changed, subresource="status")
    api.until("the pod of two without a node", lambda: decided("two", "False"), 30.0)
    assert [one["spec"]["nodeName"]] == [name(node) for node in gpu_nodes(api)]
    for called in ("one", "two"):
        api.delete("batch/v1", "Job", called, RAY, propagation="Foreground")


def test_stack_goes_down_without_leftovers(stack: RunningStack) -> None:
    """Kueue's finalizers on its queues and on the workload do not block the stack's objects."""
    stack.phases.delete_one_by_one(stack.engine, stack.graph)
    destroy(stack)


def ray_job(api: Api) -> Json:
    """Return the stack's RayJob."""
    return next(each for each in api.list(RAY_API, "RayJob", RAY) if name(each) != "another")
