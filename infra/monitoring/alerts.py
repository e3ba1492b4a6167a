"""Alert rules for Prometheus: each with its cause, what it names, what it means and what to do.

A rule applies to the GPUs of every exporter that Prometheus reads, and to the NICs and the Ray clusters of the stack's
namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from infra.monitoring.dashboards import DOLLARS, THROTTLED

GROUP = "rdma-ray"
INTERVAL = "30s"
"""Interval at which rules are evaluated (our choice, 2026-11)."""
IDLE_FOR, WAITS_FOR, ENDS_IN_S = "30m", "1h", 3600
"""How long GPUs may be idle and a queue may wait, and when the end of a node is near (our choice, 2026-11)."""
LOADED, SLOW = 0.3, 0.5
"""Share of the line rate from which a node is under load, and share of its fastest NIC below which a NIC is slow (our
choice, 2026-11)."""
APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)
"""Xid errors of applications, after which the GPU "should still be healthy" (NVIDIA/k8s-device-plugin:
internal/rm/health.go, read 2026-11)."""

_GPU = "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of node {{ $labels.Hostname }}"


class Alert(NamedTuple):
    """An alert rule. `cause` is what it finds; `summary` names the node, GPU or NIC; `action` has a command or page."""

    name: str
    cause: str
    expr: str
    hold: str
    severity: str
    summary: str
    meaning: str
    action: str


def alerts(namespace: str, dollars: float | None) -> tuple[Alert, ...]:
    """Return the alerts of a stack.

    Args:
        namespace: Namespace of Ray's pods.
        dollars: Price of a GPU for an hour, US dollars; None if it is not known, and idle GPUs are then counted.
    """
    pods = f'namespace="{namespace}"'
    sent = f"max by (Hostname, nic) (rate(rdma_ray_nic_sent_bytes_total{{{pods}}}[5m]))"
    fastest = f"max by (Hostname) ({sent})"
    line_rate = f"max by (Hostname) (rdma_ray_nic_line_rate_bytes_per_second{{{pods}}})"
    idle = f'sum by (namespace) (ray_resources{{Name="GPU",State="AVAILABLE",{pods}}})'
    price = f" * on (namespace) group_left () max by (namespace) ({DOLLARS}{{{pods}}})" if dollars is not None else ""
    cost = 'cost {{ printf "%.2f" $value }} dollars per hour' if dollars is not None else "number {{ $value }}"
    left = f"rdma_ray_node_end_timestamp_seconds{{{pods}}} - time()"
    xid = " ".join(f"!= {number}" for number in APPLICATION_XIDS)
    return (
        Alert(
            "RdmaRayGpuXid",
            "an Xid error of a GPU's hardware",
            f"DCGM_FI_DEV_XID_ERRORS > 0 {xid}",
            "0s",
            "critical",
            f"{_GPU} has Xid error {{{{ $value }}}}.",
            "The driver reported a fault of the GPU or its links; jobs on the node fail or compute wrongly.",
            "Run `rdma-ray doctor`, look the number up in NVIDIA's catalog of Xid errors, and replace the node.",
        ),
        Alert(
            "RdmaRayGpuRowRemapFailed",
            "a row of a GPU's memory that cannot be remapped",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            "0s",
            "critical",
            f"{_GPU} cannot replace a faulty row of its memory.",
            "The GPU has no spare row left, so memory errors will return.",
            "Replace the node, and report the GPU to the cloud.",
        ),
        Alert(
            "RdmaRayGpuRowRemapPending",
            "a row of a GPU's memory that waits for a reset",
            "DCGM_FI_DEV_ROW_REMAP_PENDING > 0",
            "5m",
            "warning",
            f"{_GPU} replaces a faulty row of its memory at its next reset.",
            "Until then, the GPU keeps off the row, with less memory in reserve.",
            "Restart or replace the node after the current job.",
        ),
        Alert(
            "RdmaRayGpuThrottled",
            "a GPU that heat or a power brake slows down",
            f"{THROTTLED.format('DCGM_FI_DEV_CLOCKS_EVENT_REASONS')} > 0",
            "10m",
            "warning",
            f"{_GPU} is throttled (reasons {{{{ $value }}}}: 1 and 2 thermal, 4 power brake).",
            "Cooling or power supply has a fault; every rank of a job waits for this GPU.",
            "Run `rdma-ray bench hunt` to see what it costs, and replace the node.",
        ),
        Alert(
            "RdmaRayNicDown",
            "a NIC whose link is down",
            f"rdma_ray_nic_up{{{pods}}} == 0",
            "1m",
            "critical",
            "NIC {{ $labels.nic }} of node {{ $labels.Hostname }} is down.",
            "NCCL fails, or a job uses the other NICs and is slow.",
            "Run `rdma-ray doctor`, and replace the node.",
        ),
        Alert(
            "RdmaRayNicSlow",
            "a NIC far below the others of its node under load",
            f"{sent} < on (Hostname) group_left () ({SLOW} * {fastest})"
            f" and on (Hostname) ({fastest} > on (Hostname) ({LOADED} * {line_rate}))",
            "10m",
            "warning",
            'NIC {{ $labels.nic }} of node {{ $labels.Hostname }} sends {{ printf "%.3g" $value }} bytes/s, less than'
            " half of the fastest NIC of the node.",
            "The NICs of a node carry equal parts of a collective, so the slowest one sets the pace. A job that uses"
            " some of the NICs only has the same effect.",
            "Run `rdma-ray bench hunt` when the job has ended.",
        ),
        Alert(
            "RdmaRayGpusIdle",
            "GPUs that no task of Ray has requested",
            f"{idle}{price} > 0",
            IDLE_FOR,
            "warning",
            f"Idle GPUs of namespace {{{{ $labels.namespace }}}} {cost}.",
            f"For {IDLE_FOR}, no task or actor of Ray has requested them, and their nodes cost money.",
            "Run `rdma-ray list`; set nodes.min to 0 so that Ray's autoscaler removes idle nodes.",
        ),
        Alert(
            "RdmaRayNodeEndsSoon",
            "a flex-start node in its last hour",
            f"({left} < {ENDS_IN_S}) > 0",
            "0s",
            "warning",
            "The cloud takes node {{ $labels.Hostname }} back in {{ humanizeDuration $value }}.",
            "The lifetime of a flex-start node (nodes.maxRunHours) ends, and its job with it.",
            "Let the job write a checkpoint; it resumes on the next nodes (docs/training.md).",
        ),
        Alert(
            "RdmaRayQueueWaits",
            "a queue in which workloads have waited all the time",
            "sum by (cluster_queue) (kueue_pending_workloads) > 0",
            WAITS_FOR,
            "warning",
            "{{ $value }} workloads wait in queue {{ $labels.cluster_queue }}.",
            f"For {WAITS_FOR}, at least one workload has waited for quota or nodes.",
            "Run `rdma-ray doctor`, which names what they wait for (docs/queues.md).",
        ),
    )


def groups(namespace: str, dollars: float | None) -> list[dict[str, Any]]:
    """Return the groups of a rules file: the price, if it is known, and the alerts."""
    recorded: Sequence[dict[str, Any]] = ()
    if dollars is not None:
        recorded = ({"record": DOLLARS, "expr": f"vector({dollars:.4f})", "labels": {"namespace": namespace}},)
    rules = [
        {
            "alert": each.name,
            "expr": each.expr,
            # Zero is the default, and GKE's managed Prometheus and others keep it as they get it.
            **({"for": each.hold} if each.hold != "0s" else {}),
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "description": f"{each.meaning} {each.action}"},
        }
        for each in alerts(namespace, dollars)
    ]
    return [{"name": GROUP, "interval": INTERVAL, "rules": [*recorded, *rules]}]
