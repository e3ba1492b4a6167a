"""Kinds of identities and storage with their rules: IAM, KMS, logs, FSx, S3, ECR."""

from __future__ import annotations

from rehearsal.clouds.aws import iam, storage, tokens
from rehearsal.clouds.aws import rules_iam as identities
from rehearsal.clouds.aws import rules_storage as files
from rehearsal.clouds.aws.outputs import TAGS, kind_with_generated_id
from rehearsal.clouds.aws.refusals import taken
from rehearsal.clouds.kind import Kind

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
    repeatable=True,
)

ATTACHMENT = Kind(
    type=tokens.ATTACHMENT,
    identify=iam.identify_attachment,
    compute=lambda _call: {},
    replace_on=iam.ATTACHMENT_REPLACES,
    rules=(identities.role_missing, identities.policy_missing),
    repeatable=True,
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
    generated_ids=True,
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

FILE_SYSTEM = kind_with_generated_id(
    tokens.FILE_SYSTEM,
    "fs",
    "subnetIds",
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

DATA_REPOSITORY = kind_with_generated_id(
    tokens.DATA_REPOSITORY,
    "dra",
    "fileSystemId",
    "fileSystemPath",
    "dataRepositoryPath",
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
        repeatable=True,
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

KINDS: tuple[Kind, ...] = (
    ROLE,
    ROLE_POLICY,
    ATTACHMENT,
    POLICY,
    INSTANCE_PROFILE,
    OIDC_PROVIDER,
    KEY,
    ALIAS,
    LOG_GROUP,
    FILE_SYSTEM,
    DATA_REPOSITORY,
    BUCKET,
    *OF_BUCKET,
    REPOSITORY,
)
