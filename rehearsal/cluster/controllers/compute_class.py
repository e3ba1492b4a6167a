"""GKE's ComputeClass: the pools that may serve a pod, and their order.

Replaces the part of GKE's autoscaler that reads the class (k8s.io/gke-autoscaling: cluster-autoscaler/pkg/computeclass,
Google 2026, read 2026-11-21; GKE docs ComputeClass CRD reference, 2026-04-13). Rules that name machines instead of
pools would create pools, which no stack of this project requests: they match nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.pins import COMPUTE_CLASS_API
from rehearsal.clouds.kubernetes.pods import SELECTOR
from rehearsal.cluster.controllers.admission import NEW_PODS, denying
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.engine.kind import Json

API = COMPUTE_CLASS_API
KIND = "ComputeClass"
EXCLUSIVE = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-spot",
    "cloud.google.com/machine-family",
    "cloud.google.com/reservation-name",
    "cloud.google.com/gke-nodepool",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
"""Labels that a pod with a class cannot select: GKE docs, ComputeClass concepts, 2026-04-13."""


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
