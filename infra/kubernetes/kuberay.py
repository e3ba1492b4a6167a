"""The KubeRay operator, by its Helm chart: it makes pods from a RayCluster and keeps them.

Its CRDs come with the chart's first release; Helm does not upgrade them. GKE's own Ray add-on must not run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.catalog.pins import KUBERAY
from infra.kubernetes.facts import KUBERAY_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class KubeRayArgs:
    """node_selector: where the operator runs; nodes: the pool that has to be there first.

    image_repository: where its image lies, for clusters that reach a mirror only.
    """

    node_selector: dict[str, str]
    nodes: Sequence[pulumi.Resource]
    image_repository: str = KUBERAY.image


class KubeRay(pulumi.ComponentResource):
    """The operator in a namespace of its own; `release` is what a RayCluster waits for."""

    def __init__(self, name: str, args: KubeRayArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:kubernetes:KubeRay", name, {}, opts)
        self.release = Release(
            name,
            name="kuberay-operator",
            chart=KUBERAY.name,
            version=KUBERAY.version,
            repository_opts=RepositoryOptsArgs(repo=KUBERAY.repository),
            namespace=KUBERAY_NAMESPACE,
            create_namespace=True,
            # A release that does not come up is rolled back, so that the next `up` finds nothing half made.
            atomic=True,
            timeout=600,
            values={
                "nodeSelector": args.node_selector,
                "image": {"repository": args.image_repository},
                # The chart gives it a tenth of a CPU and 512 MiB, the memory of 500 pods (its values, 002c26b0).
                "resources": {
                    "requests": {"cpu": "100m", "memory": "512Mi"},
                    "limits": {"cpu": "500m", "memory": "1Gi"},
                },
            },
            # The release is done when the operator runs, and it needs a node for that.
            opts=ResourceOptions(parent=self, depends_on=list(args.nodes)),
        )
        self.register_outputs({"version": KUBERAY.version})
