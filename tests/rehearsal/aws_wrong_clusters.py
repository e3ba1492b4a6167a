"""Clusters and their parts, identities and storage that the simulated AWS refuses."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens as t
from tests.rehearsal import aws_supporting as land
from tests.rehearsal.aws_wrong import (
    FS,
    C,
    G,
    another,
    both,
    case,
    cluster,
    existing,
    gone,
    made_before,
    quota,
    without,
)
from tests.rehearsal.supporting import GONE

OF_BUCKET = (t.BUCKET_ACCESS, t.BUCKET_VERSIONING, t.BUCKET_ENCRYPTION, t.BUCKET_POLICY, t.BUCKET_OWNERSHIP)

CLUSTERS = (
    case("cluster_name_invalid", C, {"name": "a b"}, "restrictions"),
    case("cluster_role_untrusted", C, {"roleArn": land.role_arn("missing")}, "does not exist"),
    case("cluster_role_untrusted", C, {"roleArn": land.role_arn("nodes")}, "trusted entity"),
    case("cluster_role_untrusted", C, {}, "AmazonEKSClusterPolicy", without(t.ATTACHMENT)),
    case("version_unknown", C, {"version": "1.29"}, "unsupported Kubernetes version"),
    case("version_skipped", C, {"version": "1.33"}, "from 1.35 to 1.33", verb="update", id_="ray"),
    case("subnets_missing", C, {"vpcConfig.subnetIds": ["subnet-1"]}, "subnet-1' does not exist"),
    case("subnets_missing", C, {}, "same VPC", another(t.SUBNET, land.OTHER_ID, {"vpcId": "vpc-1"})),
    case("one_zone_only", C, {"vpcConfig.subnetIds": [land.PRIVATE_ID, land.PUBLIC_ID]}, "two different AZs"),
    case(
        "zone_without_control_planes",
        C,
        {},
        "us-east-1e",
        another(t.SUBNET, land.OTHER_ID, {"availabilityZone": "us-east-1e"}),
    ),
    case("no_endpoint", C, {"vpcConfig.endpointPrivateAccess": False}, "cannot both be false"),
    case(
        "private_endpoint_without_dns",
        C,
        {},
        "enableDnsHostnames",
        another(t.VPC, land.VPC_ID, {"enableDnsHostnames": False}),
    ),
    case("public_ranges_invalid", C, {"vpcConfig.publicAccessCidrs": ["192.0.2.0/24"]}, "is disabled"),
    case(
        "public_ranges_invalid",
        C,
        {"vpcConfig.endpointPublicAccess": True, "vpcConfig.publicAccessCidrs": ["10.0.0.0/8"]},
        r"invalid in publicAccessCidrs: \[10.0.0.0/8\]",
    ),
    case("mode_unknown", C, {"accessConfig.authenticationMode": "IAM"}, "authentication_mode"),
    case("mode_unknown", C, {"accessConfig.authenticationMode": "CONFIG_MAP"}, "from API", verb="update", id_="ray"),
    case(
        "mode_without_creator",
        C,
        {"accessConfig": {"bootstrapClusterCreatorAdminPermissions": False}},
        "must be true",
    ),
    case("log_type_unknown", C, {"enabledClusterLogTypes": ["all"]}, "got all"),
    case("encryption_key_invalid", C, {"encryptionConfig.resources": ["configmaps"]}, "secrets"),
    case("encryption_key_invalid", C, {"encryptionConfig.provider.keyArn": land.KEY_ID}, "keyArn"),
    case("encryption_key_invalid", C, {}, "does not exist", without(t.KEY)),
    case("groups_missing", C, {"vpcConfig.securityGroupIds": ["sg-1"]}, "sg-1"),
    case("groups_missing", C, {"vpcConfig.securityGroupIds": [land.EFA_ID] * 6}, "at most 5"),
    case("service_range_invalid", C, {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.0.0.0/8"}}, "12 and 24"),
    case("service_range_invalid", C, {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.0.0.0/16"}}, "overlaps"),
    case("support_type_unknown", C, {"upgradePolicy.supportType": "LONG"}, "support_type"),
    case("cluster_quota", C, {}, "limit exceeded", quota(clusters=1)),
    gone("cluster_protected", C, "ray", "deletion protection", cluster({"deletionProtection": True})),
    gone("cluster_has_node_groups", C, "ray", "nodegroups attached"),
)

PARTS = (
    case("addon_unknown", t.ADDON, {"addonName": "dns"}, "Addon dns specified is not supported in 1.35"),
    case("addon_version_unknown", t.ADDON, {"addonVersion": "1.13"}, "version specified"),
    case(
        "addon_version_unknown", t.ADDON, {"addonName": "kube-proxy", "addonVersion": "v1.36.0-eksbuild.2"}, "not supp"
    ),
    case("addon_values_malformed", t.ADDON, {"configurationValues": "{a: b"}, "no valid JSON"),
    case("addon_conflicts_unknown", t.ADDON, {"resolveConflictsOnCreate": "PRESERVE"}, "got PRESERVE"),
    case(
        "addon_over_self_managed",
        t.ADDON,
        {"resolveConflictsOnCreate": GONE},
        "Conflicts found",
        cluster({"bootstrapSelfManagedAddons": True}),
    ),
    case("addon_without_nodes", t.ADDON, {}, "DEGRADED", without(G)),
    case(
        "addon_without_nodes",
        t.ADDON,
        {},
        "DEGRADED",
        another(G, "ray:system", {"taints": [{"key": "a", "effect": "NO_SCHEDULE"}]}),
    ),
    case(
        "access_by_config_map",
        t.ACCESS_ENTRY,
        {},
        "authentication mode must be",
        cluster({"accessConfig.authenticationMode": "CONFIG_MAP"}),
    ),
    case("principal_invalid", t.ACCESS_ENTRY, {"principalArn": land.role_arn("missing")}, "invalid principal"),
    case("principal_invalid", t.ACCESS_ENTRY, {"principalArn": "people"}, "invalid principal"),
    case("access_group_reserved", t.ACCESS_ENTRY, {"kubernetesGroups": ["system:masters"]}, "cannot start with"),
    case("access_type_unknown", t.ACCESS_ENTRY, {"type": "ADMIN"}, "type is invalid"),
    case("access_type_unknown", t.ACCESS_ENTRY, {"type": "EC2_LINUX", "kubernetesGroups": ["a"]}, "EC2_LINUX"),
    case("policy_without_entry", t.ACCESS_POLICY, {"principalArn": land.role_arn("people")}, "could not be found"),
    case(
        "access_policy_unknown", t.ACCESS_POLICY, {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}, "not an"
    ),
    case("access_scope_invalid", t.ACCESS_POLICY, {"accessScope": {"type": "namespace"}}, "accessScope"),
    case("pod_role_untrusted", t.POD_IDENTITY, {"roleArn": land.role_arn("missing")}, "does not exist"),
    case("pod_role_untrusted", t.POD_IDENTITY, {"roleArn": land.role_arn("nodes")}, "sts:TagSession"),
    case(
        "pod_identity_exists",
        t.POD_IDENTITY,
        {},
        "Association already",
        lambda state: made_before(state, t.POD_IDENTITY),
    ),
)

IDENTITIES = (
    *(
        case("role_missing", kind, {"role": "missing"}, "missing cannot be found")
        for kind in (t.ROLE_POLICY, t.ATTACHMENT, t.INSTANCE_PROFILE)
    ),
    *(case("bucket_missing", kind, {"bucket": "acme-none"}, "acme-none") for kind in OF_BUCKET),
    case("role_name_invalid", t.ROLE, {"name": "a" * 65}, r"range \(1 - 64\)"),
    case("trust_malformed", t.ROLE, {"assumeRolePolicy": "ec2"}, "invalid Json"),
    *(
        case("policy_malformed", kind, {"policy": '{"Statement": [{"Effect": "Allow"}]}'}, "Syntax errors")
        for kind in (t.ROLE_POLICY, t.POLICY)
    ),
    case("policy_missing", t.ATTACHMENT, {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSNothing"}, "not attachable"),
    gone("role_in_use", t.ROLE, "nodes", "detach all policies"),
    gone(
        "role_in_use", t.ROLE, "pods", "delete policies first", existing(t.ROLE_POLICY, {"name": "a", "role": "pods"})
    ),
    gone(
        "policy_attached",
        t.POLICY,
        land.identify(t.POLICY, land.RIGHT[t.POLICY]),
        "attached to entities",
        both(
            lambda state: made_before(state, t.POLICY),
            existing(t.ATTACHMENT, {"role": "pods", "policyArn": land.identify(t.POLICY, land.RIGHT[t.POLICY])}),
        ),
    ),
    case("key_locks_out", t.KEY, {"policy": land.RIGHTS}, "will not allow you"),
    case("deletion_window_invalid", t.KEY, {"deletionWindowInDays": 1}, r"range \(7 - 30\)"),
    case("alias_invalid", t.ALIAS, {"name": "secrets"}, "must begin with"),
    case("alias_invalid", t.ALIAS, {"targetKeyId": "none"}, "Key 'none' does not exist"),
    case("retention_invalid", t.LOG_GROUP, {"retentionInDays": 31}, "retention_in_days"),
    case("log_group_name_invalid", t.LOG_GROUP, {"name": "a b"}, "logGroupName"),
    case("bucket_name_invalid", t.BUCKET, {"bucket": "Acme"}, "not valid"),
    case("repository_name_invalid", t.REPOSITORY, {"name": "Ray"}, "repositoryName"),
)

FILES = (
    case("deployment_unknown", FS, {"deploymentType": "PERSISTENT_3"}, "deployment_type"),
    case("capacity_off_steps", FS, {"storageCapacity": 1000}, "at least"),
    case("capacity_off_steps", FS, {"storageCapacity": 3600}, "Invalid storage capacity: 3600"),
    case("capacity_reduced", FS, {"storageCapacity": 1200}, "from 2400 to 1200", verb="update", id_=land.FILES_ID),
    case("throughput_invalid", FS, {"perUnitStorageThroughput": 200}, "125, 250, 500, 1000"),
    case("throughput_invalid", FS, {"deploymentType": "SCRATCH_2"}, "not supported for SCRATCH_2"),
    case("subnet_not_one", FS, {"subnetIds": [land.PRIVATE_ID, land.OTHER_ID]}, "got 2"),
    case("subnet_not_one", FS, {"subnetIds": "subnet-1"}, "subnet-1' does not exist"),
    case("groups_elsewhere", FS, {"securityGroupIds": ["sg-1"]}, "sg-1"),
    case("lustre_port_closed", FS, {}, "Lustre LNET network traffic on port 988", without(t.INGRESS)),
    case("efa_without_conditions", FS, {"metadataConfiguration": GONE}, "metadata configuration"),
    case("efa_traffic_closed", FS, {}, "to and from themselves", without(t.EGRESS)),
    case(
        "efa_throughput_changed",
        FS,
        {"perUnitStorageThroughput": 500},
        "cannot be changed",
        verb="update",
        id_=land.FILES_ID,
    ),
    case("metadata_invalid", FS, {"deploymentType": "PERSISTENT_1"}, "MetadataConfiguration"),
    case("metadata_invalid", FS, {"metadataConfiguration.iops": 1500}, "AUTOMATIC"),
    case("lustre_version_unknown", FS, {"fileSystemTypeVersion": "2.10"}, "2.12, 2.15"),
    case("scratch_with_backups", FS, {"deploymentType": "SCRATCH_2", "automaticBackupRetentionDays": 7}, "Automatic"),
    case("import_path_elsewhere", FS, {"importPath": "s3://acme-data"}, "data repository association"),
    case("repository_paths_invalid", t.DATA_REPOSITORY, {"dataRepositoryPath": "acme-data"}, "s3://"),
    case("repository_paths_invalid", t.DATA_REPOSITORY, {"fileSystemPath": "fresh"}, "begin with /"),
    case("repository_without_file_system", t.DATA_REPOSITORY, {"fileSystemId": "fs-1"}, "fs-1"),
    case(
        "repository_without_file_system",
        t.DATA_REPOSITORY,
        {},
        "SCRATCH_1",
        another(FS, land.FILES_ID, {"deploymentType": "SCRATCH_1"}),
    ),
    case(
        "repository_paths_overlap",
        t.DATA_REPOSITORY,
        {},
        "overlaps",
        existing(t.DATA_REPOSITORY, {**land.RIGHT[t.DATA_REPOSITORY], "fileSystemPath": "/"}),
    ),
    case("repository_events_unknown", t.DATA_REPOSITORY, {"s3.autoImportPolicy.events": ["MOVED"]}, "got MOVED"),
)

CASES = (*CLUSTERS, *PARTS, *IDENTITIES, *FILES)
