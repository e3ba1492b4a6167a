"""The stack of Pulumi.gke-dws.yaml: a RayJob waits in Kueue for machines, runs on them, and releases its quota.

Real: Pulumi's engine, the API server, the scheduler, KubeRay's operator 1.6.2 and Kueue 0.19.2 with its webhooks.
Simulated: Google's queue, which answers ProvisioningRequests (without machines until a test adds them), its nodes
(kwok), the networks' webhook, and the head's job API, which reports the end of the entry point. The tests are in the
order of the job's life; each one states what else is shown, and by which component.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.queue_objects import ADMISSION_CHECK, CLUSTER_QUEUE, GPU_FLAVOR, LOCAL_QUEUE
from infra.settings import GkeSettings
from rehearsal.cluster.running_stack import RunningStack
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph
from tests.kubernetes.queries import GPU, RAY, WITHIN_S, condition, gpu_nodes, is_ready, name, pods
from tools.kubernetes.api import Api, Json, NotYet

ROOT = Path(__file__).resolve().parents[2]
POOL = "gpu"
UNPROTECTED = ("protect=false",)
REQUEST = ("autoscaling.x-k8s.io/v1", "ProvisioningRequest")


class WithoutMachines(RunningStack):
    """A stack for which Google has no machines, and whose entry point ends on request of a test."""

    def up(self) -> Graph:
        """Before the RayJob exists, since it could get its machines at once."""
        self.controllers.stock(POOL, out=True)
        self.controllers.dashboard.manual = True
        return super().up()


@pytest.fixture(scope="module")
def stack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("dws") / "stack"
    with WithoutMachines(
        ROOT / "Pulumi.gke-dws.yaml", folder, changes=("protect=false",), plugins=fork_server.bin
    ) as standing:
        yield standing


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
    stack.controllers.stock(POOL, out=False)

    def look() -> list[Json]:
        found = pods(api, "ray.io/node-type=worker")
        if len(found) == nodes and all(map(is_ready, found)):
            return found
        raise NotYet(f"{len(found)} workers; {standing(api)}")

    return api.until("the job's workers", look, WITHIN_S)


def test_queue_objects_are_active(api: Api) -> None:
    """By Kueue's condition of each, after it has checked their references."""
    for kind, called, namespace in (
        ("ClusterQueue", CLUSTER_QUEUE, None),
        ("AdmissionCheck", ADMISSION_CHECK, None),
        ("LocalQueue", LOCAL_QUEUE, RAY),
    ):
        api.until(f"{kind} {called}, active", partial(active, api, kind, called, namespace), WITHIN_S)


def test_queued_job_reserves_quota_without_pods(api: Api, nodes: int) -> None:
    """Kueue suspends it, reserves its quota and requests machines; KubeRay ignores a suspended RayJob. The request
    waits because the simulated queue reports no machines."""
    request = api.until("the request, accepted", lambda: accepted(api), WITHIN_S)
    # Exactly one pod set: GKE refuses more, and the head needs no GPU.
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == nodes
    assert request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert request["spec"]["parameters"]["maxRunDurationSeconds"].isdigit()
    template = api.get("v1", "PodTemplate", pod_set["podTemplateRef"]["name"], RAY)
    assert template is not None
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["limits"][GPU] == "8"
    api.until("the queue's word", lambda: held(api) == 8 * nodes, WITHIN_S)
    (workload,) = workloads(api)
    assert condition(workload, "QuotaReserved")["status"] == "True"
    assert condition(workload, "Admitted").get("status") != "True"
    (check,) = workload["status"]["admissionChecks"]
    assert (check["name"], check["state"]) == (ADMISSION_CHECK, "Pending")
    assert ray_job(api)["spec"]["suspend"] is True
    assert pods(api, "") == []
    assert api.list(RAY_API, "RayCluster", RAY) == []
    assert gpu_nodes(api) == []


def test_second_job_waits_for_quota(api: Api) -> None:
    """Kueue's decision. The webhook has suspended it: it had only the queue's label. The reason is in an event, because
    the workload's condition has only the last try, and Kueue tries the remaining flavors, none of which is for the
    head."""
    other = another(ray_job(api))
    api.create(other)
    try:
        workload = api.until("the other job's workload", lambda: of(api, name(other)), WITHIN_S)
        assert (api.get(RAY_API, "RayJob", name(other), RAY) or {})["spec"]["suspend"] is True

        def refused() -> bool:
            found = condition(of(api, name(other)) or {}, "QuotaReserved")
            events = api.list("events.k8s.io/v1", "Event", RAY)
            notes = [event.get("note", "") for event in events if event["regarding"].get("name") == name(workload)]
            if found.get("status") == "False" and any(f"insufficient unused quota for {GPU}" in note for note in notes):
                return True
            raise NotYet(f"{found}; {notes}")

        api.until("Kueue's reason", refused, WITHIN_S)
        assert len(api.list(*REQUEST, RAY)) == 1
    finally:
        api.delete(RAY_API, "RayJob", name(other), RAY)
    api.until("its workload gone", lambda: api.get(KUEUE_API, "Workload", name(workload), RAY) is None, WITHIN_S)


def test_granted_workers_run_on_requested_nodes(api: Api, granted: list[Json], nodes: int) -> None:
    """Kueue starts it, KubeRay creates its cluster, the scheduler places it; the nodes are simulated."""
    assert len({pod["spec"]["nodeName"] for pod in granted}) == nodes == len(gpu_nodes(api))
    (request,) = api.list(*REQUEST, RAY)
    for pod in granted:
        annotations = pod["metadata"]["annotations"]
        consumed = [value for key, value in annotations.items() if key.endswith("/consume-provisioning-request")]
        assert consumed == [name(request)] or set(consumed) == {name(request)}
    (head,) = pods(api, "ray.io/node-type=head")
    node = api.get("v1", "Node", head["spec"]["nodeName"])
    assert node is not None
    assert GPU not in node["status"]["capacity"]
    (workload,) = workloads(api)
    assert condition(workload, "Admitted")["status"] == "True"
    api.until("the quota held", lambda: held(api) == 8 * nodes, WITHIN_S)


def test_entry_point_is_submitted_with_token(stack: RunningStack, api: Api, granted: list[Json]) -> None:
    """By KubeRay, over HTTP, to the stub of the head's job API, which knows the token from the cluster's Secret."""
    assert granted
    api.until("a job handed in", lambda: bool(stack.controllers.dashboard.jobs), WITHIN_S)
    (job,) = stack.controllers.dashboard.jobs
    assert job.request["entrypoint"] == ray_job(api)["spec"]["entrypoint"]
    stack.controllers.dashboard.change(job.id, "RUNNING")
    api.until("a running job", lambda: ray_job(api)["status"].get("jobStatus") == "RUNNING", WITHIN_S)


def test_preview_is_empty_while_job_runs(stack: RunningStack, granted: list[Json]) -> None:
    """Kueue and KubeRay have written to the RayJob and to the queue's objects."""
    assert granted
    said = stack.engine.preview("--refresh")
    assert said.ok, said.text


def test_quota_is_released_after_job(stack: RunningStack, api: Api, granted: list[Json]) -> None:
    """KubeRay gets the end from the stub of the job API, Kueue ends the workload, and the next one gets the quota. No
    pod keeps a machine that the next one may request: KubeRay deletes the cluster at once."""
    assert granted
    (job,) = stack.controllers.dashboard.jobs
    stack.controllers.dashboard.change(job.id, "SUCCEEDED", "Job finished successfully.")
    api.until(
        "the end of the RayJob", lambda: ray_job(api)["status"].get("jobDeploymentStatus") == "Complete", WITHIN_S
    )
    assert ray_job(api)["status"]["jobStatus"] == "SUCCEEDED"
    api.until("the quota back", lambda: held(api) == 0, WITHIN_S)
    (workload,) = workloads(api)
    assert condition(workload, "Finished")["status"] == "True"
    api.until("the pods to go", lambda: not pods(api, "ray.io/cluster"), WITHIN_S)
    assert api.list(RAY_API, "RayCluster", RAY) == []


def test_stack_goes_down_without_leftovers(stack: RunningStack) -> None:
    """Kueue's finalizers on its queues and on the workload do not block the stack's objects."""
    stack.phases.delete_one_by_one(stack.engine, stack.graph)
    said = stack.engine.destroy()
    assert said.ok, said.text
    assert stack.phases.left() == []
    stack.controllers.check()


def active(api: Api, kind: str, called: str, namespace: str | None) -> bool:
    """Return True if Kueue's Active condition of an object is true; otherwise raise NotYet with the condition."""
    found = condition(api.get(KUEUE_API, kind, called, namespace) or {}, "Active")
    if found.get("status") == "True":
        return True
    raise NotYet(str(found))


def ray_job(api: Api) -> Json:
    """Return the stack's RayJob."""
    (found,) = api.list(RAY_API, "RayJob", RAY)
    return found


def workloads(api: Api) -> list[Json]:
    return api.list(KUEUE_API, "Workload", RAY)


def of(api: Api, job: str) -> Json | None:
    """Return Kueue's Workload of a job."""
    return next((each for each in workloads(api) if each["metadata"]["ownerReferences"][0]["name"] == job), None)


def another(job: Json) -> Json:
    """Return the same job as another user would submit it: not suspended, with the queue's label."""
    its = job["metadata"]
    metadata = {"name": "another", "namespace": RAY, "labels": its["labels"], "annotations": its["annotations"]}
    spec = {key: value for key, value in job["spec"].items() if key not in ("suspend", "jobId")}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata, "spec": spec}


def held(api: Api) -> int:
    """Return the GPUs reserved in the ClusterQueue; Kueue writes the number a moment after its decision."""
    queue = api.get(KUEUE_API, "ClusterQueue", CLUSTER_QUEUE)
    assert queue is not None
    flavors = {flavor["name"]: flavor["resources"] for flavor in queue["status"].get("flavorsReservation", [])}
    return sum(int(each["total"]) for each in flavors.get(GPU_FLAVOR, []) if each["name"] == GPU)


def accepted(api: Api) -> Json | None:
    return next((each for each in api.list(*REQUEST, RAY) if condition(each, "Accepted").get("status") == "True"), None)


def standing(api: Api) -> str:
    """Return the status of the job, for the message of a timeout."""
    events_of = [
        f"{each['type']} {each['status']}: {each.get('message')}"
        for body in (*workloads(api), *api.list(*REQUEST, RAY))
        for each in body.get("status", {}).get("conditions", [])
    ]
    return "; ".join(events_of)
