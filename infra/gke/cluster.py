"""The GKE cluster: control plane, node identity, and the node pool for everything that needs no GPU.

A Standard cluster, since Autopilot does not allow node pools with additional networks. GPU node pools are in
`node_pools`, workloads in `infra.kubernetes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions
from pulumi_gcp import container

from infra.catalog.gcp import (
    EXCLUSION_START,
    MAINTENANCE_HOUR,
    NODE_ROLES,
    NODE_SCOPES,
    SYSTEM_POOL,
)
from infra.existing.cloud import TheirCluster
from infra.gke.names import NoVersionError, Site, control_plane_version
from infra.gke.network import ClusterPlace
from infra.kubernetes import resources
from infra.naming import OWNER
from infra.running_nodes import keep_running_nodes
from infra.settings import GkeSettings

CONTROL_PLANE = ("APISERVER", "CONTROLLER_MANAGER", "SCHEDULER")
"""Components of the control plane that log."""


@dataclass(frozen=True, kw_only=True)
class TheirGkeCluster(TheirCluster):
    """A GKE cluster that the user has; `location` is a region or a zone."""

    location: str
    workload_pool: str


class GkeCluster(pulumi.ComponentResource):
    """Regional control plane with nodes in one zone, or the user's cluster; the nodes' service account, and the system
    pool.

    Outputs: `kubeconfig`, without a secret; `resource`, the cluster if it is the stack's; its `name` and `location`;
    `account`, the email of the nodes' service account; `roles`, its grants, which node pools depend on; `system_pool`.

    Args:
        place: Where the cluster is made; None if it is the user's.
        control_plane: Range of the control plane, a /28.
        theirs: The user's cluster.
    """

    kubeconfig: pulumi.Output[str]
    resource: container.Cluster | None = None
    name: pulumi.Input[str]
    location: str
    workload_pool: pulumi.Input[str]

    def __init__(
        self,
        name: str,
        settings: GkeSettings,
        site: Site,
        opts: ResourceOptions,
        *,
        place: ClusterPlace | None,
        control_plane: IPv4Network,
        theirs: TheirGkeCluster | None = None,
    ) -> None:
        super().__init__("rdma-ray:gke:GkeCluster", name, {}, opts)
        opts = ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            f"{name}-nodes",
            account_id=site.node_account,
            display_name=f"Nodes of GKE cluster {site.stack}",
            description=site.description,
            opts=opts,
        )
        self.roles = [
            gcp.projects.IAMMember(
                f"{name}-nodes-{role.rpartition('/')[2]}",
                project=site.project,
                role=role,
                member=account.member,
                opts=opts,
            )
            for role in NODE_ROLES
        ]
        self.account = account.email
        if theirs is not None:
            self.name, self.location, self.workload_pool = theirs.name, theirs.location, theirs.workload_pool
            self.kubeconfig = pulumi.Output.from_input(theirs.kubeconfig)
        elif place is not None:
            self._make(name, settings, site, place, control_plane)
        self.system_pool = self._system_pool(name, settings, site)
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def _make(
        self, name: str, settings: GkeSettings, site: Site, place: ClusterPlace, control_plane: IPv4Network
    ) -> None:
        self.resource = made = self._cluster(name, settings, site, place, control_plane)
        self.name, self.location = made.name, site.region
        self.workload_pool = made.workload_identity_config.workload_pool
        dns = [made.control_plane_endpoints_config.dns_endpoint_config.endpoint]
        # Without a public endpoint, this is the private one.
        address = [made.endpoint, made.master_auth.cluster_ca_certificate]
        by_name = settings.access.dns_endpoint and not settings.access.public_endpoint
        self.kubeconfig = pulumi.Output.all(made.name, *(dns if by_name else address)).apply(
            lambda values: kubeconfig(*values)
        )

    def _cluster(
        self, name: str, settings: GkeSettings, site: Site, place: ClusterPlace, control_plane: IPv4Network
    ) -> container.Cluster:
        minimum, channel = settings.minimum_version, settings.cluster.channel.upper()
        versions = gcp.container.get_engine_versions_output(location=site.region)
        return container.Cluster(
            name,
            name=site.stack,
            location=site.region,
            # RDMA does not leave a zone; a regional control plane still survives the loss of one.
            node_locations=[site.zone],
            deletion_protection=settings.protect,
            # Nodes have no owner label: a change would update the pools of existing stacks.
            resource_labels={**site.labels, OWNER: site.owner},
            # Version and upgrades
            min_master_version=versions.apply(
                partial(_choose_version, location=site.region, minimum=minimum, channel=channel)
            ),
            release_channel={"channel": channel},
            maintenance_policy={
                "daily_maintenance_window": {"start_time": MAINTENANCE_HOUR},
                # Automatic minor version and node upgrades would each end a training run; so would one of the system
                # pool, where Ray's head is. Single pools have an exclusion, too (maintenance_policy), but the provider
                # sends it at their creation only: existing pools would be upgraded, and each refresh would show a
                # difference (terraform-provider-google-beta 93c65b2d, 2026-08-21: resource_container_node_pool.go).
                "maintenance_exclusions": [
                    {
                        "exclusion_name": "no-node-upgrades",
                        "start_time": EXCLUSION_START,
                        "exclusion_options": {
                            "scope": "NO_MINOR_OR_NODE_UPGRADES",
                            "end_time_behavior": "UNTIL_END_OF_SUPPORT",
                        },
                    }
                ],
            },
            # Network
            network=place.network,
            subnetwork=place.subnet,
            networking_mode="VPC_NATIVE",
            ip_allocation_policy={
                "cluster_secondary_range_name": place.pods_range,
                "services_secondary_range_name": place.services_range,
            },
            # Dataplane V2 can be chosen at creation only; multi-networking and DRANET need it.
            datapath_provider="ADVANCED_DATAPATH",
            # Required for additional pod interfaces (Network objects).
            enable_multi_networking=not settings.fabric_row.managed,
            default_max_pods_per_node=110,
            # Access: nodes are private; the control plane's DNS name, if open, checks IAM first.
            private_cluster_config={
                "enable_private_nodes": True,
                "enable_private_endpoint": not settings.access.public_endpoint,
                "master_ipv4_cidr_block": str(control_plane),
            },
            control_plane_endpoints_config={
                "dns_endpoint_config": {"allow_external_traffic": settings.access.dns_endpoint}
            },
            # Present even if empty: without it a public endpoint accepts requests from every address.
            master_authorized_networks_config={
                "cidr_blocks": [{"cidr_block": cidr} for cidr in settings.access.authorized_networks],
                # Else the public addresses of every customer's VM on Google Cloud are authorized as well (GKE docs
                # authorized-networks, read 2026-11; cluster-toolkit turns it off, gke-cluster, 10470803).
                "gcp_public_cidrs_access_enabled": False,
            },
            workload_identity_config={"workload_pool": f"{site.project}.svc.id.goog"},
            enable_shielded_nodes=True,
            # The project's policy decides; the default one admits every image.
            binary_authorization={
                # Written when off, too: the provider ignores that the block is missing, and GKE would go on enforcing
                # (terraform-provider-google-beta 93c65b2d, 2026-08-21: BinaryAuthorizationDiffSuppress).
                "evaluation_mode": "PROJECT_SINGLETON_POLICY_ENFORCE" if settings.hardening else "DISABLED"
            },
            # Nodes are in separate node pools; GKE creates a cluster only with a default pool, which is then removed.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config={
                "machine_type": "e2-small",
                "service_account": self.account,
                "oauth_scopes": list(NODE_SCOPES),
            },
            # Idle nodes go as soon as possible: BALANCED waits for ten more minutes after Ray's own (GKE docs,
            # cluster-autoscaler, autoscaling profiles, read 2026-11). Node auto-provisioning stays off.
            cluster_autoscaling={"enabled": False, "autoscaling_profile": "OPTIMIZE_UTILIZATION"},
            # Add-ons and observability
            addons_config={"gcs_fuse_csi_driver_config": {"enabled": True}},
            logging_config={
                "enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS", *(CONTROL_PLANE if settings.hardening else ())]
            },
            monitoring_config={
                # DCGM: temperature, clock, NVLink and XID errors of every GPU, without another DaemonSet.
                "enable_components": ["SYSTEM_COMPONENTS", "POD", "DAEMONSET", "DCGM"],
                "managed_prometheus": {"enabled": True},
            },
            opts=ResourceOptions(
                parent=self,
                ignore_changes=[
                    # The channel upgrades the control plane; this is only the initial version.
                    "minMasterVersion",
                    # GKE lists every pool here, including those that are separate resources.
                    "nodePools",
                    # The value is that of the removed default pool; GKE then returns another pool's.
                    "nodeConfig",
                    "initialNodeCount",
                    # GKE fills in the end of support of the current version.
                    "maintenancePolicy.maintenanceExclusions[0].endTime",
                ],
                # A cluster takes 10 to 20 minutes or more (cluster-toolkit, v1.95, 2026-06-25); the default is 40.
                custom_timeouts=pulumi.CustomTimeouts(create="60m", update="90m", delete="60m"),
            ),
        )

    def _system_pool(self, name: str, settings: GkeSettings, site: Site) -> container.NodePool:
        choices = settings.cluster
        return container.NodePool(
            f"{name}-{SYSTEM_POOL}",
            name=SYSTEM_POOL,
            cluster=self.name,
            location=self.location,
            node_locations=[site.zone],
            initial_node_count=1,
            autoscaling={
                "total_min_node_count": 1,
                "total_max_node_count": choices.system_nodes,
                "location_policy": "ANY",
            },
            management={"auto_repair": True, "auto_upgrade": True},
            upgrade_settings={"strategy": "SURGE", "max_surge": 1, "max_unavailable": 0},
            node_config={**self.node_config(site), "machine_type": choices.system_machine},
            opts=ResourceOptions(
                parent=self,
                # Without its roles a node starts but cannot report; the roles must outlive the nodes.
                depends_on=self.roles,
                # The autoscaler owns both after the first node.
                ignore_changes=["initialNodeCount", "nodeCount"],
                hooks=keep_pool(SYSTEM_POOL, settings),
                # An upgrade waits up to an hour for the head's PodDisruptionBudget; one took 75 minutes (magic-modules
                # #18250, 2026-07-10). The provider's default was 30 minutes until then.
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="90m"),
            ),
        )

    def node_config(self, site: Site) -> container.NodePoolNodeConfigArgsDict:
        """Return the part of the node config that all pools share."""
        return {
            "service_account": self.account,
            "oauth_scopes": list(NODE_SCOPES),
            "gcfs_config": {"enabled": True},
            "gvnic": {"enabled": True},
            "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
            "workload_metadata_config": {"mode": "GKE_METADATA"},
            # In the user's cluster they tell a pool of the stack; in its own, a change would update existing pools.
            "resource_labels": {**site.labels, **({OWNER: site.owner} if self.resource is None else {})},
        }


def _choose_version(
    versions: container.GetEngineVersionsResult, *, location: str, minimum: str, channel: str
) -> str | None:
    """Return the initial GKE version; fail the preview if none is new enough."""
    defaults, latest = versions.release_channel_default_version, versions.release_channel_latest_version
    try:
        return control_plane_version(defaults[channel], latest[channel], minimum, location=location, channel=channel)
    except NoVersionError as problem:
        raise pulumi.RunError(str(problem)) from None


def keep_pool(pool: str, settings: GkeSettings) -> pulumi.ResourceHookBinding | None:
    """Return the hook that refuses to upgrade a node pool while nodes of it run, if the stack is protected."""
    return keep_running_nodes(
        pool,
        protect=settings.protect,
        # Per zone, rounded down (google-beta 93c65b2d: resource_container_node_pool.go): of 2 nodes in 3 zones, this
        # would read 0. Every pool has one zone, by the invariant gpus_are_in_one_zone.
        nodes=lambda outputs: int(outputs.get("nodeCount") or 0),
        recreates=_node_template,
    )


def _node_template(inputs: Mapping[str, Any]) -> list[Any]:
    """Return what GKE changes by an upgrade of the pool, node by node (GKE API, nodePools.update; read 2026-11)."""
    node = inputs.get("nodeConfig") or {}
    blocks = (("gcfsConfig", "enabled"), ("gvnic", "enabled"), ("workloadMetadataConfig", "mode"))
    return [
        inputs.get("version"),
        *(node.get(name) for name in ("diskSizeGb", "diskType", "imageType", "kubeletConfig", "machineType")),
        *((node.get(block) or {}).get(name) for block, name in blocks),
    ]


def kubeconfig(cluster: str, endpoint: str, ca: str | None = None) -> str:
    """Return a kubeconfig as JSON, which gets its tokens from `gke-gcloud-auth-plugin`.

    Args:
        endpoint: Address or DNS name of the control plane, without scheme.
        ca: The cluster's certificate authority, base64; None for the DNS endpoint, whose certificate every system
            trusts (GKE docs about-dns-endpoint; unverified, 2026-11).
    """
    command = {
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "provideClusterInfo": True,
    }
    return resources.kubeconfig(cluster, f"https://{endpoint}", ca, command)
