"""EKS add-ons, and Helm charts in kube-system, among them the device plugins of the GPU nodes.

Add-ons are registered in two steps: those that nodes need to become ready, and those that need nodes to run on. DNS
stays DEGRADED without nodes, and a node whose pods get no addresses never becomes ready.

A GPU node has NVIDIA's device plugin for its GPUs, and for EFA either a device plugin or a DRANET driver, never both:
each would allocate devices that the other has already allocated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import eks
from pulumi_kubernetes.helm.v3 import Release

from infra.catalog.aws import INSTANCE_TYPE_LABEL
from infra.catalog.pins import DCGM_EXPORTER, EKS_RELEASES, NVIDIA_PLUGIN, Chart
from infra.eks.iam import Role
from infra.eks.names import GPU_NODES, EksNames
from infra.fabric import GPU_TOLERATION
from infra.kubernetes.resources import helm_release, image_values
from infra.monitoring.dashboards import DCGM_COUNTERS
from infra.naming import shorten
from infra.settings import EksSettings

BEFORE_NODES = ("eks-pod-identity-agent", "kube-proxy", "vpc-cni")
ACCOUNTS = {"vpc-cni": "aws-node"}
"""ServiceAccounts of the add-ons that have a role."""
CHART_NAMESPACE = "kube-system"
LONGEST_RELEASE = 53
"""Characters of a release's name (helm/helm: commit 52a029d; its annotations below: unverified, 2026-11)."""

CONFIGURATION: Mapping[str, Mapping[str, Any]] = {
    "vpc-cni": {
        # By default the CNI ignores NetworkPolicies, which would open Ray's ports to every pod.
        "enableNetworkPolicy": "true",
        # Addresses in prefixes of 16: a p5 has one card for IP, and without them only 51 pods (infra/addresses.py).
        "env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"},
    },
}


# The chart tolerates the GPU taint and selects nodes with the label nvidia.com/gpu.present (`node_groups`).
NVIDIA_VALUES: dict[str, Any] = {
    # 0.19.0 to 0.19.2 turned it on and took every /dev/infiniband/uverbs*, and with them every EFA device
    # (NVIDIA/k8s-device-plugin #1692, #1837).
    "mofedEnabled": False,
}


class Addons(pulumi.ComponentResource):
    """EKS add-ons of one step; `addons` has them by name."""

    def __init__(
        self,
        name: str,
        addons: Sequence[str],
        names: EksNames,
        opts: ResourceOptions,
        *,
        cluster: pulumi.Input[str],
        kubernetes: str,
        depends_on: Sequence[pulumi.Resource] = (),
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        """Register the add-ons.

        Args:
            depends_on: Nodes that the add-ons run on.
            roles: Roles of the add-ons that call AWS, by add-on.
        """
        super().__init__("rdma-ray:eks:Addons", name, {}, opts)
        self.addons: dict[str, pulumi.Resource] = {}
        for addon in addons:
            role = (roles or {}).get(addon)
            self.addons[addon] = eks.Addon(
                addon,
                addon_name=addon,
                cluster_name=cluster,
                addon_version=EKS_RELEASES[kubernetes].get(addon),
                configuration_values=json.dumps(CONFIGURATION[addon]) if addon in CONFIGURATION else None,
                pod_identity_associations=[{"service_account": ACCOUNTS[addon], "role_arn": role.arn}]
                if role
                else None,
                # These settings take precedence over those in the cluster.
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="OVERWRITE",
                tags=names.tags(addon),
                # An add-on without its nodes is DEGRADED, and the CNI without its role's policies assigns no address.
                opts=ResourceOptions(parent=self, depends_on=[*depends_on, *(role.grants if role else ())]),
            )
        self.register_outputs({"addons": list(addons)})


class DevicePlugins(pulumi.ComponentResource):
    """Helm releases of the daemon sets; Ray depends on `releases`. Without GPU nodes they have no pods.

    In a cluster of the user's they are on the stack's own nodes only, and without those that the cluster provides.
    """

    def __init__(self, name: str, settings: EksSettings, names: EksNames, opts: ResourceOptions) -> None:
        super().__init__("rdma-ray:eks:DevicePlugins", name, {}, opts)
        opts, mirror = ResourceOptions(parent=self), settings.access.image_mirror
        own = {"nodeSelector": GPU_NODES} if names.existing is not None else {}
        plugins = [("nvidia-device-plugin", NVIDIA_PLUGIN, NVIDIA_VALUES)]
        if (chart := settings.fabric_row.chart) is not None:
            plugins.append(("efa-device-plugin", chart, efa_values(settings.nodes.machine)))
        if settings.monitoring != "none":
            plugins.append(("dcgm-exporter", DCGM_EXPORTER, dcgm_values(operator=settings.monitoring == "operator")))
        self.releases: list[pulumi.Resource] = [
            chart_release(chart, {**values, **own}, names, opts, mirror=mirror)
            for component, chart, values in plugins
            if settings.installs(component)
        ]
        self.register_outputs({})


def efa_values(machine: str) -> dict[str, Any]:
    """Return the values of both EFA charts.

    By default they do not tolerate the GPU taint and select a list of instance types that depends on the chart's
    version. The list is therefore set to the stack's own type.
    """
    return {
        "tolerations": [dict(GPU_TOLERATION)],
        "supportedInstanceLabels": {"keys": [INSTANCE_TYPE_LABEL], "values": [machine]},
    }


def dcgm_values(*, operator: bool) -> dict[str, Any]:
    """Return the values of the exporter of GPU metrics, with the fields that dashboards and alerts use.

    `customMetrics` replaces the chart's list (NVIDIA/dcgm-exporter: README of the chart, read 2026-11-28).

    Args:
        operator: Whether the Prometheus Operator finds it, rather than annotations.
    """
    marks = {"prometheus.io/scrape": "true", "prometheus.io/port": "9400"}
    return {
        "tolerations": [dict(GPU_TOLERATION)],
        "nodeSelector": GPU_NODES,
        "serviceMonitor": {"enabled": operator},
        **({} if operator else {"service": {"annotations": marks}}),
        "customMetrics": "".join(f"{name}, {kind}, {text}\n" for name, (kind, text) in DCGM_COUNTERS.items()),
    }


def chart_release(
    chart: Chart, values: Mapping[str, Any], names: EksNames, opts: ResourceOptions, *, mirror: str | None
) -> Release:
    """Register a chart in kube-system, with its image from the registry `mirror`, or its own registry if None."""
    release = None if names.existing is None else their_release(names.stack, chart)
    values = {**values, "image": image_values(chart, mirror)}
    return helm_release(chart.name, chart, opts, values=values, release=release)


def their_release(stack: str, chart: Chart) -> str:
    """Return the name of a release in a cluster of the user's.

    The user may have a release of the chart's own name there, for other nodes. Helm writes the release into every
    object (helm: pkg/action/validate.go, v3), so a later preview recognizes the stack's objects by it; not every chart
    has a value for labels of its DaemonSet.
    """
    return shorten(f"{stack}-{chart.name}", LONGEST_RELEASE)
