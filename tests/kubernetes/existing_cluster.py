"""A control plane as the cluster of a user: its kubeconfig, users, nodes, rules and queues, and what checks find."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from infra.catalog.names import KUBERAY_LABELS, STACK_LABEL
from infra.catalog.pins import ADMISSION_API, KUEUE_API, RAY
from infra.existing.checks import problems
from infra.existing.kubectl import Kubectl
from infra.existing.objects import pods
from infra.existing.workload import ray_args
from infra.kubernetes.workload_objects import every_object
from infra.settings import KubernetesSettings, Problem, parse
from tests.kubernetes.queries import GPU, WITHIN_S, condition
from tests.unit.stacks import changed
from tools.kubernetes import kubectl, kuberay
from tools.kubernetes.api import ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

STACK = "mine"
NAME = f"{STACK}-ray"
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
    "job": {"ray.mode": "job", "ray.entrypoint": "python train.py", "nodes.maxHours": 8},
    "indexed-job": {"ray.mode": "indexed-job", "ray.entrypoint": "python train.py"},
    "service": {"ray.mode": "service", "service.application": "app:app", "service.deployment": "model"},
}
QUEUED = {"queue": "kueue", "localQueue": "team"}
CHANGING = ("Lease", "Event", "ComponentStatus", "EndpointSlice")
"""Kinds that the control plane writes all the time, or that only report."""
NOISE = ("managedFields", "resourceVersion", "generation")
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

    def user(self, namespace: str, *rules: Json) -> str:
        """Return the context of a user with these rights in a namespace."""
        name = f"user-{next(self._numbers)}"
        group = "rbac.authorization.k8s.io"
        self.make(f"{group}/v1", "Role", name, namespace, rules=list(rules))
        role, subject = ({"kind": kind, "name": name, "apiGroup": group} for kind in ("Role", "User"))
        self.make(f"{group}/v1", "RoleBinding", name, namespace, roleRef=role, subjects=[subject])
        return self.context(name, {"as": name})

    def namespace(self, labels: Json | None = None) -> str:
        """Return a new namespace that is ready for pods."""
        name = f"team-{next(self._numbers)}"
        self.make("v1", "Namespace", name, None, labels=labels)
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

    def settings(self, namespace: str, changes: Json | None = None, context: str = "admin") -> KubernetesSettings:
        """Return settings with changes, by their paths."""
        found = parse(changed(FILE | {"context": context, "namespace": namespace}, changes or {}))
        assert isinstance(found, KubernetesSettings)
        return found

    def problems(self, namespace: str, changes: Json | None = None, context: str = "admin") -> list[Problem]:
        """Return what the checks find; nothing in the cluster changes."""
        settings, before = self.settings(namespace, changes, context), self.everything()
        found = problems(Kubectl(context), ray_args(settings, NAME), settings, STACK)
        after = self.everything()
        assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} == set()
        return found

    def refuses(self, namespace: str) -> bool:
        """Return whether the API server refuses a RayCluster or a pod of the stack."""
        args = ray_args(self.settings(namespace), NAME)
        objects = every_object(args)
        for body in (*objects[-1:], *pods(args, objects)):
            try:
                self.api.create({**body, "metadata": {**body["metadata"], "namespace": namespace}}, dry_run=True)
            except ApiError:
                return True
        return False


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


def up(cluster: Cluster, namespace: str) -> None:
    """Make the stack's objects as an `up` does, for a stack that is a cluster."""
    for body in every_object(ray_args(cluster.settings(namespace), NAME)):
        marked = copy.deepcopy(body)
        marked["metadata"] |= {"namespace": namespace}
        marked["metadata"].setdefault("labels", {})[STACK_LABEL] = STACK
        cluster.api.apply(marked)


def quota(cluster: Cluster, namespace: str, hard: Json) -> None:
    """Make a quota, and wait until it counts."""
    cluster.make("v1", "ResourceQuota", "all", namespace, spec={"hard": hard})

    def counted() -> bool:
        body = cluster.api.get("v1", "ResourceQuota", "all", namespace) or {}
        return bool((body.get("status") or {}).get("used", {}).keys() == hard.keys())

    cluster.api.until("the quota", counted, WITHIN_S)


def claim(cluster: Cluster, namespace: str, name: str, mode: str) -> None:
    """Make a claim."""
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.make("v1", "PersistentVolumeClaim", name, namespace, spec=spec)


@contextmanager
def policy(cluster: Cluster, namespace: str, group: str, resource: str, rule: str) -> Iterator[None]:
    """Have a rule for new objects of a resource in a namespace."""
    api, kind = ADMISSION_API, "ValidatingAdmissionPolicy"
    matched = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    denied = {"expression": rule, "message": "not here"}
    spec = {"matchConstraints": {"resourceRules": [matched]}, "validations": [denied]}
    cluster.make(api, kind, "rule", None, spec=spec)
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    bound = {"policyName": "rule", "validationActions": ["Deny"], "matchResources": chosen}
    cluster.make(api, f"{kind}Binding", "rule", None, spec=bound)
    try:
        cluster.api.until("a refusal", partial(cluster.refuses, namespace), WITHIN_S)
        yield
    finally:
        cluster.api.delete(api, f"{kind}Binding", "rule")
        cluster.api.delete(api, kind, "rule")


@contextmanager
def definitions(cluster: Cluster, bodies: list[Json]) -> Iterator[None]:
    """Have other CRDs of KubeRay, or none."""
    team = cluster.namespace()
    if bodies:
        kubectl.install(cluster.api, bodies)
        cluster.api.until("a refusal", partial(cluster.refuses, team), WITHIN_S)
    else:
        kubectl.remove(cluster.api, CRDS)
        cluster.api.until("their end", lambda: "ray.io" not in str(cluster.api.kinds()), WITHIN_S)
    try:
        yield
    finally:
        kubectl.install(cluster.api, CRDS)
        cluster.api.until("the CRDs", lambda: not cluster.refuses(team), WITHIN_S)


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
