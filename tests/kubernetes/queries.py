"""Queries of the tests to an API server: Ray's pods, their nodes, quotas, references and permissions."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.names import CLUSTER_QUEUE
from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.queue_objects import GPU_FLAVOR
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

GPU = "nvidia.com/gpu"
RAY = "ray"
WITHIN_S = 90.0
"""Timeout of a controller in seconds; on an idle machine it takes seconds."""


def ray_cluster(api: Api, namespace: str = RAY) -> Json:
    """Return the only RayCluster."""
    (found,) = api.list(RAY_API, "RayCluster", namespace)
    return found


def pods(api: Api, selector: str = "", namespace: str = RAY) -> list[Json]:
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


def scale(api: Api, count: int, *removed: Json) -> list[Json]:
    """Set the number of workers as Ray's autoscaler does (ray 2.60: autoscaler/v2/instance_manager/cloud_providers/
    kuberay/cloud_provider.py); return them when they are ready."""
    group = "/spec/workerGroupSpecs/0"
    named = {"workersToDelete": [name(pod) for pod in removed]}
    patch = [
        {"op": "replace", "path": f"{group}/replicas", "value": count},
        {"op": "replace", "path": f"{group}/scaleStrategy", "value": named},
    ]
    api.patch(RAY_API, "RayCluster", name(ray_cluster(api)), RAY, patch, type="json")
    return until_ready(api, count)


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


def condition(body: Json | None, type_: str) -> Json:
    """Return a condition, or {}."""
    found = ((body or {}).get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == type_), {})


def name(body: Json) -> str:
    """Return the object's name."""
    return str(body["metadata"]["name"])


def workload(api: Api, owner: str, namespace: str = RAY) -> Json | None:
    """Return Kueue's Workload of a RayCluster, a RayJob or a Job."""
    found = api.list(KUEUE_API, "Workload", namespace)
    return next((each for each in found if each["metadata"]["ownerReferences"][0]["name"] == owner), None)


def until_reserved(api: Api, gpus: int) -> None:
    """Wait until that many GPUs are reserved in the ClusterQueue: Kueue writes the number after its decision."""

    def look() -> bool:
        status = (api.get(KUEUE_API, "ClusterQueue", CLUSTER_QUEUE) or {}).get("status", {})
        flavors = {flavor["name"]: flavor["resources"] for flavor in status.get("flavorsReservation", [])}
        found = sum(int(each["total"]) for each in flavors.get(GPU_FLAVOR, []) if each["name"] == GPU)
        if found == gpus:
            return True
        raise NotYet(f"{found}")

    api.until(f"{gpus} GPUs reserved", look, WITHIN_S)


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
    places = (("secret", "Secret", "secretName"), ("configMap", "ConfigMap", "name"))
    for volume in spec.get("volumes", []):
        for field, kind, called in (*places, ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName")):
            if field in volume:
                yield kind, volume[field][called], None


def _has(body: Json | None, key: str | None) -> bool:
    return body is not None and (key is None or key in (body.get("data") or {}))


def rules(plane: ControlPlane, account: str, namespace: str = RAY) -> set[str]:
    """Return the permissions in a namespace of a ServiceAccount of Ray's namespace as "verb group/resource", by the API
    server's authorizer, without those of every account (discovery, reviews)."""
    return _rules(plane, RAY, account, namespace) - _rules(plane, "default", "default", namespace)


def _rules(plane: ControlPlane, home: str, account: str, namespace: str) -> set[str]:
    path = f"/api/v1/namespaces/{home}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.api.request("POST", path, body=asked)["status"]["token"]
    return rights(Api(plane.url, token, plane.authority), namespace)


def member(plane: ControlPlane, group: str) -> Api:
    """Return a client that the API server takes for a user of this group."""
    headers = {"Impersonate-User": "somebody", "Impersonate-Group": group}
    return Api(plane.url, plane.token, plane.authority, headers=headers)


def rights(own: Api, namespace: str) -> set[str]:
    """Return what a client may do in a namespace, by the API server's authorizer."""
    spec = {"namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": spec}
    status = own.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=body)["status"]
    assert not status["incomplete"]
    return {
        f"{verb} {group}/{resource}" + "".join(f" {only}" for only in rule.get("resourceNames", []))
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [""])
    }


def destroy(stack: RunningStack) -> None:
    """Destroy a stack with its cluster. Nothing then blocks the end of the simulated one: its API server is empty."""
    said = stack.engine.destroy()
    assert said.ok, said.text
    assert stack.phases.left() == []
    stack.api.until("an empty API server", lambda: stack.controllers.cleanup.leftovers() == [], WITHIN_S)
    stack.controllers.check()
