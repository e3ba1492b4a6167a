"""The way from the control plane to pods that answer it: webhooks, and APIs that a pod serves.

Of a cluster with private nodes, the control plane reaches them on ports 443 and 10250 only (GKE docs, private clusters,
firewall rules; chaos-mesh/chaos-mesh #3877 and open-policy-agent/gatekeeper docs say the same, read 2026-11). Without
this rule the API server would wait for Kueue's webhook, and refuse every workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions


@dataclass(frozen=True, kw_only=True)
class WebhookAccessArgs:
    """called: the rule's name. control_plane: the /28 that it calls from. account: the nodes' service account, by which
    the rule finds them. ports: TCP."""

    called: str
    network: pulumi.Input[str]
    control_plane: str
    account: pulumi.Input[str]
    ports: Sequence[int]


class WebhookAccess(pulumi.ComponentResource):
    """One firewall rule of the cluster's network; `rule` is what waits for the way to be open."""

    def __init__(self, name: str, args: WebhookAccessArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:WebhookAccess", name, {}, opts)
        self.rule = gcp.compute.Firewall(
            name,
            name=args.called,
            network=args.network,
            direction="INGRESS",
            source_ranges=[args.control_plane],
            target_service_accounts=[args.account],
            allows=[gcp.compute.FirewallAllowArgs(protocol="tcp", ports=[str(port) for port in args.ports])],
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})
