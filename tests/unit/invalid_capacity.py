"""Stack files that request machines in a way that does not work."""

from __future__ import annotations

from infra.settings import CloudSettings, EksSettings, GkeSettings

from .stacks import EKS, GKE, Case, changed

QUEUED = changed(GKE, {"nodes.capacity": "flex-start-queued", "queue": "kueue"})
CLASSED = changed(GKE, {"computeClass": True, "nodes.fallback": "spot"})

CASES = (
    Case(None, GKE, {"nodes.machine": "p5.48xlarge"}, {"nodes.machine": "a4-highgpu-8g"}),
    Case(None, EKS, {"nodes.machine": "a4x-highgpu-4g"}, {"nodes.machine": "p6-b300.48xlarge"}),
    Case(
        CloudSettings.machine_unsupported,
        GKE,
        {"nodes.machine": "a4x-highgpu-4g"},
        {"nodes.machine": "a4-highgpu-8g"},
    ),
    Case(
        None,
        GKE,
        {"nodes.capacity": "capacity-block", "nodes.reservation": "ours"},
        {"nodes.capacity": "reservation", "nodes.reservation": "ours"},
    ),
    Case(None, EKS, {"nodes.capacity": "flex-start"}, {"nodes.capacity": "spot"}),
    Case(
        CloudSettings.capacity_unavailable,
        GKE,
        {"nodes.capacity": "on-demand"},
        {"nodes.capacity": "spot"},
    ),
    Case(
        CloudSettings.capacity_unavailable,
        EKS,
        {"nodes.capacity": "spot", "nodes.machine": "p6-b300.48xlarge"},
        {"nodes.capacity": "spot", "nodes.machine": "p6-b200.48xlarge"},
    ),
    Case(
        GkeSettings.reservation_missing_or_unused,
        GKE,
        {"nodes.capacity": "reservation"},
        {"nodes.capacity": "reservation", "nodes.reservation": "ours"},
    ),
    Case(
        GkeSettings.reservation_missing_or_unused,
        CLASSED,
        {"nodes.fallback": "reservation"},
        {"nodes.fallback": "reservation", "nodes.reservation": "ours"},
    ),
    Case(
        EksSettings.reservation_missing_or_unused,
        EKS,
        {"nodes.capacity": "capacity-block"},
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0"},
    ),
    Case(
        GkeSettings.reservation_missing_or_unused,
        GKE,
        {"nodes.reservation": "ours"},
        {"nodes.reservation": "ours", "nodes.capacity": "reservation"},
    ),
    Case(
        EksSettings.reservation_missing_or_unused,
        EKS,
        {"nodes.reservation": "cr-0123456789abcdef0"},
        {"nodes.reservation": "cr-0123456789abcdef0", "nodes.capacity": "reservation"},
    ),
    Case(
        EksSettings.reservation_malformed,
        EKS,
        {"nodes.reservation": "ours", "nodes.capacity": "reservation"},
        {"nodes.reservation": "cr-0123456789abcdef0", "nodes.capacity": "reservation"},
    ),
    Case(
        GkeSettings.reservation_malformed,
        GKE,
        {"nodes.reservation": "Ours!", "nodes.capacity": "reservation"},
        {"nodes.reservation": "projects/p/reservations/ours/reservationBlocks/b-1", "nodes.capacity": "reservation"},
    ),
    Case(GkeSettings.run_time_wrong, GKE, {"nodes.maxRunHours": 169}, {"nodes.maxRunHours": 168}),
    Case(
        GkeSettings.run_time_wrong,
        GKE,
        {"nodes.maxRunHours": 24, "nodes.capacity": "spot"},
        {"nodes.maxRunHours": 24},
    ),
    Case(
        GkeSettings.flex_start_not_static,
        GKE,
        {"nodes.min": 1},
        {"nodes.min": 1, "nodes.capacity": "spot"},
    ),
    Case(
        None,
        CLASSED,
        {"nodes.fallback": "capacity-block", "nodes.capacity": "reservation", "nodes.reservation": "ours"},
        {},
    ),
    Case(
        GkeSettings.fallback_unavailable,
        CLASSED,
        {"nodes.fallback": "on-demand"},
        {"nodes.capacity": "spot", "nodes.fallback": "flex-start"},
    ),
    Case(GkeSettings.fallback_without_order, CLASSED, {"computeClass": False}, {}),
    Case(GkeSettings.fallback_never_tried, CLASSED, {"nodes.fallback": "flex-start"}, {}),
    Case(
        EksSettings.capacity_block_not_static,
        EKS,
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0", "nodes.min": 1},
        {"nodes.capacity": "capacity-block", "nodes.reservation": "cr-0123456789abcdef0", "nodes.min": 0},
    ),
)
