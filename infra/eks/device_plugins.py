"""Device plugins of the GPU nodes: NVIDIA's for GPUs, and for EFA either a device plugin or a DRANET driver.

A node never has both of the latter: each would allocate devices that the other has already allocated.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import ResourceOptions

from infra.catalog.pins import AWS_DRANET, EFA_PLUGIN, NVIDIA_PLUGIN
from infra.eks.addons import chart_release
from infra.fabric import GPU_TOLERATION
from infra.settings import EksSettings

# The chart tolerates the GPU taint and selects nodes with the label nvidia.com/gpu.present (`node_groups`).
NVIDIA_VALUES: dict[str, Any] = {
    # 0.19.0 to 0.19.2 turned it on and took every /dev/infiniband/uverbs*, and with them every EFA device
    # (NVIDIA/k8s-device-plugin #1692, #1837).
    "mofedEnabled": False,
}


class DevicePlugins(pulumi.ComponentResource):
    """Helm releases of the daemon sets; Ray depends on `releases`. Without GPU nodes they have no pods."""

    def __init__(self, name: str, settings: EksSettings, opts: ResourceOptions) -> None:
        super().__init__("rdma-ray:eks:DevicePlugins", name, {}, opts)
        own, mirror = ResourceOptions(parent=self), settings.access.image_mirror
        efa = AWS_DRANET if settings.fabric == "efa-dranet" else EFA_PLUGIN
        self.releases: list[pulumi.Resource] = [
            chart_release(NVIDIA_PLUGIN, NVIDIA_VALUES, own, mirror=mirror),
            chart_release(efa, efa_values(settings.nodes.machine), own, mirror=mirror),
        ]
        self.register_outputs({})


def efa_values(machine: str) -> dict[str, Any]:
    """Return the values of both EFA charts.

    By default they do not tolerate the GPU taint and select a list of instance types that depends on the chart's
    version. The list is therefore set to the stack's own type.
    """
    return {
        "tolerations": [dict(GPU_TOLERATION)],
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": [machine]},
    }
