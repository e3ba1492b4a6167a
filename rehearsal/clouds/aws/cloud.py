"""The simulated AWS: every kind with its rules, and the functions. Which API refuses what is read here."""

from __future__ import annotations

from typing import Any

from rehearsal.clouds.aws import (
    cluster,
    cluster_parts,
    drift,
    iam,
    machines,
    network,
    node_group,
    storage,
    tokens,
)
from rehearsal.clouds.aws import rules_capacity as capacity
from rehearsal.clouds.aws import rules_cluster as clusters
from rehearsal.clouds.aws import rules_cluster_parts as parts
from rehearsal.clouds.aws import rules_group as groups
from rehearsal.clouds.aws import rules_iam as identities
from rehearsal.clouds.aws import rules_interfaces as interfaces
from rehearsal.clouds.aws import rules_network as networks
from rehearsal.clouds.aws import rules_reach as reach
from rehearsal.clouds.aws import rules_storage as files
from rehearsal.clouds.aws import rules_template as templates
from rehearsal.clouds.aws.functions import FUNCTIONS
from rehearsal.clouds.aws.outputs import made_up
from rehearsal.clouds.aws.trouble import TROUBLE, taken
from rehearsal.clouds.kind import Cloud, Kind, Rule

TAGS = frozenset({"tags"})


def _made(type_: str, prefix: str, **more: Any) -> Kind:
    """A kind whose ids EC2 or FSx makes up."""
    return Kind(type=type_, identify=made_up(prefix), maps=TAGS, twins=True, **more)


VPC = _made(
    tokens.VPC,
    "vpc",
    compute=network.compute_vpc,
    replace_on=network.VPC_REPLACES,
    rules=(networks.vpc_range_invalid, networks.vpc_quota, networks.vpc_in_use),
)

SUBNET = _made(
    tokens.SUBNET,
    "subnet",
    compute=network.compute_subnet,
    replace_on=network.SUBNET_REPLACES,
    rules=(
        networks.vpc_missing,
        networks.subnet_range_outside,
        networks.subnet_overlaps,
        networks.zone_unknown,
        networks.subnet_in_use,
    ),
)

INTERNET_GATEWAY = _made(
    tokens.INTERNET_GATEWAY,
    "igw",
    compute=network.compute_internet_gateway,
    replace_on=network.INTERNET_GATEWAY_REPLACES,
    rules=(networks.vpc_missing, networks.second_internet_gateway, reach.addresses_mapped),
)

EIP = _made(
    tokens.EIP,
    "eipalloc",
    compute=network.compute_eip,
    replace_on=network.EIP_REPLACES,
    rules=(networks.address_quota, networks.address_in_use),
    drift=drift.drift_eip,
)

NAT = _made(
    tokens.NAT,
    "nat",
    compute=network.compute_nat,
    replace_on=network.NAT_REPLACES,
    rules=(networks.nat_subnet_missing, networks.nat_without_internet_gateway, networks.nat_without_address),
    awaited=True,
)

ROUTE_TABLE = _made(
    tokens.ROUTE_TABLE,
    "rtb",
    compute=network.compute_route_table,
    replace_on=network.ROUTE_TABLE_REPLACES,
    rules=(networks.vpc_missing, networks.route_table_in_use),
    drift=drift.drift_route_table,
    cascade=network.goes_with_table,
)

ROUTE = Kind(
    type=tokens.ROUTE,
    identify=network.identify_route,
    compute=network.compute_route,
    replace_on=network.ROUTE_REPLACES,
    rules=(networks.route_table_missing, networks.route_exists, networks.route_target_missing),
    conflict=taken,
)

ASSOCIATION = _made(
    tokens.ASSOCIATION,
    "rtbassoc",
    compute=network.compute_association,
    replace_on=network.ASSOCIATION_REPLACES,
    rules=(networks.route_table_missing, networks.subnet_has_table),
)

SECURITY_GROUP = _made(
    tokens.SECURITY_GROUP,
    "sg",
    compute=network.compute_security_group,
    replace_on=network.SECURITY_GROUP_REPLACES,
    rules=(networks.vpc_missing, reach.group_name_invalid, reach.group_name_taken, reach.group_in_use),
    drift=drift.drift_security_group,
    cascade=network.goes_with_group,
)

_RULE_RULES: tuple[Rule, ...] = (
    reach.rule_group_missing,
    reach.rule_source_unclear,
    reach.rule_ports_invalid,
    reach.rule_exists,
    reach.rules_too_many,
)
INGRESS, EGRESS = (
    _made(type_, "sgr", compute=network.compute_rule, replace_on=network.RULE_REPLACES, rules=_RULE_RULES)
    for type_ in (tokens.INGRESS, tokens.EGRESS)
)

ENDPOINT = _made(
    tokens.ENDPOINT,
    "vpce",
    compute=network.compute_endpoint,
    replace_on=network.ENDPOINT_REPLACES,
    rules=(
        networks.vpc_missing,
        reach.endpoint_service_unknown,
        reach.endpoint_type_mixed,
        reach.endpoint_parts_missing,
        reach.private_names_without_dns,
        reach.private_names_taken,
        reach.endpoint_twice_in_zone,
    ),
    awaited=True,
)

PLACEMENT_GROUP = Kind(
    type=tokens.PLACEMENT_GROUP,
    identify=machines.identify_placement_group,
    compute=machines.compute_placement_group,
    replace_on=machines.PLACEMENT_GROUP_REPLACES,
    maps=TAGS,
    rules=(templates.strategy_invalid, templates.placement_group_in_use),
    conflict=taken,
)

LAUNCH_TEMPLATE = _made(
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

RESERVATION = _made(
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
        groups.disk_beside_template,
        groups.remote_access_beside_template,
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
        interfaces.groups_beside_interfaces,
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
        interfaces.public_address_beside_others,
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
    conflict=taken,
)

POD_IDENTITY = Kind(
    type=tokens.POD_IDENTITY,
    identify=cluster_parts.identify_pod_identity,
    compute=cluster_parts.compute_pod_identity,
    replace_on=cluster_parts.POD_IDENTITY_REPLACES,
    maps=TAGS,
    rules=(groups.cluster_missing, parts.pod_role_untrusted, parts.pod_identity_exists),
    twins=True,
)

ROLE = Kind(
    type=tokens.ROLE,
    identify=iam.identify_by_name,
    compute=iam.compute_role,
    replace_on=iam.ROLE_REPLACES,
    maps=TAGS,
    rules=(identities.role_name_invalid, identities.trust_malformed, identities.role_in_use),
    conflict=taken,
)

ROLE_POLICY = Kind(
    type=tokens.ROLE_POLICY,
    identify=iam.identify_role_policy,
    compute=iam.compute_role_policy,
    replace_on=iam.ROLE_POLICY_REPLACES,
    rules=(identities.role_missing, identities.policy_malformed),
    conflict=taken,
)

ATTACHMENT = Kind(
    type=tokens.ATTACHMENT,
    identify=iam.identify_attachment,
    compute=lambda _call: {},
    replace_on=iam.ATTACHMENT_REPLACES,
    rules=(identities.role_missing, identities.policy_missing),
    conflict=taken,
)

POLICY = Kind(
    type=tokens.POLICY,
    identify=iam.identify_policy,
    compute=iam.compute_policy,
    replace_on=iam.POLICY_REPLACES,
    maps=TAGS,
    rules=(identities.policy_malformed, identities.policy_attached),
    conflict=taken,
)

INSTANCE_PROFILE = Kind(
    type=tokens.INSTANCE_PROFILE,
    identify=iam.identify_by_name,
    compute=iam.compute_instance_profile,
    replace_on=iam.INSTANCE_PROFILE_REPLACES,
    maps=TAGS,
    rules=(identities.role_missing,),
    conflict=taken,
)

OIDC_PROVIDER = Kind(
    type=tokens.OIDC_PROVIDER,
    identify=iam.identify_oidc,
    compute=iam.compute_oidc,
    replace_on=iam.OIDC_REPLACES,
    maps=TAGS,
    conflict=taken,
)

KEY = Kind(
    type=tokens.KEY,
    identify=iam.identify_key,
    compute=iam.compute_key,
    replace_on=iam.KEY_REPLACES,
    maps=TAGS,
    rules=(identities.key_locks_out, identities.deletion_window_invalid),
    twins=True,
)

ALIAS = Kind(
    type=tokens.ALIAS,
    identify=iam.identify_by_name,
    compute=iam.compute_alias,
    replace_on=iam.ALIAS_REPLACES,
    rules=(identities.alias_invalid,),
    conflict=taken,
)

LOG_GROUP = Kind(
    type=tokens.LOG_GROUP,
    identify=iam.identify_by_name,
    compute=iam.compute_log_group,
    replace_on=iam.LOG_GROUP_REPLACES,
    maps=TAGS,
    rules=(identities.retention_invalid, identities.log_group_name_invalid),
    conflict=taken,
)

FILE_SYSTEM = _made(
    tokens.FILE_SYSTEM,
    "fs",
    compute=storage.compute_file_system,
    replace_on=storage.FILE_SYSTEM_REPLACES,
    rules=(
        files.deployment_unknown,
        files.capacity_off_steps,
        files.capacity_reduced,
        files.subnet_not_one,
        files.throughput_invalid,
        files.groups_elsewhere,
        files.lustre_port_closed,
        files.metadata_invalid,
        files.efa_without_conditions,
        files.efa_traffic_closed,
        files.efa_throughput_changed,
        files.lustre_version_unknown,
        files.scratch_with_backups,
        files.import_path_elsewhere,
    ),
    cascade=storage.goes_with_file_system,
    awaited=True,
)

DATA_REPOSITORY = _made(
    tokens.DATA_REPOSITORY,
    "dra",
    compute=storage.compute_data_repository,
    replace_on=storage.DATA_REPOSITORY_REPLACES,
    rules=(
        files.repository_paths_invalid,
        files.repository_without_file_system,
        files.repository_paths_overlap,
        files.repository_events_unknown,
    ),
    awaited=True,
)

BUCKET = Kind(
    type=tokens.BUCKET,
    identify=storage.identify_bucket,
    compute=storage.compute_bucket,
    replace_on=storage.BUCKET_REPLACES,
    maps=TAGS,
    rules=(identities.bucket_name_invalid,),
    conflict=taken,
)

OF_BUCKET = tuple(
    Kind(
        type=type_,
        identify=storage.identify_of_bucket,
        compute=storage.compute_of_bucket,
        replace_on=storage.OF_BUCKET_REPLACES,
        rules=(identities.bucket_missing,),
        conflict=taken,
    )
    for type_ in (
        tokens.BUCKET_ACCESS,
        tokens.BUCKET_VERSIONING,
        tokens.BUCKET_ENCRYPTION,
        tokens.BUCKET_POLICY,
        tokens.BUCKET_OWNERSHIP,
    )
)

REPOSITORY = Kind(
    type=tokens.REPOSITORY,
    identify=storage.identify_repository,
    compute=storage.compute_repository,
    replace_on=storage.REPOSITORY_REPLACES,
    maps=TAGS,
    rules=(identities.repository_name_invalid,),
    conflict=taken,
)

_KINDS = (
    *(VPC, SUBNET, INTERNET_GATEWAY, EIP, NAT, ROUTE_TABLE, ROUTE, ASSOCIATION, SECURITY_GROUP, INGRESS, EGRESS),
    *(ENDPOINT, PLACEMENT_GROUP, LAUNCH_TEMPLATE, RESERVATION, CLUSTER, NODE_GROUP, ADDON, ACCESS_ENTRY),
    *(ACCESS_POLICY, POD_IDENTITY, ROLE, ROLE_POLICY, ATTACHMENT, POLICY, INSTANCE_PROFILE, OIDC_PROVIDER, KEY),
    *(ALIAS, LOG_GROUP, FILE_SYSTEM, DATA_REPOSITORY, BUCKET, *OF_BUCKET, REPOSITORY),
)

CLOUD = Cloud(
    package="aws",
    kinds={kind.type: kind for kind in _KINDS},
    functions=FUNCTIONS,
    replace_on=frozenset({"region"}),
    trouble=TROUBLE,
)
