"""What tests look at in an API server: Ray's pods, their nodes, the names that they refer to, who may do what."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.pins import RAY_API
from tools.kubernetes.api import Api, Json, NotYet

GPU = "nvidia.com/gpu"
RAY = "ray"
WITHIN_S = 90.0
"""How long a controller may take; on a quiet machine it is seconds."""


def ray_cluster(api: Api, namespace: str = RAY) -> Json:
    """The only RayCluster there is."""
    (found,) = api.list(RAY_API, "RayCluster", namespace)
    return found


def pods(api: Api, selector: str, namespace: str = RAY) -> list[Json]:
    """Pods that are not about to go, by name."""
    found = api.list("v1", "Pod", namespace, selector)
    return sorted((pod for pod in found if "deletionTimestamp" not in pod["metadata"]), key=name)


def workers(api: Api) -> list[Json]:
    """The worker pods of a RayCluster."""
    return pods(api, "ray.io/node-type=worker")


def head(api: Api) -> Json:
    """The one head pod."""
    (found,) = pods(api, "ray.io/node-type=head")
    return found


def gpu_nodes(api: Api) -> list[Json]:
    """Nodes that have GPUs, or are labelled as those that will."""
    labels = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.present")
    return [
        node
        for node in api.list("v1", "Node")
        if GPU in node["status"]["capacity"] or any(label in node["metadata"].get("labels", {}) for label in labels)
    ]


def until_ready(api: Api, count: int) -> list[Json]:
    """Wait until the operator says that so many workers are ready, and that there are no others; returns them."""

    def look() -> bool:
        status, found = ray_cluster(api).get("status") or {}, workers(api)
        counts = {status.get("readyWorkerReplicas", 0), len(found), sum(map(is_ready, found))}
        if counts == {count} and status.get("state") == "ready":
            return True
        raise NotYet(f"{status.get('state')}, {status.get('readyWorkerReplicas', 0)}; {problems(api)}")

    api.until(f"{count} workers of a RayCluster", look, WITHIN_S)
    return workers(api)


def problems(api: Api, namespace: str = RAY) -> str:
    """What the scheduler has to say about pods that have no node."""
    found = api.list("v1", "Pod", namespace)
    return "; ".join(f"{name(pod)}: {why}" for pod in found if (why := condition(pod, "PodScheduled").get("message")))


def is_ready(body: Json) -> bool:
    """Whether its Ready condition is true."""
    return condition(body, "Ready").get("status") == "True"


def condition(body: Json, type_: str) -> Json:
    """One of its conditions, empty where it has none of that type."""
    found = (body.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == type_), {})


def name(body: Json) -> str:
    """Its name."""
    return str(body["metadata"]["name"])


def unresolved(api: Api, pod: Json) -> list[str]:
    """The objects that a pod's spec names and that are not there: it would wait for them for ever."""
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
    """What the API server's authorizer says of a ServiceAccount in `RAY`; `resource` may be "pods/exec"."""
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
    """All that the owner of this client may do in a namespace, as "verb group/resource"."""
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
