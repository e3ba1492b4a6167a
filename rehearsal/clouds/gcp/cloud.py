"""Simulated Google Cloud: every kind with its rules, and the provider functions."""

from __future__ import annotations

from rehearsal.clouds.gcp import cluster, drift, iam, network, node_config, node_pool, tokens
from rehearsal.clouds.gcp import rules_capacity as capacity
from rehearsal.clouds.gcp import rules_cluster as clusters
from rehearsal.clouds.gcp import rules_cluster_network as cluster_networks
from rehearsal.clouds.gcp import rules_iam as members
from rehearsal.clouds.gcp import rules_machine as machines
from rehearsal.clouds.gcp import rules_names as names
from rehearsal.clouds.gcp import rules_network as networks
from rehearsal.clouds.gcp import rules_pool as pools
from rehearsal.clouds.gcp import rules_pool_network as pool_networks
from rehearsal.clouds.gcp import rules_subnetwork as subnetworks
from rehearsal.clouds.gcp.functions import FUNCTIONS
from rehearsal.clouds.kind import Call, Cloud, Json, Kind

NETWORK = Kind(
    type=tokens.NETWORK,
    identify=network.identify_network,
    compute=network.compute_network,
    replace_on=network.NETWORK_REPLACES,
    rules=(
        names.project_missing,
        names.network_name,
        networks.mtu_out_of_range,
        networks.profile_malformed,
        networks.profile_unknown,
        networks.roce_network_in_auto_mode,
        networks.network_quota,
        networks.network_in_use,
        names.deletion_prevented,
    ),
)

SUBNETWORK = Kind(
    type=tokens.SUBNETWORK,
    identify=network.identify_subnetwork,
    compute=network.compute_subnetwork,
    replace_on=network.SUBNETWORK_REPLACES,
    rules=(
        names.project_missing,
        names.region_missing,
        names.subnetwork_name,
        subnetworks.network_missing,
        subnetworks.region_of_roce_network,
        subnetworks.range_malformed,
        subnetworks.range_too_small,
        subnetworks.range_forbidden,
        subnetworks.secondary_range_named_twice,
        subnetworks.range_of_auto_network,
        subnetworks.ranges_overlap_each_other,
        subnetworks.ranges_overlap_others,
        subnetworks.range_overlaps_control_plane,
        subnetworks.in_use_by_nodes,
        subnetworks.in_use_by_nat,
        names.deletion_prevented,
    ),
    drift=drift.drift_subnetwork,
)

FIREWALL = Kind(
    type=tokens.FIREWALL,
    identify=network.identify_firewall,
    compute=network.compute_firewall,
    replace_on=network.FIREWALL_REPLACES,
    rules=(
        names.project_missing,
        names.firewall_name,
        networks.firewall_without_source,
        networks.firewall_without_action,
        networks.firewall_range_invalid,
        networks.firewall_network_missing,
        networks.firewall_on_roce_network,
        names.deletion_prevented,
    ),
)


def _nat_goes_too(call: Call, type_: str, live: Json) -> bool:
    """Return whether a NAT is deleted with its router."""
    return type_ == tokens.NAT and network.router_of(live) == call.id


ROUTER = Kind(
    type=tokens.ROUTER,
    identify=network.identify_router,
    compute=network.compute_router,
    replace_on=network.ROUTER_REPLACES,
    rules=(
        names.project_missing,
        names.region_missing,
        names.router_name,
        networks.router_network_missing,
        networks.router_on_roce_network,
        names.deletion_prevented,
    ),
    cascade=_nat_goes_too,
)

NAT = Kind(
    type=tokens.NAT,
    identify=network.identify_nat,
    compute=network.compute_nat,
    replace_on=network.NAT_REPLACES,
    rules=(
        names.project_missing,
        names.region_missing,
        names.nat_name,
        networks.nat_router_missing,
        networks.nat_on_roce_network,
        networks.nat_addresses_missing,
        names.deletion_prevented,
    ),
)

ACCOUNT = Kind(
    type=tokens.ACCOUNT,
    identify=iam.identify_account,
    compute=iam.compute_account,
    replace_on=iam.ACCOUNT_REPLACES,
    rules=(names.project_missing, names.account_id),
    conflict=iam.account_taken,
)

PROJECT_MEMBER = Kind(
    type=tokens.PROJECT_MEMBER,
    identify=iam.identify_project_member,
    from_import=iam.member_from_import,
    compute=iam.compute_project_member,
    replace_on=iam.PROJECT_MEMBER_REPLACES,
    rules=(
        names.project_missing,
        members.member_malformed,
        members.role_malformed,
        members.account_missing,
        members.identity_pool_missing,
    ),
    drift=drift.drift_member,
    # A repeated grant succeeds (provider: tpgiamresource/resource_iam_member.go, 93c65b2d).
    repeatable=True,
)

BUCKET_MEMBER = Kind(
    type=tokens.BUCKET_MEMBER,
    identify=iam.identify_bucket_member,
    from_import=iam.member_from_import,
    compute=iam.compute_bucket_member,
    replace_on=iam.BUCKET_MEMBER_REPLACES,
    rules=(
        members.bucket_malformed,
        members.member_malformed,
        members.role_malformed,
        members.account_missing,
        members.identity_pool_missing,
    ),
    drift=drift.drift_member,
    # A repeated grant succeeds (provider: tpgiamresource/resource_iam_member.go, 93c65b2d).
    repeatable=True,
)

CLUSTER = Kind(
    type=tokens.CLUSTER,
    identify=cluster.identify_cluster,
    compute=cluster.compute_cluster,
    replace_on=cluster.CLUSTER_REPLACES,
    maps=cluster.CLUSTER_MAPS,
    rules=(
        names.project_missing,
        names.location_missing,
        names.cluster_name,
        clusters.channel_unknown,
        clusters.version_not_offered,
        clusters.node_version_of_removed_pool,
        clusters.node_version_differs,
        clusters.no_first_node,
        clusters.zone_named_twice,
        clusters.zones_elsewhere,
        clusters.network_policy_with_dataplane_v2,
        clusters.multi_networking_without_dataplane_v2,
        clusters.multi_networking_without_ip_aliases,
        clusters.multi_networking_with_dual_stack,
        clusters.multi_networking_with_hubble,
        clusters.workload_pool_of_other_project,
        clusters.node_account_missing,
        cluster_networks.network_missing,
        cluster_networks.network_is_roce,
        cluster_networks.subnetwork_not_in_network,
        cluster_networks.pods_and_services_share_range,
        cluster_networks.pod_range_missing,
        cluster_networks.services_range_missing,
        cluster_networks.range_named_and_numbered,
        cluster_networks.pod_range_twice,
        cluster_networks.range_overlaps,
        cluster_networks.control_plane_range_malformed,
        cluster_networks.control_plane_range_overlaps,
        cluster_networks.authorized_network_malformed,
        clusters.protected,
        names.deletion_prevented,
    ),
    drift=drift.drift_cluster,
    cascade=cluster.delete_with_cluster,
    awaited=True,
    conflict=cluster.cluster_taken,
)

NODE_POOL = Kind(
    type=tokens.NODE_POOL,
    identify=node_pool.identify_node_pool,
    from_import=node_pool.node_pool_from_import,
    compute=node_pool.compute_node_pool,
    replace_on=node_pool.NODE_POOL_REPLACES,
    maps=node_config.NODE_MAPS,
    rules=(
        names.project_missing,
        names.location_missing,
        names.pool_name,
        pools.two_names,
        pools.two_initial_counts,
        pools.surge_settings_without_surge,
        pools.blue_green_settings_without_blue_green,
        pools.count_with_autoscaling,
        pools.two_kinds_of_limits,
        pools.cluster_missing,
        pools.zones_elsewhere,
        pools.version_not_offered,
        pools.newer_than_control_plane,
        capacity.queued_with_reservation,
        capacity.queued_without_autoscaling,
        capacity.queued_with_minimum,
        capacity.queued_with_other_policy,
        capacity.queued_with_spot,
        capacity.queued_with_repair,
        capacity.queued_with_nodes,
        capacity.queued_and_compact,
        capacity.flex_with_repair,
        capacity.flex_with_nodes,
        capacity.flex_without_autoscaling,
        capacity.flex_with_reservation,
        capacity.flex_with_spot,
        capacity.flex_on_old_version,
        capacity.flex_with_upgrade_settings,
        capacity.run_duration_malformed,
        capacity.runs_too_long,
        capacity.spot_with_reservation,
        capacity.reservation_unnamed,
        capacity.reservation_name_without_affinity,
        capacity.block_without_zones,
        capacity.compact_in_several_zones,
        capacity.compact_and_blue_green,
        capacity.compact_flex_on_other_machine,
        capacity.not_obtainable,
        pools.upgrades_off_in_channel,
        pools.limits_reversed,
        pools.count_outside_limits,
        pools.too_large,
        pools.node_account_missing,
        machines.machine_not_in_zone,
        machines.accelerators_missing,
        machines.accelerator_differs,
        machines.accelerator_count_differs,
        machines.version_too_old,
        machines.local_ssds_twice,
        machines.local_ssd_count_differs,
        machines.boot_disk_differs,
        machines.gvnic_off,
        machines.image_not_cos,
        machines.fast_socket,
        pool_networks.profile_with_own_networks,
        pool_networks.profile_on_other_machine,
        pool_networks.profile_on_old_version,
        pool_networks.profile_in_several_zones,
        pool_networks.profile_without_dataplane_v2,
        pool_networks.multi_networking_off,
        pool_networks.network_missing,
        pool_networks.subnetwork_missing,
        pool_networks.cluster_network_again,
        pool_networks.subnetwork_named_twice,
        pool_networks.rdma_network_on_other_machine,
        pool_networks.rdma_network_of_other_zone,
        pool_networks.too_few_interfaces,
        pool_networks.ranges_overlap,
        pools.gpu_quota,
        names.deletion_prevented,
    ),
    drift=drift.drift_node_pool,
    awaited=True,
    conflict=node_pool.pool_taken,
)

_KINDS = (
    NETWORK,
    SUBNETWORK,
    FIREWALL,
    ROUTER,
    NAT,
    ACCOUNT,
    PROJECT_MEMBER,
    BUCKET_MEMBER,
    CLUSTER,
    NODE_POOL,
)

CLOUD = Cloud(package="gcp", kinds={kind.type: kind for kind in _KINDS}, functions=FUNCTIONS)
