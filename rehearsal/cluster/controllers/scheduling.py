"""Scheduling predicates: selector, taints and resources. Pure.

Replaces the simulation of the scheduler in the cluster autoscaler, for nodes that do not exist yet
(kubernetes/autoscaler: cluster-autoscaler/simulator, 1.35). It ignores affinity between pods, topology spread, volumes
and resource claims; the real scheduler alone places pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.cluster.controllers.quantities import Amounts, added, amounts, requests

Json = dict[str, Any]
_STARTING = tuple(f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "network-unavailable"))


@dataclass
class CandidateNode:
    """Existing or upcoming node: labels, taints, the resources that are `free`, and the names that it `offers`."""

    name: str
    pool: str
    labels: Mapping[str, str]
    taints: list[Json]
    free: Amounts
    pods: list[str] = field(default_factory=list)
    offers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.offers = self.offers or frozenset(name for name, amount in self.free.items() if amount)

    def why_not(self, pod: Json) -> str | None:
        """Return why a pod (an object with its spec) does not fit, in the scheduler's words; None if it does."""
        spec = pod.get("spec") or {}
        for taint in self.taints:
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated(taint, spec.get("tolerations")):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        selected = all(self.labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
        if not selected or (required is not None and not self.is_required_by(required.get("nodeSelectorTerms") or [])):
            return "node(s) didn't match Pod's node affinity/selector"
        lacking = [name for name, wanted in requests(spec).items() if wanted > self.free.get(name, 0)]
        return f"Insufficient {lacking[0]}" if lacking else None

    def is_required_by(self, terms: list[Json]) -> bool:
        """Return whether the node matches one of the terms of a required node affinity.

        A term without requirements matches no node (k8s.io/component-helpers v0.36.1:
        scheduling/corev1/nodeaffinity/nodeaffinity.go, read 2026-11-26).
        """

        def matches(term: Json) -> bool:
            on_labels = [(self.labels, each) for each in term.get("matchExpressions") or []]
            on_name = [({"metadata.name": self.name}, each) for each in term.get("matchFields") or []]
            results = [meets(values, each) for values, each in (*on_labels, *on_name)]
            return bool(results) and all(results)

        return any(map(matches, terms))

    def take(self, pod: Json) -> None:
        """Subtract a pod's requests."""
        self.free = added(self.free, {name: -wanted for name, wanted in requests(pod.get("spec") or {}).items()})
        self.pods.append(name_of(pod))


def meets(values: Mapping[str, str], requirement: Json) -> bool:
    """Return whether labels or fields meet a requirement of a node selector (k8s.io/apimachinery: pkg/labels)."""
    found, wanted = values.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return found in wanted
        case "NotIn":
            return found not in wanted
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator:
            if found is None or not re.fullmatch(r"[+-]?\d+", found):
                return False
            return int(found) > int(wanted[0]) if operator == "Gt" else int(found) < int(wanted[0])
        case operator:
            raise ValueError(f"{operator} is not an operator of a node selector")


def place_of(node: Json, pool: str, pods: Iterable[Json]) -> CandidateNode:
    """Return a Node as a candidate, with its pods counted."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    place = CandidateNode(
        name=str(metadata["name"]),
        pool=pool,
        labels=metadata.get("labels") or {},
        # A starting node has these taints; it will be ready soon.
        taints=[taint for taint in spec.get("taints") or () if taint["key"] not in _STARTING],
        free=amounts(status.get("allocatable")),
    )
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") == place.name and not over(pod):
            place.take(pod)
    return place


def name_of(pod: Json) -> str:
    """Return NAMESPACE/NAME."""
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace', 'default')}/{metadata.get('name', '')}"


def over(pod: Json) -> bool:
    """Return whether a pod has ended and no longer needs its node."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def of_daemon_set(pod: Json) -> bool:
    """Return whether a pod belongs to its node: pods of DaemonSets do not keep a node."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def unschedulable(pod: Json) -> bool:
    """Return whether the real scheduler found no node for this pod."""
    if (pod.get("spec") or {}).get("nodeName") or pod["metadata"].get("deletionTimestamp") or over(pod):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        each["type"] == "PodScheduled" and each["status"] == "False" and each.get("reason") == "Unschedulable"
        for each in conditions
    )


def tolerated(taint: Json, tolerations: Iterable[Json] | None) -> bool:
    """Return whether one of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations or ())


def _covers(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
