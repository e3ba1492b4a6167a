"""The checks of a cluster that the user has, with a real API server, kubectl, Kueue, and KubeRay's CRDs."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import KUEUE_API, RAY
from infra.existing import kubectl as user_kubectl
from infra.existing.checks import problems
from infra.existing.kubectl import Kubectl
from infra.existing.objects import resource_of
from infra.existing.questions import OWNER
from infra.existing.workload import ray_args
from infra.kubernetes.namespace import ENFORCE
from infra.kubernetes.pods import KUBERAY_LABELS
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, Problem, parse
from tests.kubernetes.queries import GPU, WITHIN_S, condition
from tests.unit.stacks import changed
from tools.kubernetes import builds, kubectl, kuberay
from tools.kubernetes.api import Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

STACK = "mine"
NAME = f"{STACK}-ray"
NODE = "gpu-node"
POOL = "pool"
"""Label of a node, one value for each case."""
FILE = {
    "target": "kubernetes",
    "nodes": {"gpus": 8, "cpus": 180, "memoryGib": 1800, "selector": [f"{POOL}=good"]},
    "fabric": "socket",
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
MODES: dict[str, Json] = {
    "cluster": {},
    "job": {"ray.entrypoint": "python train.py", "nodes.maxHours": 8},
    "indexed-job": {"ray.entrypoint": "python train.py"},
    "service": {"service.application": "app:app", "service.deployment": "model"},
}
QUEUED = {"queue": "kueue", "localQueue": "team"}
CHANGING = ("Lease", "Event", "ComponentStatus", "EndpointSlice")
"""Kinds that the control plane writes all the time, or that only report."""
CRDS = [body for body in kuberay.objects(kuberay.complete()) if body["kind"] == "CustomResourceDefinition"]
EVERY_RIGHT = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)


class Cluster:
    """A control plane, and the kubeconfig of its users. Each test uses its own namespace."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.api = plane, plane.api
        self.file = folder / "kubeconfig"
        own = json.loads(plane.kubeconfig.read_text())
        self._server: Json = own["clusters"][0]["cluster"]
        self._config: Json = {**own, "clusters": [], "users": [], "contexts": []}
        self._numbers = count(1)
        self.context("admin")

    def context(self, name: str, user: Json | None = None, server: str | None = None) -> str:
        """Add a context: an administrator's unless `user` differs, of this cluster unless `server` differs."""
        cluster, token = {**self._server, **({"server": server} if server else {})}, {"token": self.plane.token}
        for key, value in (("cluster", cluster), ("user", token | (user or {}))):
            self._config[f"{key}s"].append({"name": name, key: value})
        self._config["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
        self.file.write_text(json.dumps(self._config))
        return name

    def user(self, namespace: str, *rules: Json, cluster: bool = False) -> str:
        """Return the context of a user with these rights in a namespace; in the whole `cluster`, of reading it."""
        name = f"user-{next(self._numbers)}"
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        kinds = [("Role", rules, {"namespace": namespace})]
        kinds += [("ClusterRole", ({**EVERY_RIGHT[0], "verbs": ["get", "list"]},), {})] if cluster else []
        for kind, allowed, place in kinds:
            metadata = {"name": name, **place}
            self.api.apply({**rbac, "kind": kind, "metadata": metadata, "rules": list(allowed)})
            subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            role = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            self.api.apply(
                {**rbac, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": role, "subjects": [subject]}
            )
        return self.context(name, {"as": name})

    def namespace(self, **labels: str) -> str:
        """Return a new namespace that is ready for pods."""
        name = f"team-{next(self._numbers)}"
        marks = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
        self.make("v1", "Namespace", name, None, labels=marks)
        self.api.until("its account", partial(self.api.get, "v1", "ServiceAccount", "default", name), WITHIN_S)
        return name

    def make(
        self, api: str, kind: str, name: str, namespace: str | None, labels: Json | None = None, **fields: Any
    ) -> Json:
        """Apply an object."""
        metadata = {"name": name, "labels": labels or {}, **({"namespace": namespace} if namespace else {})}
        return self.api.apply({"apiVersion": api, "kind": kind, "metadata": metadata, **fields}, force=True)

    def everything(self) -> Json:
        """Return every object of the cluster, without what controllers write."""
        found = {}
        for kind in self.api.kinds():
            if "list" in kind.verbs and kind.kind not in CHANGING and "metrics" not in kind.api_version:
                for body in self.api.list(kind.api_version, kind.kind):
                    metadata = {key: value for key, value in body["metadata"].items() if key not in NOISE}
                    content = {key: value for key, value in body.items() if key not in ("status", "metadata")}
                    found[f"{kind.api_version} {kind.kind} {metadata}"] = content
        return found

    def settings(self, namespace: str, context: str = "admin", **changes: Any) -> KubernetesSettings:
        """Return settings with changes; in their paths, `__` stands for a dot."""
        paths = {path.replace("__", "."): value for path, value in changes.items()}
        found = parse(changed(FILE | {"context": context, "namespace": namespace}, paths))
        assert isinstance(found, KubernetesSettings)
        return found

    def problems(self, namespace: str, context: str = "admin", **changes: Any) -> list[Problem]:
        """Return what the checks find; nothing in the cluster changes."""
        settings, before = self.settings(namespace, context, **changes), self.everything()
        found = problems(Kubectl(context), ray_args(settings, NAME), settings, STACK)
        assert self.everything() == before
        return found


NOISE = ("managedFields", "resourceVersion", "generation")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    programs = tmp_path_factory.mktemp("bin")
    (programs / "kubectl").symlink_to(builds.programs("kubectl")["kubectl"])
    with ControlPlane(tmp_path_factory.mktemp("existing")) as plane, pytest.MonkeyPatch.context() as environment:
        plane.start_kwok()
        kubectl.install(plane.api, CRDS)
        plane.start_kueue()
        found = Cluster(plane, programs)
        environment.setenv("KUBECONFIG", str(found.file))
        environment.setenv("PATH", str(programs))
        node(found, NODE, "good")
        flavor = found.make(KUEUE_API, "ResourceFlavor", "any", None, spec={})["metadata"]["name"]
        resources = [{"name": name, "nominalQuota": "10k"} for name in ("cpu", "memory", GPU)]
        group = {"coveredResources": ["cpu", "memory", GPU], "flavors": [{"name": flavor, "resources": resources}]}
        for name, policy in (("open", "None"), ("stopped", "Hold")):
            spec = {"namespaceSelector": {}, "resourceGroups": [group], "stopPolicy": policy}
            found.make(KUEUE_API, "ClusterQueue", name, None, spec=spec)
        yield found


@pytest.fixture
def team(cluster: Cluster) -> str:
    """A namespace without any rules."""
    return cluster.namespace()


def node(cluster: Cluster, name: str, pool: str, taints: tuple[Json, ...] = (), **amounts: str) -> None:
    """Add a node that kwok makes ready."""
    offered = {"cpu": "190", "memory": "2000Gi", "pods": "110", GPU: "8"} | amounts
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {POOL: pool}}}
    cluster.api.create({**body, "spec": {"taints": [*taints]}, "status": {"capacity": offered, "allocatable": offered}})

    def ready() -> bool:
        found = cluster.api.get("v1", "Node", name) or {}
        if condition(found, "Ready").get("status") == "True" and len(found["spec"].get("taints", [])) == len(taints):
            return True
        raise NotYet(str(found.get("spec")))

    cluster.api.until("the node", ready, WITHIN_S)


def local_queue(cluster: Cluster, namespace: str, queue: str, active: str) -> None:
    """Make the LocalQueue of the settings, and wait for Kueue's opinion."""
    cluster.make(KUEUE_API, "LocalQueue", "team", namespace, spec={"clusterQueue": queue})

    def settled() -> bool:
        return condition(cluster.api.get(KUEUE_API, "LocalQueue", "team", namespace), "Active").get("status") == active

    cluster.api.until("the queue's state", settled, WITHIN_S)


def is_one(found: list[Problem], path: str, *words: str) -> None:
    """Assert that there is one problem, with this setting first and these words, that can be printed."""
    assert [each.settings[0] for each in found] == [path], "\n\n".join(map(str, found))
    text = str(found[0])
    print(f"\n{text}")
    for word in words:
        assert word in " ".join(text.split()), text
    assert len(text) < 1500
    assert ".." not in text.replace("...", "")


@pytest.mark.parametrize("mode", MODES)
def test_good_cluster_has_no_problem(cluster: Cluster, team: str, mode: str) -> None:
    assert cluster.problems(team, **MODES[mode], **{"ray.mode": mode}) == []


@pytest.mark.parametrize("mode", ["cluster", "job", "indexed-job"])
def test_good_queue_has_no_problem(cluster: Cluster, team: str, mode: str) -> None:
    local_queue(cluster, team, "open", "True")
    assert cluster.problems(team, **MODES[mode], **QUEUED, **{"ray.mode": mode}) == []


def test_context_that_does_not_exist(cluster: Cluster, team: str) -> None:
    is_one(cluster.problems(team, context="none"), "context", 'context "none" does not exist', "get-contexts")


def test_server_that_does_not_answer(cluster: Cluster, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(user_kubectl, "TIMEOUT_S", 2)
        found = cluster.problems(team, context=cluster.context("silent", server=address))
        is_one(found, "context", "The cluster does not answer: no answer within 2 s.")
    found = cluster.problems(team, context=cluster.context("closed", server=address))
    is_one(found, "context", "The cluster does not answer: The connection to the server", "was refused")


def test_credentials_that_are_refused(cluster: Cluster, team: str) -> None:
    found = cluster.problems(team, context=cluster.context("expired", {"token": "expired"}))
    is_one(found, "context", "The cluster does not answer: You must be logged in", "sign in again")


def test_kubectl_that_is_missing(cluster: Cluster, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    is_one(cluster.problems(team), "context", "no kubectl on PATH", "Fix: install kubectl")


def test_namespace_that_does_not_exist(cluster: Cluster) -> None:
    is_one(cluster.problems("none"), "namespace", "no such namespace", "kubectl create namespace none")


def test_namespace_that_is_being_deleted(cluster: Cluster, team: str) -> None:
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    cluster.make("v1", "ConfigMap", "kept", team)
    cluster.api.patch("v1", "ConfigMap", "kept", team, kept)
    cluster.api.delete("v1", "Namespace", team)
    is_one(cluster.problems(team), "namespace", "is being deleted")
    cluster.api.patch("v1", "ConfigMap", "kept", team, {"metadata": {"finalizers": []}})


def test_quota_without_room_for_a_worker(cluster: Cluster, team: str) -> None:
    quota(cluster, team, {f"requests.{GPU}": "4"})
    is_one(cluster.problems(team), "namespace", "a pod such as mine-ray-ray-worker", "exceeded quota: all")


def test_quota_that_the_stack_fills(cluster: Cluster, team: str) -> None:
    """Its own objects and pods are no reason against the next `up`, but the first one needs room."""
    hard = {"count/rayclusters.ray.io": "0", "requests.cpu": "0"}
    quota(cluster, team, hard)
    assert len(cluster.problems(team)) == 2
    cluster.api.delete("v1", "ResourceQuota", "all", team)
    up(cluster, team)
    quota(cluster, team, hard)
    assert cluster.problems(team) == []


def test_limit_below_a_worker(cluster: Cluster, team: str) -> None:
    limit = {"type": "Container", "max": {"cpu": "64", "memory": "256Gi"}}
    cluster.make("v1", "LimitRange", "all", team, spec={"limits": [limit]})
    is_one(cluster.problems(team), "namespace", "maximum cpu usage per Container is 64, but limit is 180")


@pytest.mark.parametrize(("level", "fabric"), [("restricted", "socket"), ("restricted", "rdma"), ("baseline", "rdma")])
def test_level_that_refuses_pods(cluster: Cluster, level: str, fabric: str) -> None:
    team = cluster.namespace(**{ENFORCE: level})
    found = cluster.problems(team, fabric=fabric, nodes__min=0, nodes__selector=[f"{POOL}=none"])
    is_one(found, "namespace", f'violates PodSecurity "{level}:latest"')


def test_level_that_admits_pods(cluster: Cluster) -> None:
    assert cluster.problems(cluster.namespace(**{ENFORCE: "baseline"})) == []


@pytest.mark.parametrize(
    ("group", "resource", "rule", "words"),
    [
        ("ray.io", "rayclusters", "false", "refuses the RayCluster mine-ray"),
        ("", "pods", "object.spec.containers.all(c, c.image.startsWith('own/'))", "refuses a pod such as mine-ray"),
    ],
)
def test_policy_that_refuses_objects(
    cluster: Cluster, team: str, group: str, resource: str, rule: str, words: str
) -> None:
    with policy(cluster, team, group, resource, rule):
        is_one(cluster.problems(team), "namespace", words, "denied request: not here")


def test_missing_kuberay(cluster: Cluster, team: str) -> None:
    kubectl.remove(cluster.api, CRDS)
    try:
        found = cluster.problems(team)
        installed = cluster.problems(team, installKuberay=True)
        job = cluster.problems(team, **MODES["indexed-job"], ray__mode="indexed-job")
    finally:
        kubectl.install(cluster.api, CRDS)
    is_one(found, "installKuberay", "The cluster has no KubeRay", "installKuberay to true")
    assert installed == job == []


def test_older_definitions_of_kuberay(cluster: Cluster, team: str) -> None:
    older = copy.deepcopy(CRDS)
    for body in older:
        for version in body["spec"]["versions"]:
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            for part in (spec, spec.get("rayClusterSpec", {}).get("properties", {})):
                part.pop("authOptions", None)
    with definitions(cluster, older):
        is_one(cluster.problems(team), "context", 'unknown field "spec.authOptions"', "apply the CRDs of KubeRay")


def test_older_operator(cluster: Cluster, team: str) -> None:
    with operator(cluster, "v1.3.0"):
        is_one(cluster.problems(team), "context", "KubeRay is 1.3, but the stack needs 1.6 or later")
    with operator(cluster, "v1.6.2"):
        assert cluster.problems(team) == []
        assert cluster.problems(team, context=cluster.user(team, *EVERY_RIGHT)) == []


@pytest.mark.parametrize("arguments", [["--watch-namespace", "x,y"], ["--watch-namespace=x"]])
def test_operator_that_watches_another_namespace(cluster: Cluster, team: str, arguments: list[str]) -> None:
    with operator(cluster, "v1.6.2", arguments):
        is_one(cluster.problems(team), "namespace", "in the Deployment kuberay-1/kuberay-operator, and watches other")
        assert cluster.problems(team, installKuberay=True) == []
    with operator(cluster, "v1.6.2", [*arguments[:-1], f"{arguments[-1]},{team}"]):
        assert cluster.problems(team) == []


def test_operator_beside_the_stacks(cluster: Cluster, team: str) -> None:
    with operator(cluster, "v1.6.2"):
        is_one(cluster.problems(team, installKuberay=True), "installKuberay", "two operators", "to false")
    with operator(cluster, "v1.6.2", labels={OWNER: STACK}):
        assert cluster.problems(team, installKuberay=True) == []
    with operator(cluster, "v1.6.2", labels={OWNER: "other"}):
        is_one(cluster.problems(team, installKuberay=True), "installKuberay", "two operators")


def rights(*without: tuple[str, str]) -> list[Json]:
    """Return rules with every right in a namespace that the checks know, but some (verb, resource)."""
    groups: dict[str, set[str]] = {"": {"pods", "pods/log", "pods/portforward"}, "ray.io": {"rayclusters"}}
    groups[""] |= {"secrets", "serviceaccounts", "persistentvolumeclaims", "configmaps"}
    groups |= {"networking.k8s.io": {"networkpolicies"}, "policy": {"poddisruptionbudgets"}}
    verbs = ("get", "list", "create", "patch", "delete")
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": allowed}
        for group, resources in groups.items()
        for resource in sorted(resources)
        if (allowed := [verb for verb in verbs if (verb, resource) not in without])
    ]


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ((), None),
        ((("create", "pods"),), None),
        ((("get", "secrets"), ("list", "secrets")), None),
        ((("create", "rayclusters"),), "create rayclusters.ray.io."),
        ((("delete", "rayclusters"),), "delete rayclusters.ray.io."),
        ((("create", "pods/portforward"),), "create pods/portforward."),
        (
            (("create", "rayclusters"), ("patch", "rayclusters"), ("get", "pods/log"), ("create", "secrets")),
            "get pods/log; create, patch rayclusters.ray.io; create secrets.",
        ),
    ],
)
def test_rights_in_the_namespace(
    cluster: Cluster, team: str, without: tuple[tuple[str, str], ...], words: str | None
) -> None:
    """Such a user reads neither nodes nor namespaces nor Deployments."""
    found = cluster.problems(team, context=cluster.user(team, *rights(*without)))
    if words is None:
        assert found == []
    else:
        is_one(found, "namespace", f"You lack rights in this namespace: {words}", "ask an administrator")


def test_user_without_secrets_updates_the_stack(cluster: Cluster, team: str) -> None:
    up(cluster, team)
    blind = cluster.user(team, *rights(("get", "secrets"), ("list", "secrets")))
    assert cluster.problems(team, context=blind) == []


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("ray.secrets", ["none"], "There is no Secret none."),
        ("ray.pullSecrets", ["none"], "There is no Secret none."),
        ("ray.volumes", ["none=/data"], "There is no PersistentVolumeClaim none."),
        ("storage.claim", "none", "There is no PersistentVolumeClaim none."),
        ("ray.serviceAccount", "none", "There is no ServiceAccount none."),
        ("ray.priorityClass", "none", "There is no PriorityClass none."),
        ("storage.claim", "alone", "The claim alone is ReadWriteOnce"),
        ("ray.volumes", ["alone=/data"], "The claim alone is ReadWriteOnce"),
    ],
)
def test_named_object_that_is_missing(cluster: Cluster, team: str, setting: str, value: Any, words: str) -> None:
    claim(cluster, team, "alone", "ReadWriteOnce")
    is_one(cluster.problems(team, **{setting: value}), setting, words)


def test_named_objects_that_are_there(cluster: Cluster, team: str) -> None:
    claim(cluster, team, "shared", "ReadWriteMany")
    cluster.make("v1", "Secret", "there", team, data={})
    cluster.make("v1", "ServiceAccount", "there", team)
    cluster.make("scheduling.k8s.io/v1", "PriorityClass", "there", None, value=7)
    named = {"ray.secrets": ["there", "there=/there"], "ray.pullSecrets": ["there"], "ray.serviceAccount": "there"}
    named |= {"ray.priorityClass": "there", "storage.claim": "shared", "ray.volumes": ["shared=/data"]}
    assert cluster.problems(team, **named) == []
    blind = cluster.user(team, *rights(("get", "secrets"), ("list", "secrets")))
    assert cluster.problems(team, context=blind, **named) == []


def test_queue_that_is_missing(cluster: Cluster, team: str) -> None:
    found = cluster.problems(team, **QUEUED)
    is_one(found, "localQueue", "The namespace has no such LocalQueue.", f"kubectl -n {team} get localqueues")


@pytest.mark.parametrize("queue", ["none", "stopped"])
def test_queue_that_admits_nothing(cluster: Cluster, team: str, queue: str) -> None:
    local_queue(cluster, team, queue, "False")
    is_one(cluster.problems(team, **QUEUED), "localQueue", "The LocalQueue admits nothing: ")


@pytest.mark.parametrize(
    ("amounts", "taints", "path", "words"),
    [
        ({GPU: "4"}, (), "nodes.gpus", f"none has room for a worker: {GPU} 8 (at most 4)."),
        ({"memory": "1000Gi"}, (), "nodes.memoryGib", "none has room for a worker: memory 1800Gi (at most 1000Gi)."),
        ({}, ({"key": "team", "value": "a", "effect": "NoSchedule"},), "nodes.tolerations", "not tolerate: team=a."),
    ],
)
def test_nodes_that_take_no_worker(
    cluster: Cluster, team: str, amounts: Json, taints: tuple[Json, ...], path: str, words: str
) -> None:
    node(cluster, f"of-{team}", team, taints, **amounts)
    is_one(cluster.problems(team, **{"nodes.selector": [f"{POOL}={team}"]}), path, words)
    if taints:
        fixed = {"nodes.selector": [f"{POOL}={team}"], "nodes.tolerations": ["team=a"], "nodes.min": 1}
        assert cluster.problems(team, **fixed) == []


def test_nodes_that_an_autoscaler_may_add(cluster: Cluster, team: str) -> None:
    none = {"nodes.selector": [f"{POOL}=none"]}
    assert cluster.problems(team, **none) == []
    is_one(cluster.problems(team, **none, **{"nodes.min": 1}), "nodes.min", "0 nodes have the labels", "is 1.")
    assert cluster.problems(team, **{"nodes.selector": []}) == []


def test_object_of_this_name(cluster: Cluster, team: str) -> None:
    for labels, words in (({}, "which no stack made"), ({OWNER: "other"}, "of the stack other")):
        cluster.make("v1", "Secret", f"{NAME}-token", team, labels, data={})
        is_one(cluster.problems(team), "namespace", f"There is a Secret {NAME}-token, {words}", "another name")


def test_objects_of_this_stack(cluster: Cluster, team: str) -> None:
    up(cluster, team)
    assert cluster.problems(team) == []


def test_resource_of_every_kind(cluster: Cluster, team: str) -> None:
    more = {"fabric": "efa-dranet", "nodes.nics": 8, "nodes.maxHours": 1}
    for mode, changes in MODES.items():
        for fabric in ({}, more):
            for body in every_object(ray_args(cluster.settings(team, **{"ray.mode": mode}, **changes | fabric), NAME)):
                served = cluster.api.kind(body["apiVersion"], body["kind"])
                assert (served.plural, served.namespaced) == (resource_of(body["kind"]), True)


def up(cluster: Cluster, namespace: str) -> None:
    """Make the stack's objects as an `up` does, for a stack that is a cluster."""
    for body in every_object(ray_args(cluster.settings(namespace), NAME)):
        marked = copy.deepcopy(body)
        marked["metadata"] |= {"namespace": namespace}
        marked["metadata"].setdefault("labels", {})[OWNER] = STACK
        cluster.api.apply(marked)


def quota(cluster: Cluster, namespace: str, hard: Json) -> None:
    """Make a quota, and wait until it counts."""
    cluster.make("v1", "ResourceQuota", "all", namespace, spec={"hard": hard})

    def counted() -> bool:
        body = cluster.api.get("v1", "ResourceQuota", "all", namespace) or {}
        return bool((body.get("status") or {}).get("used"))

    cluster.api.until("the quota", counted, WITHIN_S)


def claim(cluster: Cluster, namespace: str, name: str, mode: str) -> None:
    """Make a claim."""
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.make("v1", "PersistentVolumeClaim", name, namespace, spec=spec)


@contextmanager
def policy(cluster: Cluster, namespace: str, group: str, resource: str, rule: str) -> Iterator[None]:
    """Have a rule for new objects of a resource in a namespace."""
    api, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    matched = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    spec = {"matchConstraints": {"resourceRules": [matched]}}
    spec["validations"] = [{"expression": rule, "message": "not here"}]
    cluster.make(api, kind, "rule", None, spec=spec)
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    bound = {"policyName": "rule", "validationActions": ["Deny"], "matchResources": chosen}
    cluster.make(api, f"{kind}Binding", "rule", None, spec=bound)
    try:
        until_refused(cluster, namespace)
        yield
    finally:
        cluster.api.delete(api, f"{kind}Binding", "rule")
        cluster.api.delete(api, kind, "rule")


@contextmanager
def definitions(cluster: Cluster, bodies: list[Json]) -> Iterator[None]:
    """Have other CRDs of KubeRay."""
    kubectl.install(cluster.api, bodies)
    team = cluster.namespace()
    try:
        until_refused(cluster, team)
        yield
    finally:
        kubectl.install(cluster.api, CRDS)
        cluster.api.until("the CRDs", lambda: cluster.problems(team) == [], WITHIN_S)


def until_refused(cluster: Cluster, namespace: str) -> None:
    """Wait until the API server has a new rule or definition, which takes a second."""
    cluster.api.until("a refusal", lambda: bool(cluster.problems(namespace)), WITHIN_S)


@contextmanager
def operator(
    cluster: Cluster, tag: str, arguments: list[str] | None = None, labels: Json | None = None
) -> Iterator[None]:
    """Have a Deployment of KubeRay without pods."""
    namespace = "kuberay-1"
    cluster.make("v1", "Namespace", namespace, None)
    container = {"name": "operator", "image": f"registry:5000/kuberay/operator:{tag}", "args": arguments or []}
    template = {"metadata": {"labels": KUBERAY_LABELS}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": KUBERAY_LABELS}, "template": template}
    marks = KUBERAY_LABELS | (labels or {})
    cluster.make("apps/v1", "Deployment", "kuberay-operator", namespace, marks, spec=spec)
    try:
        yield
    finally:
        cluster.api.delete("apps/v1", "Deployment", "kuberay-operator", namespace)
