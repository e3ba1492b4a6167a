"""The GPU node pools: one for the way to get machines that the stack file names, one for its second choice.

The catalog lists what each kind of capacity (`infra.catalog.capacity`) and each machine (`infra.catalog.machines`)
requires of a pool. No pool has a fixed size: pending pods add nodes, and empty nodes are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import container

from infra.catalog.capacity import GKE_CAPACITIES, GkeCapacity
from infra.catalog.machines import GkeMachine
from infra.gke.fabric import COMPUTE_CLASS
from infra.gke.facts import FALLBACK_POOL, GPU_POOL, NODE_SCOPES
from infra.settings import GkeSettings as Settings

BOOT_DISK_GB = 100
RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""The key of a reservation by name (Compute Engine docs, reservations; cluster-toolkit, 10470803, 2026-06-25)."""


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """A network that a node has an interface in beside the cluster's, by name."""

    network: pulumi.Input[str]
    subnet: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class GpuPoolsArgs:
    """What the pools are made from.

    location: the cluster's; zone: that of the nodes. machine_type: the machine's name, known to be in the zone.
    networks: the second host NIC's first, then one for each RDMA NIC in the order of the NICs; empty where GKE makes
    them (managed DRANET).
    """

    settings: Settings
    machine: GkeMachine
    machine_type: pulumi.Input[str]
    cluster: pulumi.Input[str]
    location: str
    zone: str
    account: pulumi.Input[str]
    networks: Sequence[NodeNetwork]
    roles: Sequence[pulumi.Resource]
    labels: dict[str, str]


class GpuPools(pulumi.ComponentResource):
    """The stack's GPU node pools, in the order in which they are tried."""

    def __init__(self, name: str, args: GpuPoolsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:GpuPools", name, {}, opts)
        self._args = args
        ways = [(GPU_POOL, args.settings.nodes.capacity)]
        if args.settings.nodes.fallback is not None:
            ways.append((FALLBACK_POOL, args.settings.nodes.fallback))
        self.pools = [self._pool(name, pool, GKE_CAPACITIES[str(capacity)]) for pool, capacity in ways]
        self.register_outputs({"pools": [pool.name for pool in self.pools]})

    def _pool(self, name: str, pool: str, capacity: GkeCapacity) -> container.NodePool:
        args, nodes = self._args, self._args.settings.nodes
        # The first choice keeps the fewest nodes up; a second choice has none that stay.
        fewest = nodes.min if pool == GPU_POOL else 0
        return container.NodePool(
            f"{name}-{pool}",
            name=pool,
            cluster=args.cluster,
            location=args.location,
            node_locations=[args.zone],
            initial_node_count=fewest,
            autoscaling=container.NodePoolAutoscalingArgs(
                total_min_node_count=fewest, total_max_node_count=nodes.max, location_policy="ANY"
            ),
            management=container.NodePoolManagementArgs(auto_repair=capacity.auto_repair, auto_upgrade=True),
            # Flex-start nodes are renewed by their run time, and refuse surge settings (GKE docs, 2026-04-13).
            upgrade_settings=None
            if capacity.flex_start
            else container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1),
            queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True) if capacity.queued else None,
            network_config=self._network(),
            node_config=self._node(capacity),
            opts=ResourceOptions(
                parent=self,
                # Without its roles a node comes up and cannot report; the roles must not go before the nodes.
                depends_on=list(args.roles),
                ignore_changes=[
                    # The autoscaler's business.
                    "initialNodeCount",
                    "nodeCount",
                    # GKE adds labels of its own to the nodes of some pools (cluster-toolkit ignores them, too).
                    "nodeConfig.labels",
                ],
                # The provider's default is two hours; a pool whose zone is out of stock would hold `up` as long.
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="90m"),
            ),
        )

    def _network(self) -> container.NodePoolNetworkConfigArgs:
        if not self._args.networks:
            # Never together with networks of one's own (terraform-provider-google-beta, 93c65b2d, 2026-08-21).
            return container.NodePoolNetworkConfigArgs(enable_private_nodes=True, accelerator_network_profile="auto")
        return container.NodePoolNetworkConfigArgs(
            enable_private_nodes=True,
            additional_node_network_configs=[
                container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(
                    network=one.network, subnetwork=one.subnet
                )
                for one in self._args.networks
            ],
        )

    def _node(self, capacity: GkeCapacity) -> container.NodePoolNodeConfigArgs:
        args, machine = self._args, self._args.machine
        hours = args.settings.nodes.max_run_hours
        return container.NodePoolNodeConfigArgs(
            machine_type=args.machine_type,
            flex_start=True if capacity.flex_start else None,
            max_run_duration=f"{hours * 3600}s" if capacity.flex_start and hours else None,
            spot=True if capacity.spot else None,
            reservation_affinity=container.NodePoolNodeConfigReservationAffinityArgs(
                consume_reservation_type=capacity.reservation_affinity,
                key=RESERVATION_KEY if capacity.reservation_affinity == "SPECIFIC_RESERVATION" else None,
                values=[str(args.settings.nodes.reservation)]
                if capacity.reservation_affinity == "SPECIFIC_RESERVATION"
                else None,
            ),
            guest_accelerators=[
                container.NodePoolNodeConfigGuestAcceleratorArgs(
                    type=machine.accelerator,
                    count=machine.gpus,
                    gpu_driver_installation_config=(
                        container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(
                            gpu_driver_version="LATEST"
                        )
                    ),
                )
            ],
            gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
            ephemeral_storage_local_ssd_config=container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(
                local_ssd_count=machine.local_ssds
            )
            if machine.local_ssds
            else None,
            disk_type=machine.boot_disk,
            disk_size_gb=BOOT_DISK_GB,
            service_account=args.account,
            oauth_scopes=list(NODE_SCOPES),
            gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=True),
            shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
                enable_secure_boot=True, enable_integrity_monitoring=True
            ),
            workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
            labels=_labels(args.settings),
            taints=_taints(args.settings),
            resource_labels=args.labels,
        )


def _labels(settings: Settings) -> dict[str, str]:
    """Node labels that pods select by; GKE adds cloud.google.com/gke-accelerator and its like itself."""
    labels = {}
    if settings.compute_class:
        labels["cloud.google.com/compute-class"] = COMPUTE_CLASS
    if settings.fabric == "managed-dranet":
        labels["cloud.google.com/gke-networking-dra-driver"] = "true"
    return labels


def _taints(settings: Settings) -> list[container.NodePoolNodeConfigTaintArgs]:
    """Who may not come: pods without a GPU, and with a ComputeClass pods that do not ask for it.

    The first taint is the one that GKE would add by itself. Written down, it also holds for the pool's first node, and
    the autoscaler knows it while the pool is empty.
    """
    taints = [container.NodePoolNodeConfigTaintArgs(key="nvidia.com/gpu", value="present", effect="NO_SCHEDULE")]
    if settings.compute_class:
        taints.append(
            container.NodePoolNodeConfigTaintArgs(
                key="cloud.google.com/compute-class", value=COMPUTE_CLASS, effect="NO_SCHEDULE"
            )
        )
    return taints
