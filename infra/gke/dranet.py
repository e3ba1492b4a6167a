"""Open-source DRANET: the driver that hands a node's RDMA devices to pods by claim.

Used by `fabric: dranet` alone; GKE installs its own driver for `managed-dranet`.
"""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release

from infra.catalog.pins import DRANET

NAMESPACE = "kube-system"


class Dranet(pulumi.ComponentResource):
    """The DaemonSet of the driver, by its Helm chart."""

    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:Dranet", name, {}, opts)
        self.release = Release(
            name,
            name=name,
            chart=DRANET.name,
            version=DRANET.version,
            namespace=NAMESPACE,
            atomic=True,
            timeout=600,
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"version": DRANET.version})
