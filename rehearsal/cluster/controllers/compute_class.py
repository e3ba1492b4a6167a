"""GKE's ComputeClass: the pools that may serve a pod, their order, and the status of the object.

Replaces the part of GKE's autoscaler that reads the class (k8s.io/gke-autoscaling: cluster-autoscaler/pkg/computeclass,
Google 2026, read 2026-11-21; GKE docs ComputeClass CRD reference, 2026-04-13). Rules that name machines instead of
pools would create pools, which no stack of this project requests: they match nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from infra.catalog.pins import COMPUTE_CLASS_API
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.compute_class import EXCLUSIVE, SELECTOR
from rehearsal.cluster.controllers.admission import NEW_PODS, denying
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.snapshot import Context, Snapshot

API = COMPUTE_CLASS_API
KIND = "ComputeClass"


def order(pod: Json, pools: Sequence[Pool], classes: Mapping[str, Json]) -> list[Pool]:
    """Return the pools that may grow for a pod, first choice first. Pure.

    With a class: the pools that its rules name and that carry its label, in the order of the rules; then the others,
    unless it sets DoNotScaleUp. Without one: the pools of no class, the smallest machine first.
    """
    chosen = ((pod.get("spec") or {}).get("nodeSelector") or {}).get(SELECTOR)
    by_size = sorted(pools, key=lambda pool: (pool.gpus, pool.cpus, pool.name))
    if chosen is None:
        return [pool for pool in by_size if SELECTOR not in pool.labels]
    spec = (classes.get(chosen) or {}).get("spec")
    if spec is None:
        return []
    named = [name for rule in spec.get("priorities") or () for name in rule.get("nodepools") or ()]
    own = {pool.name: pool for pool in pools if pool.labels.get(SELECTOR) == chosen}
    first = [own[name] for name in named if name in own]
    if spec.get("whenUnsatisfiable") == "DoNotScaleUp":
        return first
    return [*first, *(pool for pool in by_size if pool not in first)]


def health(body: Json, pools: Sequence[Pool]) -> Json:
    """Return the condition of a class: whether everything that it names exists. Pure."""
    name = body["metadata"]["name"]
    own = {pool.name: pool for pool in pools}
    for rule in (body.get("spec") or {}).get("priorities") or ():
        for wanted in rule.get("nodepools") or ():
            if wanted not in own:
                return _condition("False", "NodePoolNotExist", f"Nodepool {wanted} doesn't exist.")
            if own[wanted].labels.get(SELECTOR) != name:
                words = f"Nodepool {wanted} doesn't have the label {SELECTOR}: {name}."
                return _condition("False", "CrdLabelNotMatching", words)
    return _condition("True", "Health", "Crd is healthy.")


def policies() -> list[Json]:
    """Return the policy of GKE Warden against pods that combine a class with other selectors (GKE docs, 2026-04-13; our
    wording)."""
    has = "has(object.spec.nodeSelector)"
    others = f"{list(EXCLUSIVE)}.filter(key, key in object.spec.nodeSelector)"
    spec = {
        "matchConditions": [{"name": "chooses", "expression": f"{has} && '{SELECTOR}' in object.spec.nodeSelector"}],
        "validations": [
            {
                "expression": f"{others}.size() == 0",
                "messageExpression": f"'{SELECTOR} cannot be combined with ' + {others}.join(', ')",
                "reason": "Forbidden",
            }
        ],
    }
    return denying("compute-classes.cloud.google.com", NEW_PODS, spec)


class ComputeClasses:
    """Maintains the condition "Health" of every class."""

    name = "compute classes"

    def __init__(self, context: Context) -> None:
        self._context = context

    def reconcile(self, snapshot: Snapshot) -> None:
        """Update the conditions that changed."""
        if snapshot.cluster is None or snapshot.cluster.cloud != "gke":
            return
        for body in snapshot.custom(KIND, API):
            now = health(body, snapshot.pools)
            before = ((body.get("status") or {}).get("conditions") or [{}])[0]
            if any(before.get(key) != now[key] for key in ("status", "reason", "message")):
                its = {**now, "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
                patch = {"status": {"conditions": [its]}}
                self._context.api.patch(API, KIND, body["metadata"]["name"], None, patch, subresource="status")


def _condition(status: str, reason: str, message: str) -> Json:
    return {"type": "Health", "status": status, "reason": reason, "message": message}
