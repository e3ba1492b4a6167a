"""Clusters, and sizes and versions of node pools, that the simulated Google Cloud refuses."""

from __future__ import annotations

from tests.rehearsal import gcp_supporting as land
from tests.rehearsal.gcp_wrong import PLAIN, C, P, case, cluster, quota
from tests.rehearsal.supporting import GONE

CASES = (
    # Clusters
    case("channel_unknown", C, {"releaseChannel.channel": "FAST"}, "got FAST"),
    case("version_not_offered", C, {"minMasterVersion": "1.12"}, 'Master version "1.12" is unsupported.'),
    case("node_version_of_removed_pool", C, {"nodeVersion": "1.35.2-gke.1485000"}, "remove_default_node_pool"),
    case("node_version_differs", C, {"nodeVersion": "1.34"}, "set to equivalent values on create"),
    case("no_first_node", C, {"initialNodeCount": GONE}, "initial_node_count must be greater than zero"),
    case("zone_named_twice", C, {"location": land.ZONE}, "should not contain the original 'zone'"),
    case("zones_elsewhere", C, {"nodeLocations": ["us-east4-b"]}, 'not a zone in region "us-central1"'),
    case("network_policy_with_dataplane_v2", C, {"networkPolicy.enabled": True}, "Enabling NetworkPolicy"),
    case("multi_networking_without_dataplane_v2", C, {"datapathProvider": GONE}, "ADVANCED_DATAPATH"),
    case("multi_networking_without_ip_aliases", C, {"networkingMode": "ROUTES"}, "VPC-native"),
    case("multi_networking_with_dual_stack", C, {"ipAllocationPolicy.stackType": "IPV4_IPV6"}, "dual-stack"),
    case(
        "multi_networking_with_hubble",
        C,
        {"monitoringConfig.advancedDatapathObservabilityConfig.enableRelay": True},
        "Hubble",
    ),
    case("workload_pool_of_other_project", C, {"workloadIdentityConfig.workloadPool": "x.svc.id.goog"}, "acme-ml.svc"),
    case("node_account_missing", C, {"nodeConfig.serviceAccount": land.ACCOUNT[1:]}, "does not exist"),
    case("network_missing", C, {"network": "nowhere"}, "does not exist"),
    case("network_is_roce", C, {"network": land.RDMA}, "RDMA interfaces only"),
    case("subnetwork_not_in_network", C, {"subnetwork": "gvnic"}, "is not valid for Network"),
    case("subnetwork_not_in_network", C, {"subnetwork": "nowhere"}, "is not valid for Network"),
    case("pods_and_services_share_range", C, {"ipAllocationPolicy.servicesSecondaryRangeName": "pods"}, r"\(pods\)"),
    case("pod_range_missing", C, {"ipAllocationPolicy.clusterSecondaryRangeName": "p"}, 'Pod secondary range "p" not'),
    case("services_range_missing", C, {"ipAllocationPolicy.servicesSecondaryRangeName": "s"}, 'range "s" not found'),
    case(
        "range_named_and_numbered",
        C,
        {"ipAllocationPolicy.servicesIpv4CidrBlock": "/20"},
        '"ip_allocation_policy.0.services_ipv4_cidr_block": conflicts with',
    ),
    case("pod_range_twice", C, {"clusterIpv4Cidr": "10.9.0.0/16"}, "conflicts with ip_allocation_policy"),
    case("range_overlaps", C, {"ipAllocationPolicy": {"clusterIpv4CidrBlock": "10.0.0.0/14"}}, "conflicts with"),
    case("control_plane_range_malformed", C, {"privateClusterConfig.masterIpv4CidrBlock": "172.16.1.0/27"}, "/28"),
    case("control_plane_range_overlaps", C, {"privateClusterConfig.masterIpv4CidrBlock": "10.2.0.0/28"}, "overlaps"),
    case("control_plane_range_overlaps", C, {"privateClusterConfig.masterIpv4CidrBlock": "172.16.0.0/28"}, "/ray"),
    case("authorized_network_malformed", C, {"masterAuthorizedNetworksConfig.cidrBlocks.0.cidrBlock": "me"}, '"me"'),
    case(
        "protected",
        C,
        {"name": "ray"},
        "Cannot destroy cluster because deletion_protection is set to true",
        verb="delete",
        prepare=cluster({"deletionProtection": True}),
        right={"name": "ray"},
    ),
    # Node pools: size, version, quota
    case("two_names", P, {"namePrefix": "gpu-"}, "both name and name_prefix"),
    case(
        "surge_settings_without_surge", P, {"upgradeSettings": {"strategy": "BLUE_GREEN", "maxSurge": 1}}, "not enabled"
    ),
    case(
        "blue_green_settings_without_blue_green",
        P,
        {"upgradeSettings": {"strategy": "SURGE", "blueGreenSettings": {"nodePoolSoakDuration": "60s"}}},
        "blue-green strategy is not enabled",
    ),
    case("two_initial_counts", P, {"initialNodeCount": 1, "nodeCount": 1}, "Cannot set both .* node pool fresh"),
    case("count_with_autoscaling", P, {"nodeCount": 1}, "alongside"),
    case("two_kinds_of_limits", P, {"autoscaling.maxNodeCount": 2}, "cannot be used together"),
    case("cluster_missing", P, {"cluster": "nowhere"}, "Not found: .*clusters/nowhere"),
    case("zones_elsewhere", P, {"nodeLocations": ["us-east4-b"]}, "not a zone in region"),
    case("version_not_offered", P, {"version": "1.12"}, "unsupported"),
    case("newer_than_control_plane", P, {"version": "1.35.3"}, "must not be greater than master version"),
    case("upgrades_off_in_channel", P, {"management.autoUpgrade": False}, "when release_channel REGULAR is set"),
    case("limits_reversed", P, {"autoscaling.totalMinNodeCount": 5}, "less than or equal"),
    case("count_outside_limits", P, {"initialNodeCount": 5}, "greater than the autoscaling maximum 4"),
    case("too_large", P, {"autoscaling": {"maxNodeCount": 1001}}, "limit of 1000 nodes"),
    case("node_account_missing", P, {"nodeConfig.serviceAccount": land.ACCOUNT[1:]}, "does not exist"),
    case(
        "gpu_quota",
        P,
        {**PLAIN, "nodeConfig.spot": True, "initialNodeCount": 2},
        '"PREEMPTIBLE_NVIDIA_H200_GPUS": request requires "16.0" and is short "8.0"',
        prepare=quota({"PREEMPTIBLE_NVIDIA_H200_GPUS": 8}),
    ),
)
