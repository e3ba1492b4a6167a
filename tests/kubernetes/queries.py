"""Queries of the tests to an API server: Ray's pods, their nodes, references and permissions."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.pins import RAY_API
from tools.kubernetes.api import Api, Json, NotYet

GPU = "nvidia.com/gpu"
RAY = "ray"
WITHIN_S = 90.0
"""Timeout of a controller in seconds; on an idle machine it takes seconds."""


def ray_cluster(api: Api, namespace: str = RAY) -> Json:
    """Return the only RayCluster."""
    (found,) = api.list(RAY_API, "RayCluster", namespace)
    return found


def pods(api: Api, selector: str, namespace: str = RAY) -> list[Json]:
    """Return the pods that are not being deleted, by name."""
    found = api.list("v1", "Pod", namespace, selector)
    return sorted((pod for pod in found if "deletionTimestamp" not in pod["metadata"]), key=name)


def workers(api: Api) -> list[Json]:
    """Return the worker pods of a RayCluster."""
    return pods(api, "ray.io/node-type=worker")


def head(api: Api) -> Json:
    """Return the only head pod."""
    (found,) = pods(api, "ray.io/node-type=head")
    return found


def gpu_nodes(api: Api) -> list[Json]:
    """Return the nodes that have GPUs, or the labels of nodes that will."""
    labels = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.present")
    return [
        node
        for node in api.list("v1", "Node")
        if GPU in node["status"]["capacity"] or any(label in node["metadata"].get("labels", {}) for label in labels)
    ]


def until_ready(api: Api, count: int) -> list[Json]:
    """Wait until the operator reports exactly that many ready workers; return them."""

    def look() -> bool:
        status, found = ray_cluster(api).get("status") or {}, workers(api)
        counts = {status.get("readyWorkerReplicas", 0), len(found), sum(map(is_ready, found))}
        if counts == {count} and status.get("state") == "ready":
            return True
        raise NotYet(f"{status.get('state')}, {status.get('readyWorkerReplicas', 0)}; {problems(api)}")

    api.until(f"{count} workers of a RayCluster", look, WITHIN_S)
    return workers(api)


def problems(api: Api, namespace: str = RAY) -> str:
    """Return the scheduler's messages about pods without a node."""
    found = api.list("v1", "Pod", namespace)
    return "; ".join(f"{name(pod)}: {why}" for pod in found if (why := condition(pod, "PodScheduled").get("message")))


def is_ready(body: Json) -> bool:
    """Return whether the Ready condition is true."""
    return condition(body, "Ready").get("status") == "True"


def condition(body: Json, type_: str) -> Json:
    """Return a condition, or {}."""
    found = (body.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == type_), {})


def name(body: Json) -> str:
    """Return the object's name."""
    return str(body["metadata"]["name"])


def unresolved(api: Api, pod: Json) -> list[str]:
    """Return the missing objects that a pod's spec refers to: the pod would wait for them forever."""
    namespace = pod["metadata"]["namespace"]
    return [
        f"{kind} {called}{f' key {key}' if key else ''}"
        for kind, called, key in _references(pod["spec"])
        if not _has(api.get("v1", kind, called, namespace), key)
    ]


def _references(spec: Json) -> Iterator[tuple[str, str, str | None]]:
    yield "ServiceAccount", spec["serviceAccountName"], None
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for variable in container.get("env", []):
            for kind, reference in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
                if chosen := (variable.get("valueFrom") or {}).get(reference):
                    yield kind, chosen["name"], chosen["key"]
    for volume in spec.get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], None
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], None
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], None


def _has(body: Json | None, key: str | None) -> bool:
    return body is not None and (key is None or key in (body.get("data") or {}))


def may(api: Api, account: str, verb: str, resource: str, *, group: str = "", namespace: str = RAY) -> bool:
    """Return the authorizer's answer for a ServiceAccount in `RAY`; `resource` may be "pods/exec"."""
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
    spec = {
        "user": f"system:serviceaccount:{RAY}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{RAY}", "system:authenticated"],
        "resourceAttributes": attributes,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
    return bool(answer["status"]["allowed"])


def rules(api: Api, namespace: str = RAY) -> set[str]:
    """Return all permissions of this client's user in a namespace, as "verb group/resource"."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=body)["status"]
    assert not status["incomplete"]
    return {
        f"{verb} {group}/{resource}" + "".join(f" {only}" for only in rule.get("resourceNames", []))
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [""])
    }
