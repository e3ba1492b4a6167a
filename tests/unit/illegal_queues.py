"""Stack files that the rules about the queue refuse."""

from __future__ import annotations

from infra.legality import queues

from .illegal import Case
from .stacks import EKS, GKE, changed

QUEUED = changed(GKE, {"nodes.capacity": "flex-start-queued", "queue": "kueue"})
RESERVED = changed(GKE, {"nodes.capacity": "reservation", "nodes.reservation": "ours"})
SECOND = changed(RESERVED, {"nodes.fallback": "flex-start-queued", "queue": "kueue"})
"""The reservation first, queued machines next."""

CASES = (
    *(
        Case(
            queues.kueue_wants_a_fixed_size,
            stack,
            {"queue": "kueue", "ray.minWorkers": 0},
            {"queue": "kueue", "ray.minWorkers": 2},
            "ray.minWorkers",
            "set ray.minWorkers to 2",
        )
        for stack in (GKE, EKS)
    ),
    Case(queues.queued_starts_empty, QUEUED, {"nodes.min": 1}, {}, "nodes.min", "set nodes.min to 0"),
    Case(queues.queued_needs_kueue, QUEUED, {"queue": "none"}, {}, "nodes.capacity", "set queue to kueue"),
    Case(queues.queued_with_compute_class, QUEUED, {"computeClass": True}, {}, "computeClass", "false"),
    Case(queues.queued_has_no_fallback, QUEUED, {"nodes.fallback": "spot"}, {}, "nodes.fallback", "remove"),
    Case(
        queues.fallback_cannot_queue,
        changed(RESERVED, {"queue": "kueue", "computeClass": True}),
        {"nodes.fallback": "flex-start-queued"},
        {"nodes.fallback": "flex-start-queued", "computeClass": False},
        "nodes.fallback",
        "flex-start or spot",
    ),
    *(
        Case(
            queues.queued_after_a_guess,
            changed(GKE, {"nodes.capacity": first, "queue": "kueue"}),
            {"nodes.fallback": "flex-start-queued"},
            {"nodes.fallback": "flex-start-queued", "nodes.capacity": "reservation", "nodes.reservation": "ours"},
            "nodes.fallback",
            "set nodes.capacity to reservation",
        )
        for first in ("spot", "flex-start")
    ),
    Case(
        queues.queued_second_needs_kueue,
        SECOND,
        {"queue": "none"},
        {"nodes.min": 1},
        "nodes.fallback",
        "queue to kueue",
    ),
)
