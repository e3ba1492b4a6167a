"""Launch templates and node groups that the simulated AWS refuses."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens as t
from tests.rehearsal import aws_supporting as land
from tests.rehearsal.aws_wrong import (
    LT,
    G,
    another,
    case,
    gone,
    made_before,
    quota,
    reserved,
    targeting,
    template,
    with_interfaces,
    without,
)
from tests.rehearsal.supporting import GONE

IN_CLUSTER = (G, t.ADDON, t.ACCESS_ENTRY, t.ACCESS_POLICY, t.POD_IDENTITY)

TEMPLATES = (
    case("template_name_invalid", LT, {"name": "a b"}, "between 3 and 128"),
    case("template_name_taken", LT, {"name": "ray-gpu"}, "already in use"),
    case("user_data_malformed", LT, {"userData": "#!/bin/sh"}, "BASE64"),
    case("user_data_malformed", LT, {"userData": "YWFh" * 5500}, "limited to 16384"),
    case("metadata_options_invalid", LT, {"metadataOptions.httpPutResponseHopLimit": 65}, r"range \(1 - 64\)"),
    case("metadata_options_invalid", LT, {"metadataOptions.httpTokens": "yes"}, "http_tokens"),
    case("volume_invalid", LT, {"blockDeviceMappings.0.ebs.volumeType": "gp9"}, "volume_type"),
    case("volume_invalid", LT, {"blockDeviceMappings.0.ebs": {"volumeType": "io2", "throughput": 1}}, "throughput"),
    case("spot_options_elsewhere", LT, {"instanceMarketOptions": {"marketType": "block"}}, "market_type"),
    case(
        "spot_options_elsewhere",
        LT,
        {"instanceMarketOptions": {"marketType": "capacity-block", "spotOptions": {"maxPrice": "1"}}},
        "Spot options",
    ),
    case("strategy_invalid", t.PLACEMENT_GROUP, {"strategy": "tight"}, "to be one of"),
    case("strategy_invalid", t.PLACEMENT_GROUP, {"partitionCount": 3}, "PartitionCount"),
    gone("placement_group_in_use", t.PLACEMENT_GROUP, "ray-gpu", "is in use", lambda state: made_before(state, G)),
)

TWO = ((0, 0, "interface"), (0, 1, "efa-only"))
INTERFACES = (
    case(
        "card_missing",
        G,
        {},
        "Network card index 16 .* has 16 network cards",
        with_interfaces(*TWO, (16, 0, "efa-only")),
    ),
    case("device_index_too_high", G, {}, "Device index 4 .* takes 4", with_interfaces(*TWO, (1, 4, "efa-only"))),
    case("place_taken", G, {}, "unique device index", with_interfaces(*TWO, (0, 1, "interface"))),
    case("no_primary_interface", G, {}, "primary network interface", with_interfaces((0, 1, "interface"))),
    case("primary_without_address", G, {}, "cannot be attached as the primary", with_interfaces((0, 0, "efa-only"))),
    case("efa_unsupported", G, {"instanceTypes": ["g6.2xlarge"]}, "not supported on g6.2xlarge"),
    case("efa_on_card_without", G, {"instanceTypes": ["p6-b300.48xlarge"]}, "Network card 0"),
    case("two_efas_on_card", G, {}, "network card 1 has 2", with_interfaces(*TWO, (1, 0, "efa-only"), (1, 1, "efa"))),
    case("too_many_efas", G, {"instanceTypes": ["p6-b200.48xlarge"]}, "is 8; 16 are given"),
    case("interface_type_unknown", G, {}, r"Value \(efs\)", with_interfaces((0, 0, "efs"))),
    case(
        "public_address_with_several_interfaces",
        G,
        {},
        "associatePublicIPAddress",
        with_interfaces(*TWO, associatePublicIpAddress="true"),
    ),
    case("address_on_efa_only", G, {}, "EFA-only network interface", with_interfaces(*TWO, ipv4PrefixCount=1)),
    case("groups_outside_interfaces", G, {}, "must be a part of it", template({"vpcSecurityGroupIds": [land.EFA_ID]})),
    case("groups_of_other_network", G, {}, "does not exist", with_interfaces(*TWO, securityGroups=["sg-1"])),
    case(
        "groups_of_other_network",
        G,
        {},
        "different networks",
        another(t.SECURITY_GROUP, land.EFA_ID, {"vpcId": "vpc-1"}),
    ),
    case("subnet_in_template", G, {}, "must not specify a subnet", with_interfaces(*TWO, subnetId=land.PRIVATE_ID)),
)

GROUPS = (
    *(case("cluster_missing", kind, {"clusterName": "gone"}, "No cluster found for name: gone") for kind in IN_CLUSTER),
    case("group_name_invalid", G, {"nodeGroupName": "a b"}, "nodegroup name"),
    case("node_role_untrusted", G, {"nodeRoleArn": land.role_arn("missing")}, "missing cannot be found"),
    case("node_role_untrusted", G, {"nodeRoleArn": land.role_arn("pods")}, "were not found in the trust"),
    case("subnets_elsewhere", G, {"subnetIds": ["subnet-1"]}, "subnet-1' does not exist"),
    case("subnets_elsewhere", G, {}, "not in the VPC", another(t.SUBNET, land.PRIVATE_ID, {"vpcId": "vpc-1"})),
    case("template_missing", G, {"launchTemplate.id": "lt-1"}, "lt-1 does not exist"),
    case("template_missing", G, {"launchTemplate.version": "2"}, "version 2"),
    case("types_twice", G, {}, "Cannot specify instance types", template({"instanceType": "p5en.48xlarge"})),
    case("type_unknown", G, {"instanceTypes": ["p5en.96xlarge"]}, r"do not exist: \[p5en.96xlarge\]"),
    case("disk_with_template", G, {"diskSize": 100}, "Disk size"),
    case("remote_access_with_template", G, {"remoteAccess": {"ec2SshKey": "k"}}, "Remote access"),
    case("profile_in_template", G, {}, "instance profile", template({"iamInstanceProfile": {"name": "p"}})),
    case("spot_in_template", G, {}, "market options", template({"instanceMarketOptions": {"marketType": "spot"}})),
    case("ami_type_unknown", G, {"amiType": "AL2024_x86_64"}, "expected ami_type"),
    case("ami_type_unknown", G, {"amiType": "AL2_x86_64_GPU"}, "1.32 or earlier"),
    case("ami_of_other_machines", G, {"amiType": "AL2023_ARM_64_NVIDIA"}, "not a valid instance type"),
    case("ami_of_other_machines", G, {"instanceTypes": ["m6i.large"]}, "not a valid instance type"),
    case("image_named_twice", G, {}, "custom AMIs", template({"imageId": "ami-1"})),
    case("version_not_the_clusters", G, {"version": "1.36"}, "1.36 is not supported"),
    case("release_of_other_version", G, {"releaseVersion": "1.34.2-20260728"}, "not valid for kubernetes version 1.35"),
    case("release_of_other_version", G, {"releaseVersion": "latest"}, "not valid"),
    case("sizes_reversed", G, {"scalingConfig.maxSize": 0}, "at least"),
    case("sizes_reversed", G, {"scalingConfig.minSize": 5}, "maximum size 4"),
    case("sizes_reversed", G, {"scalingConfig.minSize": 3}, "desired size 2"),
    case("sizes_reversed", G, {"scalingConfig.desiredSize": 9}, "max size 4"),
    case("update_limits_unclear", G, {"updateConfig.maxUnavailablePercentage": 5}, "only one of"),
    case("update_limits_unclear", G, {"updateConfig.maxUnavailable": 0}, "from 1 to 100"),
    case("taint_invalid", G, {"taints.0.effect": "NoSchedule"}, "expected effect"),
    case("taint_invalid", G, {"taints": [{"key": "a", "effect": "NO_EXECUTE"}] * 51}, "Too many"),
    case("label_reserved", G, {"labels": {"kubernetes.io/role": "gpu"}}, "reserved prefixes"),
    case("scaling_group_missing", t.GROUP_TAG, {"autoscalingGroupName": "eks-none"}, "not found"),
)

CAPACITY = (
    case("capacity_type_unknown", G, {"capacityType": "BLOCK"}, "capacity_type"),
    case("block_without_template", G, {"capacityType": "CAPACITY_BLOCK"}, "an instance type and the market .* target"),
    case(
        "block_market_elsewhere",
        G,
        {},
        "requires the node group's capacity type",
        template({"instanceMarketOptions": {"marketType": "capacity-block"}}),
    ),
    case("block_of_other_machine", G, {"capacityType": "CAPACITY_BLOCK", "instanceTypes": ["g6.xlarge"]}, "g6.xlarge"),
    case(
        "reservation_malformed",
        G,
        {},
        "malformed",
        template({"capacityReservationSpecification.capacityReservationTarget.capacityReservationId": "cr-x"}),
    ),
    case("reservation_elsewhere", G, {}, "is in us-east-2b", reserved({"availabilityZone": land.SECOND})),
    case("reservation_of_other_machine", G, {}, "do not match", reserved({"instanceType": "p5.48xlarge"})),
    case("reservation_not_active", G, {}, "its state is scheduled", reserved({"state": "scheduled"})),
    case("reservation_outside_placement", G, {}, "ReservationCapacityExceeded", targeting()),
    case("spot_with_reservation", G, {"capacityType": "SPOT"}, "Spot Instances", targeting()),
    case("placement_group_missing", G, {}, "is unknown", without(t.PLACEMENT_GROUP)),
    case("placement_group_in_several_zones", G, {"subnetIds": [land.PRIVATE_ID, land.OTHER_ID]}, "cannot span"),
    case("placement_group_of_other_machine", G, {"instanceTypes": ["t3.large"]}, "'t3.large' instance type"),
    case("type_not_in_zone", G, {}, "us-east-2a", lambda state: state.set("offers", {"p5en.48xlarge": [land.SECOND]})),
    case("vcpu_quota", G, {}, "limit of 383", quota(P=383)),
    case("nodes_without_policies", G, {}, "no AmazonEKSWorkerNodePolicy", without(t.ATTACHMENT)),
    case("nodes_without_pod_network", G, {}, "cni plugin", without(t.ADDON)),
    case("nodes_without_way_out", G, {}, "no route out", without(t.ROUTE)),
)


S = t.SCHEDULE
SCHEDULES = (
    case("scaling_group_missing", S, {"autoscalingGroupName": "eks-none"}, "not found"),
    case("action_without_time", S, {"recurrence": GONE}, "StartTime or Recurrence"),
    case("action_in_the_past", S, {"startTime": "2026-11-01T00:00:00Z"}, "in the past"),
    *(
        case("recurrence_malformed", S, {"recurrence": line}, "is invalid")
        for line in ("45 10 3 12", "45 24 3 12 *", "45 10 0 12 *", "45 10 3 13 *", "45 10 3 x! *")
    ),
    case("action_sizes_reversed", S, {"minSize": 1}, "minSize 1 must be less"),
    case("action_sizes_reversed", S, {"desiredCapacity": 2, "maxSize": 1}, "desiredCapacity 2"),
    case("action_sizes_reversed", S, {"minSize": 3, "desiredCapacity": -1, "maxSize": 2}, "maxSize 2"),
)

CASES = (*TEMPLATES, *INTERFACES, *GROUPS, *CAPACITY, *SCHEDULES)
