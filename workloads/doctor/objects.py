"""Parts of Kubernetes objects, which may be absent, and the reduced form in which a state keeps an object."""

from __future__ import annotations

from typing import Any

from workloads.doctor.kept import metadata

Json = dict[str, Any]
DAEMONS = ("DaemonSet", "Node")
"""Kinds of owner of the pods that belong to a node: Node is that of static pods, such as GKE's kube-proxy."""
_KEPT = ("name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp", "deletionTimestamp")


def trimmed(body: Json) -> Json:
    """Return an object without the list of a node's images, which is long and not evidence."""
    if isinstance(body.get("status"), dict) and "images" in body["status"]:
        return body | {"status": {key: value for key, value in body["status"].items() if key != "images"}}
    return body


def of_daemon(pod: Json) -> Json:
    """Return the parts of a DaemonSet's pod that the checks read: every node has about 20 pods with long specs."""
    its, spec = metadata(pod), pod.get("spec") or {}
    kept = {name: its[name] for name in _KEPT if name in its}
    lean = {
        part: [{"name": each.get("name"), "image": each.get("image")} for each in spec.get(part) or []]
        for part in ("initContainers", "containers")
    }
    where = {name: spec[name] for name in (("nodeName",) if spec.get("nodeName") else ("affinity",)) if name in spec}
    return {"kind": "Pod", "metadata": kept, "spec": where | lean, "status": pod.get("status") or {}}


def name_of(body: Json) -> str:
    """Return an object's name."""
    return str(body["metadata"]["name"])


def owner_of(body: Json, *kinds: str) -> str:
    """Return the name of an object's first owner, of one of these kinds if any are given; empty without one."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((str(each["name"]) for each in owners if not kinds or each.get("kind") in kinds), "")


def containers(pod: Json) -> list[Json]:
    """Return the statuses of a pod's containers. Sidecars are among the init containers (Kubernetes from 1.29 on)."""
    status = pod.get("status") or {}
    parts = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [each for part in parts for each in status.get(part) or []]


def labels(body: Json) -> dict[str, str]:
    """Return an object's labels."""
    value = metadata(body).get("labels")
    return value if isinstance(value, dict) else {}


def condition(body: Json, type_: str) -> Json:
    """Return a condition of an object's status, or {}."""
    status = body.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    listed = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    return next((each for each in listed if each.get("type") == type_), {})


def is_true(body: Json, type_: str) -> bool:
    """Return whether a condition is true."""
    return condition(body, type_).get("status") == "True"
