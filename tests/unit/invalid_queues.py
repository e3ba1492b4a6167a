"""Stack files that the rules about the queue reject."""

from __future__ import annotations

from infra.settings import CloudSettings, GkeSettings

from .stacks import EKS, GKE, Case, changed

QUEUED = changed(GKE, {"nodes.capacity": "flex-start-queued", "queue": "kueue"})
RESERVED = changed(GKE, {"nodes.capacity": "reservation", "nodes.reservation": "ours"})
SECOND = changed(RESERVED, {"nodes.fallback": "flex-start-queued", "queue": "kueue"})
"""The reservation first, queued machines next."""

CASES = (
    *(
        Case(
            CloudSettings.kueue_size_not_fixed,
            stack,
            {"queue": "kueue", "ray.minWorkers": 0},
            {"queue": "kueue", "ray.minWorkers": 2},
        )
        for stack in (GKE, EKS)
    ),
    Case(GkeSettings.flex_start_not_static, QUEUED, {"nodes.min": 1}, {}),
    Case(GkeSettings.queued_without_kueue, QUEUED, {"queue": "none"}, {}),
    Case(GkeSettings.queued_with_compute_class, QUEUED, {"computeClass": True}, {}),
    Case(GkeSettings.fallback_never_tried, QUEUED, {"nodes.fallback": "spot"}, {}),
    Case(
        GkeSettings.fallback_without_order,
        changed(RESERVED, {"queue": "kueue", "computeClass": True}),
        {"nodes.fallback": "flex-start-queued"},
        {"nodes.fallback": "flex-start-queued", "computeClass": False},
    ),
    *(
        Case(
            GkeSettings.fallback_never_tried,
            changed(GKE, {"nodes.capacity": first, "queue": "kueue"}),
            {"nodes.fallback": "flex-start-queued"},
            {"nodes.fallback": "flex-start-queued", "nodes.capacity": "reservation", "nodes.reservation": "ours"},
        )
        for first in ("spot", "flex-start")
    ),
    Case(GkeSettings.queued_fallback_without_kueue, SECOND, {"queue": "none"}, {"nodes.min": 1}),
)
