"""Dashboards: each panel's title, unit and queries. `infra.monitoring.grafana` makes Grafana's JSON of them.

Metrics and their sources:

rdma_ray_…  infra/kubernetes/metrics_pod.py, and the rules (`infra.monitoring.alerts`).
DCGM_FI_…   NVIDIA/dcgm-exporter: etc/default-counters.csv, 4.6.0-4.8.3; labels gpu, UUID, modelName, Hostname; read
            2026-11-28. Fields that are not in the default list: DCGM_COUNTERS.
ray_…, autoscaler_…  Ray 2.60: dashboard/modules/metrics/dashboards, and its metrics as seen on 2026-11-28.
kueue_…     kubernetes-sigs/kueue: pkg/metrics/metrics.go, 0.19.2.
"""

from __future__ import annotations

from typing import NamedTuple

DOLLARS = "rdma_ray:gpu_dollars_per_hour"
"""Recorded series: the price of a GPU for an hour, of its machine's price in the stack file or the catalog."""

ERROR_COUNTERS = (
    ".*(err|drop|discard|overrun|downed|recovery|out_of_|duplicate|retrans|retries|timeout|invalid|unresponsive"
    "|impaired|icrc).*|roce_slow_restart"
)
"""The kernel's counters that count errors; without those of flushed work, which every queue has when it ends."""
NO_ERRORS = ".*flush.*"
CONGESTION_COUNTERS = (
    "np_cnp_sent|rp_cnp_handled|rp_cnp_ignored|np_ecn_marked_roce_packets|roce_slow_restart_cnps|port_xmit_wait"
)

DCGM_COUNTERS = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "Ratio of cycles the tensor pipe is active."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("gauge", "Bits of what limits the clocks."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Double-bit ECC errors since the driver was loaded."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", "Rows remapped for uncorrectable errors."),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether remapping of rows has failed."),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("gauge", "Whether remapping of rows is pending."),
}
"""Fields of DCGM that the dashboards and alerts use, and dcgm-exporter reads on EKS: type and help."""

_NAMESPACE = 'namespace=~"$namespace"'
_RAY = f'{_NAMESPACE},ray_io_cluster=~"$cluster"'
_NODE = 'Hostname=~"$node"'
_NIC = f"{_NAMESPACE},{_NODE}"
_GPU_NAME, _NIC_NAME = "{{Hostname}} GPU {{gpu}}", "{{Hostname}} {{nic}}"


class Query(NamedTuple):
    """A PromQL expression, and the name of its series with {{label}}."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A panel. `unit` is Grafana's: Bps bytes per second, mbytes MiB, percent 0 to 100, percentunit 0 to 1, s seconds.

    A `number` shows the last value; other panels are graphs over time.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    text: str
    number: bool = False


class Dashboard(NamedTuple):
    """A dashboard; `uid` is the end of its address in Grafana."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def _ray_gpus(state: str) -> str:
    return f'sum(ray_resources{{Name="GPU",State="{state}",{_RAY}}})'


def _counters(pattern: str, without: str = "") -> str:
    more = f',counter!~"{without}"' if without else ""
    rate = f'rate(rdma_ray_nic_counter_total{{{_NIC},counter=~"{pattern}"{more}}}[$__rate_interval])'
    return f"sum by (Hostname, nic, counter) ({rate})"


def _rate(metric: str) -> str:
    return f"rate({metric}{{{_NIC}}}[$__rate_interval])"


def _gpu(title: str, unit: str, expr: str, text: str) -> Panel:
    return Panel(title, unit, (Query(expr, _GPU_NAME),), text)


_GPUS = f"sum(rdma_ray_node_gpus{{{_NAMESPACE}}})"
_PRICE = f"max({DOLLARS}{{{_NAMESPACE}}})"
_LINE_RATE = f"rdma_ray_nic_line_rate_bytes_per_second{{{_NIC}}}"
_REASONS = f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_NODE}}}"
THROTTLED = "floor({} / 32) % 8"
"""Bits 5 to 7 of what limits a GPU's clocks, which are faults of cooling or power: SwThermalSlowdown 1,
HwThermalSlowdown 2, HwPowerBrakeSlowdown 4 (NVIDIA/go-nvml: gen/nvml/nvml.h, nvmlClocksEventReason, read 2026-11)."""

CLUSTER = Dashboard(
    "rdma-ray-cluster",
    "RDMA Ray: cluster and cost",
    (
        Panel("Nodes", "short", (Query(f"count(rdma_ray_node_gpus{{{_NAMESPACE}}})", "nodes"),), "Worker nodes.", True),
        Panel("GPUs", "short", (Query(_GPUS, "GPUs"),), "GPUs of these nodes, which cost money.", True),
        Panel(
            "Cost per hour",
            "currencyUSD",
            (Query(f"{_GPUS} * {_PRICE}", "all GPUs"),),
            "By the price of the stack file or the catalog; empty where it is not known.",
            True,
        ),
        Panel(
            "Cost of idle GPUs per hour",
            "currencyUSD",
            (Query(f"{_ray_gpus('AVAILABLE')} * {_PRICE}", "idle GPUs"),),
            "GPUs that no task or actor of Ray has requested.",
            True,
        ),
        Panel(
            "GPUs by use",
            "short",
            (Query(_ray_gpus("USED"), "requested"), Query(_ray_gpus("AVAILABLE"), "idle")),
            "What tasks and actors of Ray have requested; whether they compute is on the dashboard of GPUs.",
        ),
        Panel(
            "Cost per hour over time",
            "currencyUSD",
            (Query(f"{_GPUS} * {_PRICE}", "all GPUs"), Query(f"{_ray_gpus('AVAILABLE')} * {_PRICE}", "idle GPUs")),
            "The area is the bill of the GPU nodes.",
        ),
        Panel(
            "Ray nodes",
            "short",
            (Query(f"sum by (node_type) (ray_cluster_active_nodes{{{_RAY}}})", "{{node_type}}"),),
            "Live nodes of Ray by group.",
        ),
        Panel(
            "Time until the cloud takes a node back",
            "s",
            (Query(f"rdma_ray_node_end_timestamp_seconds{{{_NIC}}} - time()", "{{Hostname}}"),),
            "Nodes by flex-start, from the start of the machine.",
        ),
    ),
)

FABRIC = Dashboard(
    "rdma-ray-fabric",
    "RDMA Ray: fabric",
    (
        Panel("Links up", "short", (Query(f"sum(rdma_ray_nic_up{{{_NIC}}})", "up"),), "Ports that are ACTIVE.", True),
        Panel(
            "Links down",
            "short",
            (Query(f"count(rdma_ray_nic_up{{{_NIC}}}) - sum(rdma_ray_nic_up{{{_NIC}}})", "down"),),
            "Ports that are not ACTIVE. A gang stops at the first.",
            True,
        ),
        Panel("Sent", "Bps", (Query(_rate("rdma_ray_nic_sent_bytes_total"), _NIC_NAME),), "Bytes per second of a NIC."),
        Panel(
            "Received",
            "Bps",
            (Query(_rate("rdma_ray_nic_received_bytes_total"), _NIC_NAME),),
            "Bytes per second of a NIC.",
        ),
        Panel(
            "Share of the line rate, sent",
            "percentunit",
            (Query(f"{_rate('rdma_ray_nic_sent_bytes_total')} / {_LINE_RATE}", _NIC_NAME),),
            "The NICs of a node carry equal parts of a collective; one far below the others is slow.",
        ),
        Panel("Link state", "short", (Query(f"rdma_ray_nic_up{{{_NIC}}}", _NIC_NAME),), "1 is ACTIVE."),
        Panel(
            "Errors per second",
            "short",
            (Query(_counters(ERROR_COUNTERS, NO_ERRORS), f"{_NIC_NAME} {{{{counter}}}}"),),
            "Counters of the kernel that count errors, by name.",
        ),
        Panel(
            "Congestion per second",
            "short",
            (Query(_counters(CONGESTION_COUNTERS), f"{_NIC_NAME} {{{{counter}}}}"),),
            "Marks and pauses of RoCE. Some are normal under load.",
        ),
    ),
)

GPUS = Dashboard(
    "rdma-ray-gpus",
    "RDMA Ray: GPUs",
    (
        _gpu("Utilization", "percent", f"DCGM_FI_DEV_GPU_UTIL{{{_NODE}}}", "Time with a kernel running."),
        _gpu(
            "Tensor cores active",
            "percentunit",
            f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_NODE}}}",
            "Cycles in which the tensor cores work. Utilization without it is often waiting for the network.",
        ),
        _gpu(
            "Memory used",
            "percentunit",
            f"DCGM_FI_DEV_FB_USED{{{_NODE}}} / (DCGM_FI_DEV_FB_USED{{{_NODE}}} + DCGM_FI_DEV_FB_FREE{{{_NODE}}})",
            "Share of the memory that processes can have.",
        ),
        _gpu("Power", "watt", f"DCGM_FI_DEV_POWER_USAGE{{{_NODE}}}", "Power draw."),
        _gpu("Temperature", "celsius", f"DCGM_FI_DEV_GPU_TEMP{{{_NODE}}}", "Temperature of the chip."),
        _gpu("SM clock", "rotmhz", f"DCGM_FI_DEV_SM_CLOCK{{{_NODE}}}", "It falls when the GPU is throttled."),
        _gpu(
            "Throttled",
            "short",
            THROTTLED.format(_REASONS),
            "Sum of 1 thermal by software, 2 thermal by hardware, 4 power brake; 0 is healthy.",
        ),
        _gpu("Last Xid error", "short", f"DCGM_FI_DEV_XID_ERRORS{{{_NODE}}}", "0 is none since the exporter started."),
        _gpu(
            "Uncorrected memory errors",
            "short",
            f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_NODE}}}",
            "Double-bit errors since the driver was loaded.",
        ),
        Panel(
            "Row remapping",
            "short",
            (
                Query(f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_NODE}}}", f"{_GPU_NAME} remapped"),
                Query(f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{_NODE}}}", f"{_GPU_NAME} pending"),
                Query(f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_NODE}}}", f"{_GPU_NAME} failed"),
            ),
            "Rows of memory that the GPU replaced, that wait for a reset, and that it could not replace.",
        ),
    ),
)

JOBS = Dashboard(
    "rdma-ray-jobs",
    "RDMA Ray: jobs and queue",
    (
        Panel(
            "Tasks",
            "short",
            (Query(f"sum by (State) (ray_tasks{{{_RAY}}})", "{{State}}"),),
            "Tasks of Ray by state.",
        ),
        Panel(
            "Actors",
            "short",
            (Query(f'sum by (State) (ray_actors{{Source="gcs",{_RAY}}})', "{{State}}"),),
            "Actors of Ray by state.",
        ),
        Panel(
            "Placement groups",
            "short",
            (Query(f"sum by (State) (ray_placement_groups{{{_RAY}}})", "{{State}}"),),
            "A gang waits while its group is PENDING.",
        ),
        Panel(
            "Nodes that Ray's autoscaler waits for",
            "short",
            (Query(f"sum by (NodeType) (autoscaler_pending_nodes{{{_RAY}}})", "{{NodeType}}"),),
            "By group; empty without an autoscaler.",
        ),
        Panel(
            "Workloads that wait in the queue",
            "short",
            (Query("sum by (cluster_queue, status) (kueue_pending_workloads)", "{{cluster_queue}} {{status}}"),),
            "Kueue retries those that are inadmissible only after the cluster has changed.",
        ),
        Panel(
            "Admitted workloads",
            "short",
            (Query("sum by (cluster_queue) (kueue_admitted_active_workloads)", "{{cluster_queue}}"),),
            "Workloads that Kueue has admitted and that have not ended.",
        ),
    ),
)

DASHBOARDS = (CLUSTER, FABRIC, GPUS, JOBS)
