"""Jobs without Ray's operator: the Indexed Job and the nccl-tests Job, as the stack file of EKS defines them.

Real: the API server, the Job controller, the EndpointSlice controller and the scheduler. Simulated: nodes and the
addresses of pods (kwok), and the DNS server: this file applies its documented rules to what the controllers wrote
(https://github.com/kubernetes/dns, specification 1.1.0, read 2026-11). No container runs, so no name is resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from infra.kubernetes.nccl_job import JOB_NAME, Sweep, nccl_job
from infra.kubernetes.nccl_job_manifest import key_secret
from infra.kubernetes.pods import JOB_INDEX
from infra.settings import parse
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import GPU, RAY, WITHIN_S, is_ready, name, pods, unresolved
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane

STACK = "eks, Indexed Job"
INDEXED_JOB, NCCL_JOB = "eks-ray", "nccl-all-gather"
DOMAIN = "svc.cluster.local"


@pytest.fixture(scope="module")
def jobs(plane: ControlPlane) -> Iterator[Mapping[str, Json]]:
    """Both Jobs, applied before there is a node; by name."""
    api = plane.api
    objects = sorted(stack_objects.of(STACK), key=lambda body: (body["kind"] != "Namespace", body["kind"] == "Job"))
    ours = next(ours for each, ours, _ in stack_objects.stacks() if each == STACK)
    job = nccl_job(parse(ours), Sweep())
    for body in [*objects, key_secret(job, "private", "ssh-ed25519 public")]:
        api.apply(body)
    found = {name(body): body for body in objects if body["kind"] == "Job"}
    made = [api.apply(node(index, body)) for body in found.values() for index in range(body["spec"]["completions"])]
    for body in made:
        resources = {
            "cpu": "192",
            "memory": "2000Gi",
            "ephemeral-storage": "3000Gi",
            "pods": "110",
            "hugepages-2Mi": "64Gi",
        }
        resources |= {GPU: "8", "vpc.amazonaws.com/efa": "16"}
        status = {"status": {"capacity": resources, "allocatable": resources}}
        api.patch("v1", "Node", name(body), None, status, subresource="status")
    yield found
    for body in objects:
        if body["kind"] != "Namespace":
            api.delete(body["apiVersion"], body["kind"], name(body), RAY, propagation="Foreground")
    for body in made:
        api.delete("v1", "Node", name(body))


def node(index: int, job: Json) -> Json:
    """Return a node for a pod, with the labels that the pod selects."""
    labels = dict(job["spec"]["template"]["spec"]["nodeSelector"])
    called = f"{name(job)}-node-{index}"
    metadata = {"name": called, "labels": labels | {"kubernetes.io/hostname": called, "test": "jobs"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@pytest.fixture(scope="module")
def running(plane: ControlPlane, jobs: Mapping[str, Json]) -> Mapping[str, list[Json]]:
    """The running pods of each Job in the order of their indexes."""

    def of(job: Json) -> list[Json]:
        def look() -> list[Json] | None:
            found = pods(plane.api, f"{JOB_NAME}={name(job)}")
            return found if len(found) == job["spec"]["completions"] and all(map(is_ready, found)) else None

        found = plane.api.until(f"the pods of {name(job)}", look, WITHIN_S)
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][JOB_INDEX]))

    return {each: of(job) for each, job in jobs.items()}


def test_engine_and_provider_kinds_are_validated(jobs: Mapping[str, Json]) -> None:
    assert sorted(jobs) == [INDEXED_JOB, NCCL_JOB]


@pytest.mark.parametrize("job", [INDEXED_JOB, NCCL_JOB])
def test_pods_have_own_nodes_and_references(plane: ControlPlane, running: Mapping[str, list[Json]], job: str) -> None:
    """The scheduler, by the pods' own anti-affinity and requests; the names by the objects in the API server."""
    assert len({pod["spec"]["nodeName"] for pod in running[job]}) == len(running[job]) >= 2
    assert [unresolved(plane.api, pod) for pod in running[job]] == [[]] * len(running[job])


def test_nccl_job_pods_resolve_by_mpirun_names(plane: ControlPlane, running: Mapping[str, list[Json]]) -> None:
    """Host names by the Job controller, endpoints by the EndpointSlice controller."""
    found = resolved(plane.api)
    for index, pod in enumerate(running[NCCL_JOB]):
        environment = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        wanted = f"{environment['RDMA_RAY_JOB']}-{index}.{environment['RDMA_RAY_SERVICE']}.{RAY}.{DOMAIN}"
        assert found.get(wanted) == {pod["status"]["podIP"]}


def test_indexed_job_workers_resolve_only_pod_0(plane: ControlPlane, running: Mapping[str, list[Json]]) -> None:
    """The same for the host name of the head in each pod; the Service selects pod 0 only."""
    found = resolved(plane.api)
    head, *others = running[INDEXED_JOB]
    for pod in running[INDEXED_JOB]:
        (wanted,) = [
            argument.removeprefix("--head-host=")
            for argument in pod["spec"]["containers"][0]["command"]
            if argument.startswith("--head-host=")
        ]
        full = wanted if wanted.endswith(DOMAIN) else f"{wanted}.{RAY}.{DOMAIN}"
        assert found.get(full) == {head["status"]["podIP"]}
    service = f"{head['spec']['subdomain']}.{RAY}.{DOMAIN}"
    assert found[service] == {head["status"]["podIP"]}
    assert not {pod["status"]["podIP"] for pod in others} & found[service]


def resolved(api: Api) -> dict[str, set[str]]:
    """Return every name of a headless Service in Ray's namespace that DNS would resolve, with its addresses."""
    found: dict[str, set[str]] = {}
    for service in api.list("v1", "Service", RAY):
        if service["spec"].get("clusterIP") != "None":
            continue
        own = f"{name(service)}.{RAY}.{DOMAIN}"
        selector = f"kubernetes.io/service-name={name(service)}"
        for part in api.list("discovery.k8s.io/v1", "EndpointSlice", RAY, selector):
            for endpoint in part.get("endpoints") or []:
                if endpoint["conditions"].get("ready") or service["spec"].get("publishNotReadyAddresses"):
                    found.setdefault(own, set()).update(endpoint["addresses"])
                    if "hostname" in endpoint:
                        found.setdefault(f"{endpoint['hostname']}.{own}", set()).update(endpoint["addresses"])
    return found
