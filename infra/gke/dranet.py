"""Open-source DRANET: the driver that hands a node's RDMA devices to pods by claim.

Used by `fabric: dranet` alone; GKE installs its own driver for `managed-dranet`.
"""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release

CHART = "oci://registry.k8s.io/networking/charts/dranet"
VERSION = "1.4.0"
"""2026-07-17; older ones do not give an RDMA device back (kubernetes-sigs/dranet #177, PR #180)."""
NAMESPACE = "kube-system"


class Dranet(pulumi.ComponentResource):
    """The DaemonSet of the driver, by its Helm chart."""

    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:Dranet", name, {}, opts)
        self.release = Release(
            name,
            name=name,
            chart=CHART,
            version=VERSION,
            namespace=NAMESPACE,
            atomic=True,
            timeout=600,
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"version": VERSION})
