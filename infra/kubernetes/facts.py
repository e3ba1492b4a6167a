"""What is fixed on any Kubernetes: ports, names of labels, kinds without a namespace.

Facts only, so that those who check a stack need not import what makes it.
"""

from __future__ import annotations

KUBERAY_NAMESPACE = "kuberay-system"
KUBERAY_LABELS = {"app.kubernetes.io/name": "kuberay-operator"}
"""On the operator's pods (KubeRay chart, 002c26b0)."""

DASHBOARD_PORT = 8265
METRICS_PORTS = (8080, 44217, 44227)
"""Of every pod, of the autoscaler, of the dashboard (Ray docs, metrics, read 2026-11)."""

CLUSTER_SCOPED = ("DeviceClass",)
"""Kinds among a pod's objects (`infra.fabric.GpuPod`) that have no namespace."""
