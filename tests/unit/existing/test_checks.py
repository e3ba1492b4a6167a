"""The checks of a cluster that the user has, with made-up answers: hostile ones, and what needs no API server."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.names import STACK_LABEL
from infra.catalog.pins import KUBERNETES_BUILT, KUEUE_API, RAY, RAY_API
from infra.existing.checks import problems
from infra.existing.kubectl import LONGEST, Json, Kubectl, KubectlError, refusal
from infra.existing.nodes import amount
from infra.existing.workload import ray_args
from infra.kubernetes.pods import RayArgs
from infra.settings import KubernetesSettings, Problem, parse
from infra.terminal import UNPRINTABLE
from tests.hostile import ESCAPES
from tests.unit.stacks import changed

FILE: Json = {
    "target": "kubernetes",
    "context": "mine",
    "namespace": "team",
    "nodes": {"gpus": 8, "cpus": 180, "memoryGib": 1800, "selector": ["pool=gpu"]},
    "fabric": "socket",
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "train"}
ALL = {
    "queue": "kueue",
    "localQueue": "team",
    "storage.claim": "shared",
    "ray.secrets": ["token"],
    "ray.volumes": ["data=/data"],
    "ray.priorityClass": "high",
    "fabric": "rdma",
}
NAMESPACE = "/api/v1/namespaces/team"
NODES = "/api/v1/nodes?labelSelector=pool%3Dgpu"
OPERATORS = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname+in+(kuberay-operator,kuberay)"
CONTAINER = {"image": "operator:v1.3.0", "args": ["--watch-namespace", "team"]}
OPERATOR = {
    "metadata": {"name": "operator", "namespace": "kuberay", "labels": {}},
    "spec": {"template": {"spec": {"containers": [CONTAINER]}}},
}
FULL: Json = {
    NAMESPACE: {"status": {"phase": "Active"}},
    "/version": {"major": "1", "minor": "36+"},
    OPERATORS: {"items": [OPERATOR]},
    f"/apis/{RAY_API}": {},
    f"/apis/{KUEUE_API}": {},
    f"/apis/{KUEUE_API}/namespaces/team/localqueues/team": {
        "status": {"conditions": [{"type": "Active", "status": "False", "message": "stopped"}]}
    },
    f"{NAMESPACE}/persistentvolumeclaims/shared": {"spec": {"accessModes": ["ReadWriteOnce"]}},
    f"{NAMESPACE}/persistentvolumeclaims/data": {"spec": {"accessModes": ["ReadWriteMany"]}},
    "/apis/scheduling.k8s.io/v1/priorityclasses/high": {"value": 7},
    NODES: {
        "items": [
            {
                "metadata": {"labels": {"pool": "gpu"}},
                "spec": {"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "190", "memory": "1900Gi", "nvidia.com/gpu": "8"}},
            }
        ]
    },
}
"""Answers with something to report in each of them."""


class Fake(Kubectl):
    """A cluster that gives these answers to reads, or raises them, and refuses objects (part of path and name)."""

    def __init__(self, answers: Json, refused: dict[str, KubectlError] | None = None, *, allowed: Any = True) -> None:
        super().__init__("mine")
        self.answers, self.refused, self.right = answers, refused or {}, allowed
        self.calls: list[str] = []

    def read(self, path: str) -> Json:
        self.calls.append(f"GET {path}")
        answer: Json | Exception = self.answers.get(path, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _post(self, path: str, body: Json) -> Json:
        self.calls.append(f"POST {path}")
        named = f"{path.partition('?')[0]} {body.get('metadata', {}).get('name')}"
        for part, error in self.refused.items():
            if part in named:
                raise error
        return {"status": {"allowed": self.right}}


@cache
def arguments(changes: str) -> RayArgs:
    """Return the arguments of the stack file with changes, as JSON."""
    settings = parse(changed(FILE, json.loads(changes)))
    assert isinstance(settings, KubernetesSettings)
    return ray_args(settings, "mine-ray")


def found(cluster: Fake, changes: Json | None = None) -> list[Problem]:
    """Return the problems of a cluster; each can be printed and is short."""
    args = arguments(json.dumps(changes or {}))
    assert isinstance(args.settings, KubernetesSettings)
    reported = problems(cluster, args, args.settings, "mine")
    for problem in map(str, reported):
        assert not UNPRINTABLE.search(problem)
        assert len(problem) < 1500
    return reported


def paths(reported: list[Problem]) -> list[str]:
    """Return the first setting of each problem."""
    return [problem.settings[0] for problem in reported]


def test_every_answer_is_read() -> None:
    exists = KubectlError("AlreadyExists", "it is there")
    expected = ["context", "localQueue", "storage.claim", "nodes.tolerations"]
    assert paths(found(Fake(FULL, {"/secrets token": exists}), ALL)) == expected


JUNK: tuple[Any, ...] = (None, True, -1, 1e308, "", ESCAPES, "x" * 5000, [], [None, "a", [{}], {}], {}, {"a": {}})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in nested maps and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, each in inner for deeper in places(each, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return nested maps and lists with another value at a path."""
    if not path:
        return other
    if isinstance(value, dict):
        return {key: replaced(each, path[1:], other) if key == path[0] else each for key, each in value.items()}
    return [replaced(each, path[1:], other) if key == path[0] else each for key, each in enumerate(value)]


@pytest.mark.parametrize("path", [path for path in places(FULL) if len(path) > 1], ids=str)
def test_value_of_any_type_is_a_problem_or_ignored(path: tuple[Any, ...]) -> None:
    exists = KubectlError("AlreadyExists", "it is there")
    for junk in JUNK:
        answers = replaced(FULL, path, junk)
        for changes in (ALL, ALL | JOB, {"installKuberay": True}):
            assert len(found(Fake(answers, {"/secrets token": exists}), changes)) <= 6


@pytest.mark.parametrize("path", FULL)
@pytest.mark.parametrize("reason", ["", "Timeout", "InternalError", "NotFound", "Forbidden"])
def test_refused_read_is_at_most_one_problem(path: str, reason: str) -> None:
    empty: Json = {key: {} for key in FULL} | {path: KubectlError(reason, ESCAPES * 500)}
    exists = {"/secrets token": KubectlError("AlreadyExists", "it is there")}
    for changes in (ALL, ALL | JOB):
        assert len(found(Fake(empty, exists), changes)) <= 1


@pytest.mark.parametrize("reason", ["", "Timeout", "InternalError", "Invalid", "BadRequest", "AlreadyExists"])
def test_refused_object_has_one_problem(reason: str) -> None:
    refused = {"/rayclusters": KubectlError(reason, f'admission webhook "{ESCAPES}" denied the request: no\nno.')}
    reported = found(Fake({}, refused))
    assert paths(reported) == ["namespace"]
    assert ".." not in str(reported[0])


@pytest.mark.parametrize(
    ("kind", "reason", "message", "changes", "expected"),
    [
        ("/rayclusters", "NotFound", "no resource", {"installKuberay": True}, None),
        ("/rolebindings", "NotFound", 'roles "x" not found', {"nodes.maxHours": 1}, None),
        (
            "/resourceclaimtemplates",
            "NotFound",
            "no resource",
            {"fabric": "efa-dranet", "nodes.nics": 8},
            "refuses the",
        ),
        (
            "/secrets",
            "Forbidden",
            'secrets is forbidden: User "a" cannot create',
            {},
            "lack these rights: create secrets.",
        ),
        ("/secrets", "Forbidden", 'secrets "a" is forbidden: a rule', {}, "refuses the Secret mine-ray-token: a rule."),
        (
            "/secrets",
            "Forbidden",
            'secrets "a" is forbidden: exceeded quota: b',
            {},
            "mine-ray-token: exceeded quota: b.",
        ),
        ("/pods", "Forbidden", 'pods is forbidden: User "a" cannot create', {}, None),
        (
            "/pods",
            "Forbidden",
            'pods "a" is forbidden: a rule',
            {},
            "refuses a pod such as mine-ray-ray-worker: a rule.",
        ),
        ("/pods", "InternalError", "failed calling webhook", {}, "ray-worker: failed calling webhook."),
        ("/pods", "AlreadyExists", "there", {}, None),
        # Without the Prometheus Operator, both are missing: one problem.
        (
            "/prometheusrules",
            "NotFound",
            "no resource",
            {"monitoring": "operator"},
            "The cluster has no Prometheus Operator.",
        ),
        ("/podmonitors", "NotFound", "no resource", {"monitoring": "operator"}, None),
    ],
)
def test_refusal(kind: str, reason: str, message: str, changes: Json, expected: str | None) -> None:
    missing = KubectlError("NotFound", "no such object")
    reported = found(
        Fake({f"{NAMESPACE}/secrets/mine-ray-token": missing}, {f"{kind} ": KubectlError(reason, message)}), changes
    )
    assert len(reported) == (expected is not None)
    assert (expected or "") in " ".join(each.message for each in reported)


def test_namespace_that_the_user_may_not_read_and_does_not_exist() -> None:
    no_namespace = KubectlError("NotFound", 'namespaces "team" not found')
    [problem] = found(Fake({NAMESPACE: KubectlError("Forbidden", "no")}, {"/namespaces/team/": no_namespace}))
    assert problem.message == "The cluster has no such namespace."


def test_quota_that_the_workload_fills_is_no_problem() -> None:
    full = KubectlError("Forbidden", 'a "b" is forbidden: exceeded quota: c')
    refused = {"/rayclusters ": full, "/pods ": full}
    path = f"/apis/{RAY_API}/namespaces/team/rayclusters/mine-ray"
    assert found(Fake({path: {"metadata": {"labels": {STACK_LABEL: "mine"}}}}, refused)) == []
    for absent in ("NotFound", "Forbidden"):
        assert paths(found(Fake({path: KubectlError(absent, "no")}, refused))) == ["namespace", "namespace"]


def test_operator_of_gkes_addon_is_not_seen_and_not_joined() -> None:
    served = {"/version": {"gitVersion": f"v{KUBERNETES_BUILT}-gke.1000"}, OPERATORS: {"items": []}}
    [problem] = found(Fake(served), {"installKuberay": True})
    assert "GKE's Ray add-on" in problem.message
    elsewhere = served | {"/version": {"gitVersion": f"v{KUBERNETES_BUILT}"}}
    absent = served | {f"/apis/{RAY_API}": KubectlError("NotFound", "no")}
    assert [found(Fake(each), {"installKuberay": True}) for each in (elsewhere, absent)] == [[], []]


def test_reviews_that_are_not_yes_are_no() -> None:
    answers: tuple[Any, ...] = (False, None, "true", 1, {})
    for answer in answers:
        [problem] = found(Fake({}, allowed=answer), {"installKuberay": True})
        assert "create deployments.apps; " in problem.message
        assert "; delete, patch rayclusters.ray.io; " in problem.message


@pytest.mark.parametrize(
    ("changes", "most"),
    [({}, 26), ({"nodes.maxHours": 1}, 36), ({"queue": "kueue", "localQueue": "team"}, 28), (JOB, 26)],
)
def test_calls_are_few(changes: Json, most: int) -> None:
    """Each starts a process, and a cloud's credential plugin may take a second."""
    cluster = Fake({})
    assert found(cluster, changes) == []
    assert len(cluster.calls) == most
    assert len({*cluster.calls}) > 5


@pytest.mark.parametrize(
    ("version", "changes", "expected"),
    [
        ({"major": "1", "minor": "32+"}, JOB, ["ray.mode"]),
        ({"major": "1", "minor": "33"}, JOB, []),
        ({"major": "1", "minor": "33"}, {"fabric": "managed-dranet", "nodes.nics": 8}, ["fabric"]),
        ({"major": "1", "minor": "34+"}, {"fabric": "managed-dranet", "nodes.nics": 8}, []),
        ({"major": "1", "minor": "28"}, {"monitoring": "annotations"}, ["monitoring"]),
        ({"major": "1", "minor": "29"}, {"monitoring": "annotations"}, []),
        ({"major": "", "minor": None}, JOB, []),
        ({"major": "9" * 5000, "minor": "1"}, JOB, []),
    ],
)
def test_version(version: Json, changes: Json, expected: list[str]) -> None:
    assert paths(found(Fake({"/version": version}), changes)) == expected


def test_workers_without_labels_need_a_node_with_gpus_only_if_some_must_stay() -> None:
    node = {"metadata": {}, "status": {"allocatable": {"cpu": "8"}}}
    cluster = {"/api/v1/nodes": {"items": [node]}}
    assert found(Fake(cluster), {"nodes.selector": []}) == []
    assert paths(found(Fake(cluster), {"nodes.selector": [], "nodes.min": 1})) == ["nodes.min"]
    none = {"nodes.selector": [], "nodes.gpus": 0}
    assert paths(found(Fake(cluster), none)) == ["nodes.cpus"]


def test_node_that_is_not_ready_is_no_lasting_problem() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    size = {"cpu": "200", "memory": "2Ti", "nvidia.com/gpu": "8"}
    nodes: Json = {NODES: {"items": [{"spec": {"taints": taints}, "status": {"allocatable": size}}]}}
    nodes[NODES]["items"].append({"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
    assert found(Fake(nodes)) == []
    assert paths(found(Fake(nodes), {"nodes.min": 1})) == ["nodes.min"]


@pytest.mark.parametrize(
    ("said", "reason", "message"),
    [
        ("", "", "kubectl gave no reason"),
        ("\n\n", "", "kubectl gave no reason"),
        ('Error from server (NotFound): pods "a" not found\n', "NotFound", 'pods "a" not found'),
        ("Error from server: no.\n", "", "no"),
        ("error: You must be logged in (Unauthorized)", "", "You must be logged in (Unauthorized)"),
        (
            'Warning: old\nE1127 10:00:00 x.go:1] no\nThe X "a" is invalid: \n* b\n* c.\n',
            "",
            'The X "a" is invalid: * b * c',
        ),
        (
            "plugin: sign in\nUnable to connect to the server: no such host",
            "",
            "Unable to connect to the server: no such host",
        ),
        ("Error from server (\x1b[31mA): b", "", "Error from server (A): b"),
    ],
)
def test_error_of_kubectl(said: str, reason: str, message: str) -> None:
    error = refusal(said)
    assert (error.reason, str(error)) == (reason, message)


@given(st.text())
def test_any_error_of_kubectl_can_be_printed(said: str) -> None:
    text = str(refusal(said * 100))
    assert text
    assert not UNPRINTABLE.search(text)
    assert "\n" not in text
    assert len(text) < LONGEST + 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("1500m", 1.5), ("2Ki", 2048), ("1k", 1000), ("1.5Gi", 1.5 * 2**30), ("2e3", 2000), ("1E", 1e18)],
)
def test_amount(text: str, expected: float) -> None:
    assert amount(text) == expected


@given(st.text())
def test_amount_of_other_text(text: str) -> None:
    assert amount(text) >= 0


class Answering(Kubectl):
    """kubectl whose output is this text."""

    def __init__(self, output: str) -> None:
        super().__init__("mine")
        self.output = output

    def _run(self, *_arguments: str, stdin: str = "") -> str:
        assert isinstance(stdin, str)
        return self.output


@pytest.mark.parametrize("output", ["", "ok", "[]", "null", "1", '"a"', "[" * 100_000, "{" * 10, ESCAPES, "\ufeff{}"])
def test_answer_that_is_not_an_object(output: str) -> None:
    args = arguments("{}")
    assert isinstance(args.settings, KubernetesSettings)
    [problem] = problems(Answering(output), args, args.settings, "mine")
    assert "The cluster does not answer: the answer is not " in problem.message
