"""Node pools that the simulated Google Cloud refuses: capacity, machines, networks."""

from __future__ import annotations

from tests.rehearsal import gcp_supporting as land
from tests.rehearsal.gcp_wrong import AUTO, COMPACT, PLAIN, QUEUED, RESERVED, N, P, S, also, case, cluster
from tests.rehearsal.supporting import GONE

CASES = (
    # Node pools: capacity
    case(
        "queued_with_reservation",
        P,
        {**QUEUED, "nodeConfig.reservationAffinity": GONE},
        "^Queued_provisioning requires reservation affinity to be set to none$",
        right=QUEUED,
    ),
    case("queued_without_autoscaling", P, {**QUEUED, "autoscaling": GONE}, "autoscaling", right=QUEUED),
    case("queued_with_minimum", P, {**QUEUED, "autoscaling.totalMinNodeCount": 1}, "to be 0", right=QUEUED),
    case("queued_with_other_policy", P, {**QUEUED, "autoscaling.locationPolicy": "BALANCED"}, "ANY", right=QUEUED),
    case("queued_with_spot", P, {**QUEUED, "nodeConfig.spot": True}, "spot", right=QUEUED),
    case("queued_with_repair", P, {**QUEUED, "management.autoRepair": True}, "auto_repair", right=QUEUED),
    case("queued_with_nodes", P, {**QUEUED, "initialNodeCount": 1}, "initial number of nodes", right=QUEUED),
    case("queued_and_compact", P, {**QUEUED, **COMPACT}, "COMPACT placement for GPUs", right=QUEUED),
    case("flex_with_repair", P, {"management": GONE}, "auto_repair"),
    case("flex_with_nodes", P, {"initialNodeCount": 1}, "initial_node_count to be 0"),
    case("flex_with_nodes", P, {"nodeCount": 1, "autoscaling": GONE}, "no static node_count", verb="update"),
    case("flex_without_autoscaling", P, {"autoscaling": GONE}, "autoscaling to be enabled"),
    case("flex_with_reservation", P, RESERVED, "NO_RESERVATION"),
    case("flex_with_spot", P, {"nodeConfig.spot": True}, "spot to be disabled"),
    case("flex_on_old_version", P, {}, "1.32.2-gke.1652000", prepare=cluster({"masterVersion": "1.32.2-gke.1000000"})),
    case("flex_with_upgrade_settings", P, {"upgradeSettings": {"maxSurge": 1}}, "short-lived upgrades"),
    case("flex_with_upgrade_settings", P, {"upgradeSettings": {"strategy": "BLUE_GREEN"}}, "short-lived upgrades"),
    case("run_duration_malformed", P, {"nodeConfig.maxRunDuration": "7d"}, '"7d"'),
    case("runs_too_long", P, {"nodeConfig.maxRunDuration": "604801s"}, "7 days"),
    case("spot_with_reservation", P, {**PLAIN, **RESERVED, "nodeConfig.spot": True}, "Spot VMs", right=PLAIN),
    case("reservation_unnamed", P, {**PLAIN, **RESERVED, "nodeConfig.reservationAffinity.values": []}, "exactly one"),
    case(
        "reservation_unnamed",
        P,
        {**PLAIN, **RESERVED, "nodeConfig.reservationAffinity.key": "name"},
        "compute.googleapis.com/reservation-name",
        right={**PLAIN, **RESERVED},
    ),
    case(
        "reservation_name_without_affinity",
        P,
        {**PLAIN, **RESERVED, "nodeConfig.reservationAffinity.consumeReservationType": "ANY_RESERVATION"},
        "can only be set with SPECIFIC_RESERVATION",
        right={**PLAIN, **RESERVED},
    ),
    case(
        "block_without_zones",
        P,
        {
            **PLAIN,
            **RESERVED,
            "nodeConfig.reservationAffinity.values": ["projects/p/reservations/r/reservationBlocks/b"],
            "nodeLocations": GONE,
        },
        "node_locations must be set",
        right={**PLAIN, **RESERVED},
    ),
    case("compact_in_several_zones", P, {**COMPACT, "nodeLocations": [land.ZONE, "us-central1-a"]}, "single zone"),
    case("compact_and_blue_green", P, {**COMPACT, "upgradeSettings": {"strategy": "BLUE_GREEN"}}, "SURGE"),
    case("compact_flex_on_other_machine", P, {**COMPACT, "nodeConfig.machineType": "a3-megagpu-8g"}, "a3-megagpu-8g"),
    case("not_obtainable", P, {"nodeConfig.machineType": "a4x-highgpu-4g"}, "specific reservation only"),
    # Node pools: machines
    case("machine_not_in_zone", P, {"nodeLocations": ["us-central1-f"]}, "does not exist in zone 'us-central1-f'"),
    case("machine_not_in_zone", P, {"nodeConfig.machineType": "a3-ultragpu-9g"}, "does not exist in zone"),
    case("accelerators_missing", P, {"nodeConfig.guestAccelerators": GONE}, "8 of nvidia-h200-141gb"),
    case("accelerator_differs", P, {"nodeConfig.guestAccelerators.0.type": "nvidia-b200"}, "not compatible"),
    case("accelerator_count_differs", P, {"nodeConfig.guestAccelerators.0.count": 4}, "requires 8 accelerators, got 4"),
    case("version_too_old", P, {}, "1.31.4-gke.1183000 or later", prepare=cluster({"masterVersion": "1.30.1-gke.1"})),
    case("local_ssds_twice", P, {"nodeConfig.localNvmeSsdBlockConfig": {"localSsdCount": 1}}, "cannot both"),
    case(
        "local_ssd_count_differs", P, {"nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount": 16}, "32 local SSDs"
    ),
    case("boot_disk_differs", P, {"nodeConfig.diskType": "pd-ssd"}, "use hyperdisk-balanced"),
    case("gvnic_off", P, {"nodeConfig.gvnic.enabled": False}, "requires gVNIC"),
    case("image_not_cos", P, {"nodeConfig.imageType": "UBUNTU_CONTAINERD"}, "use COS_CONTAINERD"),
    case("fast_socket", P, {"nodeConfig.fastSocket.enabled": True}, "Fast Socket"),
    # Node pools: networks
    case("profile_with_own_networks", P, {"networkConfig.acceleratorNetworkProfile": "auto"}, "cannot be combined"),
    case("profile_on_other_machine", P, {**AUTO, "nodeConfig.machineType": "e2-standard-8"}, "e2-stand", right=AUTO),
    case(
        "profile_on_old_version",
        P,
        AUTO,
        "1.34.1-gke.1829001 or later",
        prepare=cluster({"masterVersion": "1.33.8-gke.1112000"}),
    ),
    case(
        "profile_in_several_zones",
        P,
        {**AUTO, "nodeLocations": [land.ZONE, "us-central1-a"]},
        "single zone",
        right=AUTO,
    ),
    case("profile_without_dataplane_v2", P, AUTO, "ADVANCED_DATAPATH", prepare=cluster({"datapathProvider": ""})),
    case("multi_networking_off", P, {}, "multi-networking enabled", prepare=cluster({"enableMultiNetworking": False})),
    case("network_missing", P, {"networkConfig.additionalNodeNetworkConfigs.0.network": "x"}, "networks/x"),
    case("subnetwork_missing", P, {"networkConfig.additionalNodeNetworkConfigs.0.subnetwork": "x"}, "subnetworks/x"),
    case("subnetwork_missing", P, {"networkConfig.additionalNodeNetworkConfigs.0.network": "rdma"}, "is not valid for"),
    case("cluster_network_again", P, {"networkConfig.additionalNodeNetworkConfigs.0.network": "main"}, "must differ"),
    case(
        "subnetwork_named_twice", P, {"networkConfig.additionalNodeNetworkConfigs.8.subnetwork": "rdma-0"}, "more than"
    ),
    case("rdma_network_on_other_machine", P, {"nodeConfig.machineType": "e2-standard-8"}, "no RDMA interface"),
    case(
        "rdma_network_of_other_zone", P, {"nodeLocations": ["us-central1-a"]}, "network profile of zone us-central1-b"
    ),
    case("too_few_interfaces", P, {"networkConfig.additionalNodeNetworkConfigs": land.INTERFACES[:8]}, "9 in all"),
    case("too_few_interfaces", P, {"networkConfig.additionalNodeNetworkConfigs": land.INTERFACES[1:]}, "got 0 and 8"),
    case(
        "ranges_overlap",
        P,
        {"networkConfig.additionalNodeNetworkConfigs.0": {"network": "close", "subnetwork": "close"}},
        "overlaps with range 10.0.0.0/16",
        prepare=lambda state: (
            also(N, {"name": "close", "autoCreateSubnetworks": False})(state),
            also(S, {"name": "close", "network": "close", "region": land.REGION, "ipCidrRange": "10.0.9.0/24"})(state),
        )[0],
    ),
)
