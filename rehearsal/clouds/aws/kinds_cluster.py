"""Kinds of machines and clusters with their rules: EC2 launch templates, EKS, Auto Scaling."""

from __future__ import annotations

from rehearsal.clouds.aws import cluster, cluster_parts, drift, machines, node_group, tokens
from rehearsal.clouds.aws import rules_capacity as capacity
from rehearsal.clouds.aws import rules_cluster as clusters
from rehearsal.clouds.aws import rules_cluster_parts as parts
from rehearsal.clouds.aws import rules_group as groups
from rehearsal.clouds.aws import rules_interfaces as interfaces
from rehearsal.clouds.aws import rules_schedule as schedules
from rehearsal.clouds.aws import rules_template as templates
from rehearsal.clouds.aws.outputs import TAGS, kind_with_generated_id
from rehearsal.clouds.aws.refusals import taken
from rehearsal.clouds.kind import Kind

PLACEMENT_GROUP = Kind(
    type=tokens.PLACEMENT_GROUP,
    identify=machines.identify_placement_group,
    compute=machines.compute_placement_group,
    replace_on=machines.PLACEMENT_GROUP_REPLACES,
    maps=TAGS,
    rules=(templates.strategy_invalid, templates.placement_group_in_use),
    conflict=taken,
)

LAUNCH_TEMPLATE = kind_with_generated_id(
    tokens.LAUNCH_TEMPLATE,
    "lt",
    compute=machines.compute_launch_template,
    replace_on=machines.LAUNCH_TEMPLATE_REPLACES,
    rules=(
        templates.template_name_invalid,
        templates.template_name_taken,
        templates.user_data_malformed,
        templates.metadata_options_invalid,
        templates.volume_invalid,
        templates.spot_options_elsewhere,
    ),
    drift=drift.drift_launch_template,
)

RESERVATION = kind_with_generated_id(
    tokens.RESERVATION,
    "cr",
    compute=machines.compute_reservation,
    replace_on=machines.RESERVATION_REPLACES,
)

CLUSTER = Kind(
    type=tokens.CLUSTER,
    identify=cluster.identify_cluster,
    compute=cluster.compute_cluster,
    replace_on=cluster.CLUSTER_REPLACES,
    maps=TAGS,
    rules=(
        clusters.cluster_name_invalid,
        clusters.cluster_role_untrusted,
        clusters.version_unknown,
        clusters.version_skipped,
        clusters.subnets_missing,
        clusters.one_zone_only,
        clusters.zone_without_control_planes,
        clusters.no_endpoint,
        clusters.private_endpoint_without_dns,
        clusters.public_ranges_invalid,
        clusters.mode_unknown,
        clusters.mode_without_creator,
        clusters.log_type_unknown,
        clusters.encryption_key_invalid,
        clusters.groups_missing,
        clusters.service_range_invalid,
        clusters.support_type_unknown,
        clusters.cluster_quota,
        clusters.cluster_protected,
        clusters.cluster_has_node_groups,
    ),
    drift=drift.drift_cluster,
    cascade=cluster.delete_with_cluster,
    awaited=True,
    conflict=taken,
)

NODE_GROUP = Kind(
    type=tokens.NODE_GROUP,
    identify=node_group.identify_node_group,
    compute=node_group.compute_node_group,
    replace_on=node_group.NODE_GROUP_REPLACES,
    maps=TAGS | node_group.NODE_GROUP_MAPS,
    rules=(
        groups.ami_type_unknown,
        capacity.capacity_type_unknown,
        groups.sizes_reversed,
        groups.taint_invalid,
        groups.update_limits_unclear,
        groups.cluster_missing,
        groups.group_name_invalid,
        groups.label_reserved,
        groups.node_role_untrusted,
        groups.subnets_elsewhere,
        groups.template_missing,
        groups.types_twice,
        groups.type_unknown,
        groups.disk_with_template,
        groups.remote_access_with_template,
        groups.profile_in_template,
        groups.spot_in_template,
        groups.ami_of_other_machines,
        groups.image_named_twice,
        groups.version_not_the_clusters,
        groups.release_of_other_version,
        interfaces.subnet_in_template,
        capacity.block_without_template,
        capacity.block_market_elsewhere,
        capacity.block_of_other_machine,
        capacity.reservation_malformed,
        capacity.reservation_elsewhere,
        capacity.reservation_of_other_machine,
        capacity.spot_with_reservation,
        interfaces.groups_outside_interfaces,
        interfaces.groups_of_other_network,
        interfaces.interface_type_unknown,
        interfaces.card_missing,
        interfaces.device_index_too_high,
        interfaces.place_taken,
        interfaces.no_primary_interface,
        interfaces.primary_without_address,
        interfaces.efa_unsupported,
        interfaces.efa_on_card_without,
        interfaces.two_efas_on_card,
        interfaces.too_many_efas,
        interfaces.public_address_with_several_interfaces,
        interfaces.address_on_efa_only,
        capacity.placement_group_missing,
        capacity.placement_group_in_several_zones,
        capacity.placement_group_of_other_machine,
        capacity.type_not_in_zone,
        capacity.vcpu_quota,
        capacity.reservation_not_active,
        capacity.reservation_outside_placement,
        capacity.nodes_without_policies,
        capacity.nodes_without_pod_network,
        capacity.nodes_without_way_out,
    ),
    drift=drift.drift_node_group,
    cascade=node_group.goes_with_node_group,
    awaited=True,
    conflict=taken,
)

ADDON = Kind(
    type=tokens.ADDON,
    identify=cluster_parts.identify_addon,
    compute=cluster_parts.compute_addon,
    replace_on=cluster_parts.ADDON_REPLACES,
    maps=TAGS,
    rules=(
        groups.cluster_missing,
        parts.addon_unknown,
        parts.addon_version_unknown,
        parts.addon_values_malformed,
        parts.addon_conflicts_unknown,
        parts.addon_over_self_managed,
        parts.addon_without_nodes,
    ),
    drift=drift.drift_addon,
    awaited=True,
    conflict=taken,
)

ACCESS_ENTRY = Kind(
    type=tokens.ACCESS_ENTRY,
    identify=cluster_parts.identify_access_entry,
    compute=cluster_parts.compute_access_entry,
    replace_on=cluster_parts.ACCESS_ENTRY_REPLACES,
    maps=TAGS,
    rules=(
        groups.cluster_missing,
        parts.access_by_config_map,
        parts.principal_invalid,
        parts.access_group_reserved,
        parts.access_type_unknown,
    ),
    conflict=taken,
)

ACCESS_POLICY = Kind(
    type=tokens.ACCESS_POLICY,
    identify=cluster_parts.identify_access_policy,
    compute=cluster_parts.compute_access_policy,
    replace_on=cluster_parts.ACCESS_POLICY_REPLACES,
    rules=(
        groups.cluster_missing,
        parts.policy_without_entry,
        parts.access_policy_unknown,
        parts.access_scope_invalid,
    ),
    repeatable=True,
)

POD_IDENTITY = Kind(
    type=tokens.POD_IDENTITY,
    identify=cluster_parts.identify_pod_identity,
    compute=cluster_parts.compute_pod_identity,
    replace_on=cluster_parts.POD_IDENTITY_REPLACES,
    maps=TAGS,
    rules=(groups.cluster_missing, parts.pod_role_untrusted, parts.pod_identity_exists),
    # The provider imports an association as CLUSTER,ID.
    from_import=lambda text, _config: text.rpartition(",")[2],
    generated_ids=True,
)

GROUP_TAG = Kind(
    type=tokens.GROUP_TAG,
    identify=node_group.identify_group_tag,
    compute=node_group.compute_group_tag,
    replace_on=node_group.GROUP_TAG_REPLACES,
    rules=(groups.scaling_group_missing,),
    repeatable=True,
)

SCHEDULE = Kind(
    type=tokens.SCHEDULE,
    identify=node_group.identify_schedule,
    compute=node_group.compute_schedule,
    replace_on=node_group.SCHEDULE_REPLACES,
    rules=(
        groups.scaling_group_missing,
        schedules.action_without_time,
        schedules.action_in_the_past,
        schedules.recurrence_malformed,
        schedules.action_sizes_reversed,
    ),
    drift=drift.drift_schedule,
    # PutScheduledUpdateGroupAction creates an action or changes the one with this name.
    repeatable=True,
)

KINDS: tuple[Kind, ...] = (
    PLACEMENT_GROUP,
    LAUNCH_TEMPLATE,
    RESERVATION,
    CLUSTER,
    NODE_GROUP,
    ADDON,
    ACCESS_ENTRY,
    ACCESS_POLICY,
    POD_IDENTITY,
    GROUP_TAG,
    SCHEDULE,
)
