"""Helm charts of the simulation: repositories, versions, and the CRDs that they install."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Helm chart.

    Args:
        repository: its URL; of an OCI chart, that of the chart itself.
        versions: chart version to application version.
        definitions: custom kinds as (group, kind, versions).
        keeps: whether the CRDs stay when the release is deleted, because they are in the chart's crds folder.
        node: whether its pods need a node without GPUs and other taints.
    """

    name: str
    repository: str
    versions: Mapping[str, str]
    definitions: tuple[tuple[str, str, tuple[str, ...]], ...] = field(default=())
    keeps: bool = False
    node: bool = True
    source: str


_KUEUE_KINDS = (
    "AdmissionCheck",
    "ClusterQueue",
    "Cohort",
    "LocalQueue",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "ProvisioningRequestConfig",
    "ResourceFlavor",
    "Topology",
    "Workload",
    "WorkloadPriorityClass",
)

CHARTS = (
    Chart(
        name="kuberay-operator",
        repository="https://ray-project.github.io/kuberay-helm",
        versions={
            version: f"v{version}" for version in ("1.4.2", "1.5.1", "1.5.2", "1.6.0", "1.6.1", "1.6.2", "1.7.0")
        },
        definitions=tuple(("ray.io", kind, ("v1",)) for kind in ("RayCluster", "RayCronJob", "RayJob", "RayService")),
        keeps=True,
        source="ray-project/kuberay: helm-chart/kuberay-operator, v1.6.2, 2026-06-17; tags read 2026-11",
    ),
    Chart(
        name="kueue",
        repository="oci://registry.k8s.io/kueue/charts/kueue",
        versions={version: f"v{version}" for version in ("0.17.8", "0.18.6", "0.19.2")},
        definitions=tuple(("kueue.x-k8s.io", kind, ("v1beta1", "v1beta2")) for kind in _KUEUE_KINDS),
        source="kubernetes-sigs/kueue: charts/kueue, 0.19.2, ff69552e, 2026-08-22",
    ),
    Chart(
        name="dranet",
        repository="oci://registry.k8s.io/networking/charts/dranet",
        versions={"1.4.0": "v1.4.0", "v1.4.0": "v1.4.0"},
        node=False,
        source="kubernetes-sigs/dranet: release v1.4.0, 2026-07-17; the chart's spelling unverified, 2026-11",
    ),
    Chart(
        name="nvidia-device-plugin",
        repository="https://nvidia.github.io/k8s-device-plugin",
        versions={version: version for version in ("0.18.2", "0.19.0", "0.19.1", "0.19.2", "0.19.3", "0.20.0")},
        node=False,
        source="NVIDIA/k8s-device-plugin: 1b826ac, 0.20.0, read 2026-08",
    ),
    Chart(
        name="aws-efa-k8s-device-plugin",
        repository="https://aws.github.io/eks-charts",
        versions={"v0.5.30": "v0.5.20", "v0.5.26": ""},
        node=False,
        source="aws/eks-charts: aws-efa-k8s-device-plugin, 5239609, 2026-08-03; v0.5.26 by awslabs/ai-on-eks",
    ),
    Chart(
        name="aws-dranet",
        repository="https://aws.github.io/eks-charts",
        versions={"1.0.0": "v1.2.0-eksbuild.2"},
        node=False,
        source="aws/eks-charts: aws-dranet, 5239609, 2026-08-03",
    ),
    Chart(
        name="cluster-autoscaler",
        repository="https://kubernetes.github.io/autoscaler",
        versions={"9.59.0": "1.35.0"},
        source="a public survey of the chart, read 2026-11",
    ),
)


def find(chart: str, repository: str) -> Chart | None:
    """Return the chart of a release's `chart` and repository, as the program writes them.

    Helm requires the full URL of an OCI chart, without a separate repository.
    """
    for known in CHARTS:
        by_address = chart == known.repository and not repository
        if by_address or (chart == known.name and repository.rstrip("/") == known.repository):
            return known
    return None
