"""Who may talk to Ray's pods: their own cluster's, the operator where there is one, and the collector of metrics.

Only ways in are limited. Ways out stay open: jobs download data and report to services that nobody can list here. RDMA
and second host NICs bypass network policies; `kubectl port-forward` does, too, since it enters through the kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulumi_kubernetes.meta.v1 import LabelSelectorArgs
from pulumi_kubernetes.networking.v1 import (
    NetworkPolicyIngressRuleArgs,
    NetworkPolicyPeerArgs,
    NetworkPolicyPortArgs,
    NetworkPolicySpecArgs,
)

from infra.kubernetes.facts import DASHBOARD_PORT, KUBERAY_LABELS, KUBERAY_NAMESPACE, METRICS_PORTS


def ray_ingress(labels: Mapping[str, str], metrics_namespace: str) -> NetworkPolicySpecArgs:
    """The spec of the NetworkPolicy for the pods of a Ray cluster of the operator's, which carry `labels`."""
    operator = NetworkPolicyIngressRuleArgs(
        from_=[
            NetworkPolicyPeerArgs(
                namespace_selector=_namespace(KUBERAY_NAMESPACE),
                pod_selector=LabelSelectorArgs(match_labels=KUBERAY_LABELS),
            )
        ],
        ports=_ports(DASHBOARD_PORT),
    )
    return _ingress(labels, metrics_namespace, operator)


def job_ingress(labels: Mapping[str, str], metrics_namespace: str) -> NetworkPolicySpecArgs:
    """The spec of the NetworkPolicy for the pods of an Indexed Job, which carry `labels`: no operator comes in."""
    return _ingress(labels, metrics_namespace)


def _ingress(
    labels: Mapping[str, str], metrics_namespace: str, *others: NetworkPolicyIngressRuleArgs
) -> NetworkPolicySpecArgs:
    own = LabelSelectorArgs(match_labels=dict(labels))
    return NetworkPolicySpecArgs(
        pod_selector=own,
        policy_types=["Ingress"],
        ingress=[
            NetworkPolicyIngressRuleArgs(from_=[NetworkPolicyPeerArgs(pod_selector=own)]),
            *others,
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
