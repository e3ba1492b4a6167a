"""Who may talk to the pods of a RayCluster: its own pods, the operator, and the collector of metrics.

Only ways in are limited. Ways out stay open: jobs download data and report to services that nobody can list here. RDMA
and second host NICs bypass network policies; `kubectl port-forward` does, too, since it enters through the kubelet.
"""

from __future__ import annotations

from pulumi_kubernetes.meta.v1 import LabelSelectorArgs
from pulumi_kubernetes.networking.v1 import (
    NetworkPolicyIngressRuleArgs,
    NetworkPolicyPeerArgs,
    NetworkPolicyPortArgs,
    NetworkPolicySpecArgs,
)

from infra.kubernetes import kuberay

DASHBOARD_PORT = 8265
METRICS_PORTS = (8080, 44217, 44227)
"""Of every pod, of the autoscaler, of the dashboard (Ray docs, metrics; ray reference §8, 2026-11)."""


def ray_ingress(cluster: str, metrics_namespace: str) -> NetworkPolicySpecArgs:
    """The spec of the NetworkPolicy for the pods of RayCluster `cluster`."""
    own = LabelSelectorArgs(match_labels={"ray.io/cluster": cluster})
    return NetworkPolicySpecArgs(
        pod_selector=own,
        policy_types=["Ingress"],
        ingress=[
            NetworkPolicyIngressRuleArgs(from_=[NetworkPolicyPeerArgs(pod_selector=own)]),
            NetworkPolicyIngressRuleArgs(
                from_=[
                    NetworkPolicyPeerArgs(
                        namespace_selector=_namespace(kuberay.NAMESPACE),
                        pod_selector=LabelSelectorArgs(match_labels=kuberay.OPERATOR_LABELS),
                    )
                ],
                ports=_ports(DASHBOARD_PORT),
            ),
            NetworkPolicyIngressRuleArgs(
                from_=[NetworkPolicyPeerArgs(namespace_selector=_namespace(metrics_namespace))],
                ports=_ports(*METRICS_PORTS),
            ),
        ],
    )


def _namespace(name: str) -> LabelSelectorArgs:
    """Every namespace carries its name as a label (Kubernetes 1.21 and later)."""
    return LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": name})


def _ports(*ports: int) -> list[NetworkPolicyPortArgs]:
    return [NetworkPolicyPortArgs(protocol="TCP", port=port) for port in ports]
