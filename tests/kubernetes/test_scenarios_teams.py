"""Two teams on one stack: what their members may do and see, and what Kueue does with the nodes that they lend.

Real: Pulumi's engine, the API server with its admission policies, the scheduler, KubeRay's operator 1.6.2 and Kueue
0.19.2 with its webhooks. Simulated: nodes (kwok) and Google Cloud's controllers. Members are users of the teams'
groups, whom the tests' client impersonates; their jobs are what `rdma-ray render` prints. The tests are in the order of
the stack's life.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.catalog.names import NAMESPACE, OUTPUTS_KEY, outputs_secret
from infra.catalog.pins import KUEUE_API, RAY_API
from infra.catalog.pins import RAY as VERSION
from infra.kubernetes.queue_objects import QUEUE_LABEL
from infra.kubernetes.workload_objects import every_object
from infra.plan import ray_args
from infra.settings import GkeSettings
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from tests.kubernetes.queries import WITHIN_S, condition, destroy, is_ready, member, name, pods, rights, workload
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

VISION, NLP = "vision", "nlp"
TEXT = "text"
"""Namespace of team nlp."""
TEAMS = [
    {"name": VISION, "quota": 1, "group": "vision@example.com"},
    {"name": NLP, "quota": 2, "namespace": TEXT, "group": "nlp@example.com"},
]
ALL_NODES = 4
RAY, HEAD, WORKER = "gke-ray", "ray.io/node-type=head", "ray.io/node-type=worker"
TORCHRUN = ("--", "torchrun", "/app/train.py")


def without_ends(controllers: CloudControllers) -> None:
    """No entry point ends."""
    controllers.dashboard.manual = True


@pytest.fixture(scope="module")
def stack(run_stack: Callable[..., RunningStack]) -> RunningStack:
    """The stack, when the head of each Ray cluster is ready."""
    stack = run_stack(
        "gke",
        before=without_ends,
        nodes={"max": ALL_NODES},
        cluster={"systemNodes": 5},
        queue="kueue",
        ray={"minWorkers": 0, "image": f"example/ray:{VERSION}-py311-cu130"},
        teams=TEAMS,
    )

    def heads() -> bool:
        found = [is_ready(pod) for space in (NAMESPACE, VISION, TEXT) for pod in pods(stack.api, HEAD, space)]
        return found == [True] * 3

    stack.api.until("three heads", heads, WITHIN_S)
    return stack


@pytest.fixture(scope="module")
def vision(stack: RunningStack) -> Api:
    return member(stack.plane, "vision@example.com")


@pytest.fixture(scope="module")
def nlp(stack: RunningStack) -> Api:
    return member(stack.plane, "nlp@example.com")


def rendered(stack: RunningStack, team: str, called: str, nodes: int, mode: Any = "job") -> list[Json]:
    """Return what `rdma-ray render` prints for a job of a team."""
    (file,) = stack.engine.workspace.folder.glob("Pulumi.*.yaml")
    options = ManifestOptions(stack_file=file, team=team, name=called)
    return manifests(mode, Request.of(("run", "--nodes", str(nodes), *TORCHRUN)), options)


def refused(send: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the answer of the API server, which must refuse."""
    with pytest.raises(ApiError) as refusal:
        send(*arguments, **options)
    assert refusal.value.status in (403, 422), str(refusal.value)
    return refusal.value.message


def until_runs(api: Api, job: str, namespace: str, nodes: int) -> None:
    """Wait until Kueue has admitted a RayJob and each of its workers is on a node."""

    def look() -> bool:
        found = pods(api, WORKER, namespace)
        its = [pod for pod in found if pod["metadata"]["labels"]["ray.io/cluster"].startswith(job) and is_ready(pod)]
        if condition(workload(api, job, namespace), "Admitted").get("status") == "True" and len(its) == nodes:
            return True
        raise NotYet(f"{len(its)} workers; {(workload(api, job, namespace) or {}).get('status')}")

    api.until(f"{job} on {nodes} nodes", look, WITHIN_S)


def test_members_have_no_right_outside_their_namespace(stack: RunningStack, vision: Api, nlp: Api) -> None:
    outsider = member(stack.plane, "others@example.com")
    spaces = {each["metadata"]["name"] for each in stack.api.list("v1", "Namespace")}
    assert {NAMESPACE, VISION, TEXT} < spaces
    for own, of_team in ((VISION, vision), (TEXT, nlp)):
        for space in sorted(spaces - {own}):
            assert rights(of_team, space) == rights(outsider, space)
        assert rights(of_team, own) > rights(outsider, own)


def test_member_reads_the_token_of_her_team_only(stack: RunningStack, vision: Api, nlp: Api) -> None:
    tokens = set()
    for own, other, of_team in ((VISION, TEXT, vision), (TEXT, VISION, nlp)):
        found = of_team.get("v1", "Secret", outputs_secret(RAY), own) or {}
        outputs = json.loads(base64.b64decode(found["data"][OUTPUTS_KEY]))
        assert (outputs["namespace"], outputs.get("kubeconfig"), outputs.get("teams")) == (own, None, None)
        tokens.add(outputs["ray"]["token"])
        for space in (other, NAMESPACE):
            for secret in stack.api.list("v1", "Secret", space):
                assert "forbidden" in refused(of_team.get, "v1", "Secret", name(secret), space)
        assert "forbidden" in refused(of_team.list, "v1", "Secret", own)
        head = name(pods(stack.api, HEAD, other)[0])
        for access in ("exec", "portforward"):
            path = f"/api/v1/namespaces/{other}/pods/{head}/{access}"
            assert "forbidden" in refused(of_team.request, "POST", path)
    assert len(tokens) == 2
    known = {
        base64.b64decode(value).decode()
        for secret in stack.api.list("v1", "Secret", NAMESPACE)
        for value in secret["data"].values()
    }
    assert tokens.isdisjoint(known)


def test_member_cannot_change_quotas_or_leave_the_queue(stack: RunningStack, vision: Api) -> None:
    api = stack.api
    for version, kind, called, space in (
        (KUEUE_API, "ClusterQueue", VISION, None),
        (KUEUE_API, "LocalQueue", "gpu", VISION),
        (KUEUE_API, "Workload", name(api.list(KUEUE_API, "Workload", VISION)[0]), VISION),
        (RAY_API, "RayCluster", RAY, VISION),
        ("v1", "Namespace", VISION, None),
    ):
        assert "forbidden" in refused(vision.patch, version, kind, called, space, {})
    job = rendered(stack, VISION, "loose", 1)[-1]
    for labels in ({}, {QUEUE_LABEL: ""}, {QUEUE_LABEL: "other"}):
        loose = job | {"metadata": job["metadata"] | {"labels": labels}}
        assert f"must have the label {QUEUE_LABEL}: gpu" in refused(vision.create, loose)
    elsewhere = job | {"metadata": job["metadata"] | {"namespace": TEXT}}
    assert "forbidden" in refused(vision.create, elsewhere)
    more = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "a", "namespace": VISION},
    }
    may = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    assert "attempting to grant RBAC permissions not currently held" in refused(vision.create, more | {"rules": [may]})


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("Pod", {"priorityClassName": "system-node-critical"}, "must not have the priority of a system"),
        ("Service", {"type": "LoadBalancer", "ports": [{"port": 8265}]}, "must not be reachable from outside"),
        ("Service", {"externalIPs": ["192.0.2.1"], "ports": [{"port": 8265}]}, "must not be reachable from outside"),
    ],
)
def test_what_kuberay_makes_of_a_members_job_is_restricted(
    stack: RunningStack, kind: str, spec: Json, why: str
) -> None:
    """The policy counts for the administrator of these tests as for KubeRay's account."""
    pod = {"containers": [{"name": "main", "image": "example/busybox"}]} if kind == "Pod" else {}

    def body(namespace: str) -> Json:
        metadata = {"name": "asked", "namespace": namespace}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pod | spec}

    assert why in refused(stack.api.create, body(VISION), dry_run=True)
    stack.api.create(body("default"), dry_run=True)


def test_members_job_borrows_and_gives_back(stack: RunningStack, vision: Api, nlp: Api) -> None:
    """vision's RayJob takes all nodes, nlp's evicts it within nlp's quota, and it runs again after nlp's."""
    for body in rendered(stack, VISION, "large", ALL_NODES):
        vision.create(body)
    until_runs(stack.api, "large", VISION, ALL_NODES)
    for body in rendered(stack, NLP, "owner", 2):
        nlp.create(body)
    until_runs(stack.api, "owner", TEXT, 2)
    evicted = workload(stack.api, "large", VISION)
    assert condition(evicted, "Preempted")["reason"] == "InCohortReclamation"
    assert condition(evicted, "QuotaReserved")["status"] == "False"
    nlp.delete(RAY_API, "RayJob", "owner", TEXT)
    until_runs(stack.api, "large", VISION, ALL_NODES)


def test_ray_cluster_of_a_team_takes_its_nodes_back(stack: RunningStack, vision: Api) -> None:
    """Ray's autoscaler asks for nlp's two nodes while vision's job has borrowed them."""
    api = stack.api
    more = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    api.patch(RAY_API, "RayCluster", RAY, TEXT, more, type="json")

    def has_them() -> bool:
        found = [pod for pod in pods(api, WORKER, TEXT) if is_ready(pod)]
        if len(found) == 2:
            return True
        raise NotYet(f"{len(found)} workers; {[each.get('status') for each in api.list(KUEUE_API, 'Workload', TEXT)]}")

    api.until("two workers of nlp's Ray", has_them, WITHIN_S)
    assert condition(workload(api, "large", VISION), "Preempted")["reason"] == "InCohortReclamation"
    vision.delete(RAY_API, "RayJob", "large", VISION)


def test_job_above_what_is_unused_evicts_nobody(stack: RunningStack, vision: Api) -> None:
    """nlp's Ray is within its quota: vision's job of more nodes than nlp leaves waits."""
    vision.create(rendered(stack, VISION, "greedy", ALL_NODES - 1, "indexed-job")[-1])

    def unadmitted() -> bool:
        found = condition(workload(stack.api, "greedy", VISION), "QuotaReserved")
        if found.get("status") == "False":
            return True
        raise NotYet(str(found))

    stack.api.until("Kueue's answer", unadmitted, WITHIN_S)
    assert len([pod for pod in pods(stack.api, WORKER, TEXT) if is_ready(pod)]) == 2
    vision.delete("batch/v1", "Job", "greedy", VISION)


def test_role_covers_what_render_prints(stack: RunningStack) -> None:
    """Without a time limit, whose role gives more than members have."""
    settings = stack.settings
    assert isinstance(settings, GkeSettings)
    role = next(
        each for each in every_object(ray_args(settings.for_team(settings.teams[0]), "a")) if each["kind"] == "Role"
    )
    may = {
        (group, kind)
        for rule in role["rules"]
        if "create" in rule["verbs"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    for mode in ("job", "indexed-job"):
        for body in rendered(stack, VISION, "all", 1, mode):
            served = stack.api.kind(body["apiVersion"], body["kind"])
            assert (body["apiVersion"].rpartition("/")[0], served.plural) in may


def test_second_preview_is_empty_and_destroy_leaves_nothing(stack: RunningStack) -> None:
    assert stack.engine.preview().ok
    destroy(stack)
