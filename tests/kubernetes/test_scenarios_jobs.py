"""The Jobs of the EKS stack: nccl-tests, whose launcher logs into its pods by their host names, and the Indexed Job.

Real: the API server, the Job controller, the EndpointSlice controller and the scheduler. Simulated: nodes and the
addresses of pods (kwok), and the DNS server: this file applies its documented rules to what the controllers wrote
(https://github.com/kubernetes/dns, specification 1.1.0, read 2026-11). No container runs, so no name is resolved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.catalog.names import JOB_INDEX, JOB_NAME
from infra.nccl_job import Sweep, nccl_job
from infra.settings import parse
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import GPU, RAY, WITHIN_S, condition, is_ready, name, pods, problems, unresolved
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane
from workloads.nccl.job_manifest import key_secret, manifests

ROOM = {"cpu": "192", "memory": "2000Gi", "ephemeral-storage": "3000Gi", "pods": "110", "hugepages-2Mi": "64Gi"}
DEVICES = {GPU: "8", "vpc.amazonaws.com/efa": "16"}


def test_nccl_job_pods_have_the_names_that_mpirun_looks_up(plane: ControlPlane) -> None:
    """Host names by the Job controller, endpoints by the EndpointSlice controller; each pod has its own node by its
    anti-affinity and requests."""
    api = plane.api
    ours = next(ours for stack, ours, _ in stack_objects.stacks() if stack == "eks")
    job = nccl_job(parse(ours), Sweep())
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RAY}})
    objects = [key_secret(job, "private", "ssh-ed25519 public"), *manifests(job)]
    with running(api, *objects) as found:
        assert len({pod["spec"]["nodeName"] for pod in found}) == len(found) >= 2
        expected = {}
        for pod in found:
            assert unresolved(api, pod) == []
            environment = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
            host = f"{environment['RDMA_RAY_JOB']}-{pod['metadata']['labels'][JOB_INDEX]}"
            expected[f"{host}.{environment['RDMA_RAY_SERVICE']}"] = {pod["status"]["podIP"]}

        def named() -> bool:
            if expected.items() <= (names := resolved(api)).items():
                return True
            raise NotYet(str(names))

        # The controller of endpoints follows the pods.
        api.until(f"the names {expected}", named, WITHIN_S)


def test_indexed_job_ends_with_the_first_pod_at_its_deadline(plane: ControlPlane) -> None:
    """The Job controller ends the other pods. The test writes the status with which a kubelet ends a pod at its
    activeDeadlineSeconds (kubernetes: pkg/kubelet/active_deadline.go, v1.36.1); kwok does not know deadlines."""
    api = plane.api
    ours, theirs = next((ours, theirs) for stack, ours, theirs in stack_objects.stacks() if stack == "eks, Indexed Job")
    limited = ours | {"nodes": ours["nodes"] | {"maxHours": 24}}
    objects = {kind: body for body in stack_objects.registered(limited, theirs, "eks") if (kind := body["kind"])}
    for kind in ("Namespace", "ServiceAccount"):
        api.apply(objects[kind])
    body = objects["Job"]
    with running(api, body) as (first, *others):
        assert others
        assert {pod["spec"]["activeDeadlineSeconds"] for pod in (first, *others)} == {24 * 3600}
        (container,) = first["status"]["containerStatuses"]
        ended = container | {"ready": False, "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
        status = {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": [ended]}
        path = f"/api/v1/namespaces/{RAY}/pods/{name(first)}/status"
        api.request("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")

        def failed() -> bool:
            found = condition(api.get("batch/v1", "Job", name(body), RAY), "Failed")
            running = [pod for pod in pods(api, f"{JOB_NAME}={name(body)}") if pod["status"]["phase"] != "Failed"]
            if found.get("status") == "True" and not running:
                return True
            raise NotYet(f"{found}; {list(map(name, running))}")

        api.until("the failed Job", failed, WITHIN_S)


@contextmanager
def running(api: Api, *objects: Json) -> Iterator[list[Json]]:
    """Apply a Job and what it needs, and create a node for each of its pods; yield the pods when all are ready. Delete
    all of it at the end: other tests apply a Job of the same name."""
    (job,) = (body for body in objects if body["kind"] == "Job")
    selected = job["spec"]["template"]["spec"]["nodeSelector"]
    nodes = [f"{name(job)}-{index}" for index in range(job["spec"]["completions"])]

    def ready() -> list[Json]:
        found = pods(api, f"{JOB_NAME}={name(job)}")
        if len(found) == len(nodes) and all(map(is_ready, found)):
            return found
        raise NotYet(problems(api))

    try:
        for body in objects:
            api.apply(body)
        for node in nodes:
            metadata = {"name": node, "labels": selected | {"kubernetes.io/hostname": node}}
            # With its status from the start: kwok writes its own amounts to a node without them.
            status = {"capacity": ROOM | DEVICES, "allocatable": ROOM | DEVICES}
            api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
        yield api.until("the Job's pods", ready, WITHIN_S)
    finally:
        for body in objects:
            api.delete(body["apiVersion"], body["kind"], name(body), RAY, propagation="Foreground")
        for node in nodes:
            api.delete("v1", "Node", node)


def resolved(api: Api) -> dict[str, set[str]]:
    """Return every name of a pod that DNS would resolve in Ray's namespace ("HOST.SERVICE"), with its addresses."""
    found: dict[str, set[str]] = {}
    for service in api.list("v1", "Service", RAY):
        assert service["spec"]["clusterIP"] == "None"
        selector = f"kubernetes.io/service-name={name(service)}"
        for part in api.list("discovery.k8s.io/v1", "EndpointSlice", RAY, selector):
            for endpoint in part.get("endpoints") or []:
                if endpoint["conditions"].get("ready") or service["spec"].get("publishNotReadyAddresses"):
                    found.setdefault(f"{endpoint['hostname']}.{name(service)}", set()).update(endpoint["addresses"])
    return found
