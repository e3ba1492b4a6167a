"""The GKE cluster: control plane, node identity, and the small pool for everything that needs no GPU.

A Standard cluster: node pools with additional networks are made by hand, which Autopilot does not allow. GPU pools are
`node_pools`; what runs in the cluster is `infra.kubernetes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions
from pulumi_gcp import container

from infra.gke.facts import (
    EXCLUSION_START,
    MAINTENANCE_HOUR,
    NODE_ROLES,
    NODE_SCOPES,
    SYSTEM_MACHINE,
    SYSTEM_MAX_NODES,
    SYSTEM_POOL,
)
from infra.gke.kubeconfig import kubeconfig
from infra.gke.names import PODS_RANGE, SERVICES_RANGE, GkeNames
from infra.gke.versions import CHANNEL


@dataclass(frozen=True, kw_only=True)
class GkeClusterArgs:
    """What a cluster is made from.

    location: the control plane's region; zone: the zone of every node. network and subnet are ids. version: the control
    plane's first GKE version, None for the channel's default; later ones come from the channel. multi_networking:
    whether pods may have interfaces of their own (Network objects). control_plane: a /28. authorized_networks: who
    reaches the public endpoint, if there is one. protect: whether Google Cloud refuses to delete the cluster. labels:
    on cluster and machines, for the bill.
    """

    names: GkeNames
    project: str
    location: str
    zone: str
    network: pulumi.Input[str]
    subnet: pulumi.Input[str]
    version: pulumi.Input[str | None]
    multi_networking: bool
    control_plane: str
    public_endpoint: bool
    authorized_networks: Sequence[str]
    protect: bool
    labels: dict[str, str]


class GkeCluster(pulumi.ComponentResource):
    """A regional control plane with nodes in one zone, the nodes' service account, and the system pool.

    kubeconfig holds no secret. resource is the cluster itself, for what lives and dies with it.
    """

    kubeconfig: pulumi.Output[str]

    def __init__(self, name: str, args: GkeClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:GkeCluster", name, {}, opts)
        account = gcp.serviceaccount.Account(
            f"{name}-nodes",
            account_id=args.names.node_account,
            display_name=f"Nodes of GKE cluster {args.names.cluster}",
            opts=ResourceOptions(parent=self),
        )
        self.roles = [
            gcp.projects.IAMMember(
                f"{name}-nodes-{role.rpartition('/')[2]}",
                project=args.project,
                role=role,
                member=account.member,
                opts=ResourceOptions(parent=self),
            )
            for role in NODE_ROLES
        ]
        self.account = account.email
        self.resource = self._cluster(name, args)
        self.workload_pool = self.resource.workload_identity_config.workload_pool
        self.system_pool = self._system_pool(name, args)
        if args.public_endpoint:
            self.kubeconfig = pulumi.Output.all(
                self.resource.name, self.resource.endpoint, self.resource.master_auth.cluster_ca_certificate
            ).apply(_by_address)
        else:
            self.kubeconfig = pulumi.Output.all(
                self.resource.name, self.resource.control_plane_endpoints_config.dns_endpoint_config.endpoint
            ).apply(_by_name)
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def _cluster(self, name: str, args: GkeClusterArgs) -> container.Cluster:
        return container.Cluster(
            name,
            name=args.names.cluster,
            location=args.location,
            # RDMA does not leave a zone; the control plane is regional all the same, and survives one.
            node_locations=[args.zone],
            deletion_protection=args.protect,
            resource_labels=args.labels,
            # Version and upgrades
            min_master_version=args.version,
            release_channel=container.ClusterReleaseChannelArgs(channel=CHANNEL),
            maintenance_policy=_maintenance(),
            # Network
            network=args.network,
            subnetwork=args.subnet,
            networking_mode="VPC_NATIVE",
            ip_allocation_policy=container.ClusterIpAllocationPolicyArgs(
                cluster_secondary_range_name=PODS_RANGE, services_secondary_range_name=SERVICES_RANGE
            ),
            # Dataplane V2 can be chosen at creation only; multi-networking and DRANET need it.
            datapath_provider="ADVANCED_DATAPATH",
            enable_multi_networking=args.multi_networking,
            default_max_pods_per_node=110,
            # Access: nodes are private; the control plane answers by its DNS name, which checks IAM first.
            private_cluster_config=container.ClusterPrivateClusterConfigArgs(
                enable_private_nodes=True,
                enable_private_endpoint=not args.public_endpoint,
                master_ipv4_cidr_block=args.control_plane,
            ),
            control_plane_endpoints_config=container.ClusterControlPlaneEndpointsConfigArgs(
                dns_endpoint_config=container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
                    allow_external_traffic=True
                )
            ),
            # Present even if empty: without it a public endpoint would answer everybody.
            master_authorized_networks_config=container.ClusterMasterAuthorizedNetworksConfigArgs(
                cidr_blocks=[
                    container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(cidr_block=cidr)
                    for cidr in args.authorized_networks
                ]
            ),
            workload_identity_config=container.ClusterWorkloadIdentityConfigArgs(
                workload_pool=f"{args.project}.svc.id.goog"
            ),
            enable_shielded_nodes=True,
            # Nodes come as pools; a cluster cannot be made without one, so the first is made and removed.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config=container.ClusterNodeConfigArgs(
                machine_type="e2-small", service_account=self.account, oauth_scopes=list(NODE_SCOPES)
            ),
            # What the nodes offer
            addons_config=container.ClusterAddonsConfigArgs(
                gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=True),
            ),
            logging_config=container.ClusterLoggingConfigArgs(enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]),
            monitoring_config=container.ClusterMonitoringConfigArgs(
                # DCGM: temperature, clock, NVLink and XID errors of every GPU, without a DaemonSet of our own.
                enable_components=["SYSTEM_COMPONENTS", "POD", "DAEMONSET", "DCGM"],
                managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
            ),
            opts=ResourceOptions(
                parent=self,
                ignore_changes=[
                    # The channel upgrades the control plane; the version here is only where it began.
                    "minMasterVersion",
                    # GKE lists every pool here, also those that are resources of their own.
                    "nodePools",
                    # That of the first pool, which is gone; GKE then shows another pool's.
                    "nodeConfig",
                    "initialNodeCount",
                    # GKE fills in the end of support of the version of the day.
                    "maintenancePolicy.maintenanceExclusions[0].endTime",
                ],
                # A regional control plane took up to 20 minutes in field reports; the default is 40.
                custom_timeouts=pulumi.CustomTimeouts(create="60m", update="90m", delete="60m"),
            ),
        )

    def _system_pool(self, name: str, args: GkeClusterArgs) -> container.NodePool:
        return container.NodePool(
            f"{name}-{SYSTEM_POOL}",
            name=SYSTEM_POOL,
            cluster=self.resource.name,
            location=args.location,
            node_locations=[args.zone],
            initial_node_count=1,
            autoscaling=container.NodePoolAutoscalingArgs(
                total_min_node_count=1, total_max_node_count=SYSTEM_MAX_NODES, location_policy="ANY"
            ),
            management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
            upgrade_settings=container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=1, max_unavailable=0),
            node_config=container.NodePoolNodeConfigArgs(
                machine_type=SYSTEM_MACHINE,
                service_account=self.account,
                oauth_scopes=list(NODE_SCOPES),
                gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=True),
                gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
                shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
                    enable_secure_boot=True, enable_integrity_monitoring=True
                ),
                workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
                resource_labels=args.labels,
            ),
            opts=ResourceOptions(
                parent=self,
                # Without its roles a node comes up and cannot report; the roles must not go before the nodes.
                depends_on=self.roles,
                # The autoscaler's business after the first node.
                ignore_changes=["initialNodeCount", "nodeCount"],
            ),
        )


def _maintenance() -> container.ClusterMaintenancePolicyArgs:
    """No minor version and no node upgrade by itself: either would end a training run."""
    return container.ClusterMaintenancePolicyArgs(
        daily_maintenance_window=container.ClusterMaintenancePolicyDailyMaintenanceWindowArgs(
            start_time=MAINTENANCE_HOUR
        ),
        maintenance_exclusions=[
            container.ClusterMaintenancePolicyMaintenanceExclusionArgs(
                exclusion_name="no-node-upgrades",
                start_time=EXCLUSION_START,
                exclusion_options=container.ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs(
                    scope="NO_MINOR_OR_NODE_UPGRADES", end_time_behavior="UNTIL_END_OF_SUPPORT"
                ),
            )
        ],
    )


def _by_address(values: list[str]) -> str:
    name, endpoint, ca = values
    return kubeconfig(name, endpoint, ca)


def _by_name(values: list[str]) -> str:
    name, endpoint = values
    return kubeconfig(name, endpoint, None)
