"""What makes Kubernetes see the devices of a GPU node: the NVIDIA device plugin, and for EFA a plugin or DRANET.

Never both kinds for EFA on a node: each would hand out devices that the other has given away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.catalog.machines import EksMachine
from infra.catalog.pins import AWS_DRANET, EFA_PLUGIN, NVIDIA_PLUGIN, Chart
from infra.eks.images import mirrored
from infra.fabric import GPU_TOLERATION

NAMESPACE = "kube-system"


@dataclass(frozen=True, kw_only=True)
class DevicePluginsArgs:
    """fabric: efa (the plugin) or efa-dranet (claims). mirror: the registry that has the images, None for their own."""

    machine: EksMachine
    fabric: str
    mirror: str | None


class DevicePlugins(pulumi.ComponentResource):
    """The daemon sets, by their Helm charts; `releases` are what Ray waits for. No GPU node, no pods."""

    def __init__(self, name: str, args: DevicePluginsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:DevicePlugins", name, {}, opts)
        self.releases: list[pulumi.Resource] = [
            self._release(NVIDIA_PLUGIN, nvidia_values(args)),
            self._release(AWS_DRANET, efa_values(args, AWS_DRANET.image))
            if args.fabric == "efa-dranet"
            else self._release(EFA_PLUGIN, efa_values(args, EFA_PLUGIN.image)),
        ]
        self.register_outputs({})

    def _release(self, chart: Chart, values: dict[str, Any]) -> Release:
        return Release(
            chart.name,
            name=chart.name,
            chart=chart.name,
            version=chart.version,
            repository_opts=RepositoryOptsArgs(repo=chart.repository),
            namespace=NAMESPACE,
            atomic=True,
            timeout=600,
            values=values,
            opts=ResourceOptions(parent=self),
        )


def nvidia_values(args: DevicePluginsArgs) -> dict[str, Any]:
    """The chart tolerates the GPU taint by itself and goes to nodes with nvidia.com/gpu.present (`node_groups`)."""
    return {
        # 0.19.0 to 0.19.2 had it on and took every /dev/infiniband/uverbs*, which is to say every EFA
        # (NVIDIA/k8s-device-plugin #1692, #1837).
        "mofedEnabled": False,
        "image": {"repository": mirrored(NVIDIA_PLUGIN.image, args.mirror)},
    }


def efa_values(args: DevicePluginsArgs, image: str) -> dict[str, Any]:
    """Both charts of EFA tolerate no GPU taint by themselves, and come to the instance types of a list only.

    The list is our one type, so that it holds whatever a version of the chart knows.
    """
    return {
        "image": {"repository": mirrored(image, args.mirror)},
        "tolerations": [dict(GPU_TOLERATION)],
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": [args.machine.name]},
    }
