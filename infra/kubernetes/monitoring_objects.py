"""What `monitoring` adds to a stack in its cluster: the exporter of NICs, what finds it, rules and dashboards.

GKE's managed Prometheus reads PodMonitorings and ClusterRules; the Prometheus Operator reads PodMonitors and
PrometheusRules; a Prometheus that follows annotations reads the Service of the exporter, and rules from a file, which
is in a ConfigMap. This module imports no Pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.names import NIC_METRICS_PORT, RAY_CLUSTER
from infra.catalog.pins import OPERATOR_API, POD_MONITORING_API
from infra.kubernetes.pods import UNPRIVILEGED, RayArgs, headless_service_spec
from infra.monitoring import grafana
from infra.monitoring.alerts import groups

SCRIPT = Path(__file__).with_name("metrics_pod.py")
NIC_PORT_NAME = "nic-metrics"
SIDECARS = (1, 29)
"""First Kubernetes that runs init containers beside the others (Kubernetes docs, sidecar containers: on by default)."""
PORT_NAMES = ("metrics", "as-metrics", "dash-metrics", NIC_PORT_NAME)
"""Ports of the pods with metrics; KubeRay adds `metrics` (ray-operator/controllers/ray/common/pod.go, 1.6.2)."""
INTERVAL = "30s"
"""Interval at which Prometheus reads the metrics (our choice, 2026-11)."""
GRAFANA_LABEL = {"grafana_dashboard": "1"}
"""Label by which the sidecar of Grafana's chart finds dashboards (public repositories set sidecar.dashboards.label and
.labelValue to it: GitHub code search, 2026-11-28)."""


def with_exporter(args: RayArgs, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of a worker pod with the exporter, if `monitoring` is on.

    It requests nothing: the worker has the whole node, and a queue's quota counts requests. It is an init container
    that goes on beside the worker, so that it does not keep the pod of a Job (Kubernetes docs, sidecar containers).
    """
    if args.settings.monitoring == "none":
        return dict(template)
    machine = args.settings.machine
    container = {
        "name": NIC_PORT_NAME,
        "restartPolicy": "Always",
        "image": args.settings.ray.image,
        "command": ["python3", "-c", SCRIPT.read_text(encoding="utf-8")],
        "args": [
            f"--port={NIC_METRICS_PORT}",
            "--node=$(NODE_NAME)",
            f"--gpus={args.settings.gpus_per_node}",
            # The kernel has 100 Gbit/s for any EFA device (drivers/infiniband/hw/efa/efa_verbs.c; unverified, 2026-11).
            f"--gbps={machine.gbps_per_nic if machine else 0}",
            f"--max-run-s={3600 * (args.node_hours or 0)}",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"containerPort": NIC_METRICS_PORT, "name": NIC_PORT_NAME}],
        "resources": {"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": "128Mi"}},
        "securityContext": UNPRIVILEGED,
    }
    first = [*template["spec"].get("initContainers", ()), container]
    return {**template, "spec": {**template["spec"], "initContainers": first}}


def scraping(args: RayArgs) -> list[dict[str, Any]]:
    """Return the object by which a Prometheus of the user's finds the pods of a workload, if `monitoring` is on."""
    name, selector = f"{args.name}-metrics", {"matchLabels": args.labels}
    if args.settings.monitoring == "operator":
        ports = [{"port": port, "interval": INTERVAL} for port in PORT_NAMES]
        spec: dict[str, Any] = {"selector": selector, "podTargetLabels": [RAY_CLUSTER], "podMetricsEndpoints": ports}
        return [_object(OPERATOR_API, "PodMonitor", name, spec=spec)]
    if args.settings.monitoring == "annotations":
        # A pod's annotation has room for one port, which is Ray's.
        marks = {"prometheus.io/scrape": "true", "prometheus.io/port": str(NIC_METRICS_PORT)}
        spec = headless_service_spec(args.labels, **{NIC_PORT_NAME: NIC_METRICS_PORT})
        return [_object("v1", "Service", name, {"annotations": marks}, spec=spec)]
    return []


def rules(args: RayArgs) -> list[dict[str, Any]]:
    """Return the alert rules and the dashboards of a stack, if `monitoring` is on; none for a team.

    The dashboards choose among namespaces. Grafana knows them by an id, so a second copy would replace the first.
    """
    kind = args.settings.monitoring
    if kind == "none" or args.settings.team is not None:
        return []
    found = groups(args.settings.namespace, args.settings.gpu_price)
    objects = [_object("v1", "ConfigMap", f"{args.name}-dashboards", {"labels": GRAFANA_LABEL}, data=grafana.files())]
    if kind == "annotations":
        text = yaml.safe_dump({"groups": found}, sort_keys=False, width=1000)
        return [*objects, _object("v1", "ConfigMap", f"{args.name}-alerts", data={"alerts.yaml": text})]
    # A rule of GKE's kind Rules sees its namespace only, and GPUs are metrics of another.
    api, name = (POD_MONITORING_API, "ClusterRules") if kind == "google" else (OPERATOR_API, "PrometheusRule")
    return [*objects, _object(api, name, args.name, spec={"groups": found})]


def _object(api: str, kind: str, name: str, more: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **(more or {})}, **fields}
