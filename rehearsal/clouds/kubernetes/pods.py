"""Pod templates of an object, and the objects that a pod refers to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.identity import api, namespace
from rehearsal.engine.kind import Json, Reference, value_at, values_at

INTERFACES = "networking.gke.io/interfaces"
GIVEN = ("default", "pod-network")
"""Networks that GKE creates: GoogleCloudPlatform/gke-networking-api: network_types.go, 39b01c24, read 2026-11."""
SELECTOR = "cloud.google.com/compute-class"

_TEMPLATES = {
    **dict.fromkeys(("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job"), ("spec.template",)),
    "CronJob": ("spec.jobTemplate.spec.template",),
    "RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs.template"),
    "RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.template",
        "spec.submitterPodTemplate",
    ),
    "RayService": (
        "spec.rayClusterConfig.headGroupSpec.template",
        "spec.rayClusterConfig.workerGroupSpecs.template",
    ),
}
"""Paths of the pod templates by kind, in which lists stand for each of their items."""


def templates(type_: str, inputs: Json) -> Iterator[Json]:
    """Yield the pod templates of an object."""
    for path in _TEMPLATES.get(api(type_).kind, ()):
        yield from values_at(inputs, path)


def running(type_: str, live: Json) -> Iterator[tuple[Mapping[str, str], Json]]:
    """Yield labels and spec of each pod of an object, with the labels that KubeRay adds (its docs, v1.6.2)."""
    spec = live.get("spec") or {}
    groups = (spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec).get("workerGroupSpecs") or ()
    counts = [1 if groups else spec.get("replicas", 1), *(group.get("replicas", 1) for group in groups)]
    for number, (template, count) in enumerate(zip(templates(type_, live), counts, strict=False)):
        labels = value_at(template, "metadata.labels") or {}
        if groups:
            labels = {**labels, "ray.io/node-type": "worker" if number else "head"}
        if api(type_).kind == "RayCluster":
            labels["ray.io/cluster"] = value_at(live, "metadata.name")
        yield from [(labels, template.get("spec") or {})] * count


def references(type_: str) -> Iterator[Reference]:
    """Yield the objects that the pods of an object refer to."""
    for template in _TEMPLATES.get(api(type_).kind, ()):
        for path, target in _NAMED.items():
            yield to(f"{template}.spec.{path}", target, _beside)
        for source, (key, target) in _VOLUMES.items():
            yield to(f"{template}.spec.volumes", target, partial(_volume, source, key))
        yield to(f"{template}.spec.nodeSelector", identity.COMPUTE_CLASS, _compute_class)
        # GKE docs, multi-network support for Pods, 2026-08: a Network in use is not deleted.
        yield to(f"{template}.metadata.annotations", identity.NETWORK, _networks, holds=True)


Resolve = Callable[[Any, Json, Mapping[str, Any]], str | tuple[str, ...] | None]


def _itself(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str:
    return str(value)


def to(path: str, type_: str, resolve: Resolve = _itself, *, holds: bool = False, by: str = "") -> Reference:
    """Return a reference to objects of one type. Most do not hold them: Kubernetes deletes what others refer to."""
    return Reference(path=path, types=(type_,), resolve=resolve, holds=holds, by=by)


_NAMED = {
    "serviceAccountName": identity.SERVICE_ACCOUNT,
    # Kubernetes docs, DNS for Services and Pods, 2026: the names of such pods are those of a headless Service.
    "subdomain": "kubernetes:core/v1:Service",
    "volumes.configMap.name": identity.CONFIG_MAP,
    "volumes.projected.sources.configMap.name": identity.CONFIG_MAP,
    "volumes.projected.sources.secret.name": identity.SECRET,
    "resourceClaims.resourceClaimTemplateName": identity.CLAIM_TEMPLATE,
    **{
        f"{containers}.{path}": target
        for containers in ("containers", "initContainers")
        for path, target in {
            "env.valueFrom.secretKeyRef.name": identity.SECRET,
            "env.valueFrom.configMapKeyRef.name": identity.CONFIG_MAP,
        }.items()
    },
}
"""Paths below a pod's spec of the names of objects in its namespace, which the stack creates.

The API server checks none of them. Missing here are those that only a user's objects have (imagePullSecrets, envFrom,
priorityClassName): they are created after the first `up`, and pods wait for them.
"""
_VOLUMES = {
    "secret": ("secretName", identity.SECRET),
    "persistentVolumeClaim": ("claimName", identity.CLAIM),
}
"""Key of the name and kind of a volume's object, by source."""


def _beside(value: Any, inputs: Json, config: Mapping[str, Any]) -> str | None:
    """Return the id of an object in the same namespace; None for the account and the ConfigMap of every namespace."""
    return None if value in ("default", "kube-root-ca.crt") else f"{namespace(inputs, config)}/{value}"


def _volume(source: str, key: str, value: Any, inputs: Json, config: Mapping[str, Any]) -> str | None:
    name = value_at(value, f"{source}.{key}")
    users = str(value_at(value, "name")).startswith("user-")  # by the name that the stack gives these volumes
    return None if users or name is None else _beside(name, inputs, config)


def _compute_class(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str | None:
    return value.get(SELECTOR) if isinstance(value, dict) else None


def _networks(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        interfaces = json.loads(value[INTERFACES])
        return tuple(each["network"] for each in interfaces if each.get("network") not in (None, *GIVEN))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()
