"""What is fixed on any Kubernetes: the operator's release, ports, names of labels, kinds without a namespace.

Facts only, so that those who check a stack need not import what makes it.
"""

from __future__ import annotations

KUBERAY_VERSION = "1.6.2"
"""The version that the tests' real operator has; 1.6 brought authOptions.secretName (KubeRay CRDs, read 2026-08)."""
KUBERAY_REPOSITORY = "https://ray-project.github.io/kuberay-helm/"
KUBERAY_NAMESPACE = "kuberay-system"
KUBERAY_IMAGE = "quay.io/kuberay/operator"
KUBERAY_LABELS = {"app.kubernetes.io/name": "kuberay-operator"}
"""On the operator's pods (KubeRay chart, 002c26b0)."""

DASHBOARD_PORT = 8265
METRICS_PORTS = (8080, 44217, 44227)
"""Of every pod, of the autoscaler, of the dashboard (Ray docs, metrics, read 2026-11)."""

CLUSTER_SCOPED = ("DeviceClass",)
"""Kinds among a pod's objects (`infra.fabric.GpuPod`) that have no namespace."""
