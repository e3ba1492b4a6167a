"""Every refusal of the simulated Google Cloud: it falls on one wrong request, and not on the right one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.gcp import tokens
from rehearsal.clouds.gcp.cloud import CLOUD
from rehearsal.clouds.kind import Refusal, Rule, Verb
from rehearsal.clouds.world import View, World
from tests.rehearsal import gcp_landscape as land
from tests.rehearsal.gcp_landscape import GONE

N, S, F, R, NAT = tokens.NETWORK, tokens.SUBNETWORK, tokens.FIREWALL, tokens.ROUTER, tokens.NAT
ACCOUNT, PROJECT, BUCKET = tokens.ACCOUNT, tokens.PROJECT_MEMBER, tokens.BUCKET_MEMBER
C, P = tokens.CLUSTER, tokens.NODE_POOL

QUEUED: dict[str, Any] = {"queuedProvisioning": {"enabled": True}}
PLAIN: dict[str, Any] = {
    "nodeConfig.flexStart": GONE,
    "nodeConfig.maxRunDuration": GONE,
    "management": {"autoRepair": True, "autoUpgrade": True},
}
"""What turns the right pool, a flex-start one, into an ordinary one."""
COMPACT: dict[str, Any] = {"placementPolicy": {"type": "COMPACT"}}
AUTO: dict[str, Any] = {"networkConfig": {"acceleratorNetworkProfile": "auto"}}
NO_NETWORKS: dict[str, Any] = {"networkConfig": GONE}
RESERVED: dict[str, Any] = {
    "nodeConfig.reservationAffinity": {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["block-1"],
    }
}


def _nothing(_world: View) -> None:
    """The landscape is enough."""


def _quota(limits: Mapping[str, int]) -> Callable[[View], None]:
    return lambda world: world.set("quota", dict(limits))


def _cluster(changes: Mapping[str, Any]) -> Callable[[View], None]:
    """The pools' cluster is another one."""

    def prepare(world: View) -> None:
        live = world.get(C, land.CLUSTER_ID)
        assert live is not None
        world.put(C, land.CLUSTER_ID, land.changed(live, changes))

    return prepare


def _also(type_: str, inputs: dict[str, Any]) -> Callable[[View], None]:
    def prepare(world: View) -> None:
        land.make(world, type_, inputs)

    return prepare


def _router_on_rdma(world: View) -> None:
    land.make(world, R, {"name": "odd", "network": land.RDMA, "region": land.REGION})


def _no_cluster(world: View) -> None:
    world.remove(C, land.CLUSTER_ID)


def _gpu_pool(world: View) -> None:
    land.make(world, P, {**land.POOL, "name": "gpu"})


@dataclass(frozen=True, kw_only=True)
class Case:
    """`changes` make the right request of a kind wrong, in a world that `prepare` has touched; `says` is a pattern."""

    rule: str
    kind: str
    changes: Mapping[str, Any]
    says: str
    verb: Verb = "create"
    prepare: Callable[[View], None] = _nothing
    right: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=lambda: land.CONFIG)

    @property
    def name(self) -> str:
        """For pytest."""
        return f"{self.kind.rpartition(':')[2]}-{self.rule}"


def case(rule: str, kind: str, changes: Mapping[str, Any], says: str, **more: Any) -> Case:
    """A case, short to write."""
    return Case(rule=rule, kind=kind, changes=changes, says=says, **more)


def _every_project() -> Iterator[Case]:
    for kind in (N, S, F, R, NAT, ACCOUNT, PROJECT, C, P):
        config = {"region": land.REGION}
        yield case("project_missing", kind, {"project": GONE}, "project: required field is not set", config=config)
    for kind in (S, R, NAT):
        yield case(
            "region_missing", kind, {"region": GONE}, "Cannot determine region", config={"project": land.PROJECT}
        )
    for kind in (C, P):
        config = {"project": land.PROJECT}
        yield case("location_missing", kind, {"location": GONE}, "Cannot determine location", config=config)


def _every_prevention() -> Iterator[Case]:
    for kind in (N, S, F, R, NAT, C, P):
        kept = {**land.RIGHT[kind], "deletionPolicy": "PREVENT"}
        said = 'cannot destroy .* without setting deletion_policy="DELETE"'
        yield case("deletion_prevented", kind, {}, said, verb="delete", prepare=_also(kind, kept))


CASES = (
    *_every_project(),
    *_every_prevention(),
    # Names
    case("network_name", N, {"name": "Fresh"}, "Must be a match of regex"),
    case("subnetwork_name", S, {"name": "a" * 64}, "Must be a match of regex"),
    case("firewall_name", F, {"name": "-a"}, "Must be a match of regex"),
    case("router_name", R, {"name": "a-"}, "Must be a match of regex"),
    case("nat_name", NAT, {"name": "1a"}, "Must be a match of regex"),
    case("cluster_name", C, {"name": "a" * 41}, "cannot be longer than 40 characters"),
    case("cluster_name", C, {"name": "a_b"}, "can only contain lowercase"),
    case("pool_name", P, {"name": "a" * 41}, "cannot be longer than 40 characters"),
    case("account_id", ACCOUNT, {"accountId": "short"}, "6-30 characters"),
    case("account_id", ACCOUNT, {"accountId": "a" * 31}, "6-30 characters"),
    # Networks
    case("mtu_out_of_range", N, {"mtu": 9000}, "at most 8896"),
    case("mtu_out_of_range", N, {"mtu": 1299}, "at most 8896", verb="update"),
    case(
        "profile_malformed", N, {"networkProfile": f"global/networkProfiles/{land.ZONE}-vpc-roce"}, "URL is malformed"
    ),
    case("profile_unknown", N, {"networkProfile": land.PROFILE.replace("-b-", "-f-")}, "was not found"),
    case("roce_network_in_auto_mode", N, {"autoCreateSubnetworks": GONE}, "Auto subnet mode"),
    case("network_quota", N, {}, "Quota 'NETWORKS' exceeded.  Limit: 3.0", prepare=_quota({"NETWORKS": 3})),
    case("network_in_use", N, {"name": "rdma"}, "already being used by .*rdma-0", verb="delete"),
    # Firewall rules, routers, NAT
    case("firewall_without_source", F, {"sourceRanges": GONE}, "source_ranges, or source_service_accounts"),
    case("firewall_without_action", F, {"denies": [{"protocol": "all"}]}, "only one of `allow,deny`"),
    case("firewall_without_action", F, {"allows": GONE}, "must be specified"),
    case("firewall_range_invalid", F, {"sourceRanges": ["10.0.0.1/8"]}, "valid CIDR"),
    case("firewall_network_missing", F, {"network": "nowhere"}, "networks/nowhere' was not found"),
    case("firewall_on_roce_network", F, {"network": land.RDMA}, "not supported by the network profile"),
    case("router_network_missing", R, {"network": "nowhere"}, "was not found"),
    case("router_on_roce_network", R, {"network": land.RDMA}, "not supported by the network profile"),
    case("nat_router_missing", NAT, {"router": "nowhere"}, "routers/nowhere' was not found"),
    case(
        "nat_on_roce_network", NAT, {"router": "odd"}, "not supported by the network profile", prepare=_router_on_rdma
    ),
    case("nat_addresses_missing", NAT, {"natIpAllocateOption": "MANUAL_ONLY"}, "NAT IPs must be given"),
    # Subnetworks
    case("network_missing", S, {"network": "nowhere"}, "was not found"),
    case("region_of_roce_network", S, {"network": land.RDMA, "region": "us-east4"}, "region of zone us-central1-b"),
    case("range_malformed", S, {"ipCidrRange": "10.60.0.1/24"}, "10.60.0.1/24'. Must be a CIDR"),
    case("range_malformed", S, {"secondaryIpRanges.0.ipCidrRange": "many"}, r"secondaryIpRanges\[0\]"),
    case("range_too_small", S, {"ipCidrRange": "10.60.0.0/30"}, "/29 or larger"),
    case("range_forbidden", S, {"ipCidrRange": "169.254.0.0/24"}, "prohibited range"),
    case(
        "secondary_range_named_twice",
        S,
        {"secondaryIpRanges": [{"rangeName": "a", "ipCidrRange": f"10.6{n}.0.0/24"} for n in (1, 2)]},
        "must be unique",
    ),
    case(
        "range_of_auto_network",
        S,
        {"network": "auto", "ipCidrRange": "10.150.0.0/16"},
        "cannot overlap with 10.128.0.0/9",
        prepare=_also(N, {"name": "auto", "autoCreateSubnetworks": True}),
    ),
    case("ranges_overlap_each_other", S, {"secondaryIpRanges.0.ipCidrRange": "10.60.0.0/16"}, "conflicts with"),
    case("ranges_overlap_others", S, {"ipCidrRange": "10.0.7.0/24"}, "conflicts with existing subnetwork 'main'"),
    case("ranges_overlap_others", S, {"ipCidrRange": "10.2.0.0/16"}, "in region 'us-central1'", verb="update"),
    case("range_overlaps_control_plane", S, {"ipCidrRange": "172.16.0.0/24"}, "reserved IP range '172.16.0.0/28'"),
    case("in_use_by_nodes", S, {"name": "main"}, "clusters/ray'", verb="delete"),
    case("in_use_by_nodes", S, {"name": "rdma-3"}, "nodePools/gpu'", verb="delete", prepare=_gpu_pool),
    case(
        "in_use_by_nat",
        S,
        {},
        f"being used by '{land.PROJECT}/us-central1/out/narrow'",
        verb="delete",
        prepare=_also(NAT, {**land.NAT, "name": "narrow", "subnetworks": [{"name": "fresh"}]}),
    ),
    # Members
    case("member_malformed", PROJECT, {"member": "me@example.com"}, "one of the known types"),
    case("member_malformed", BUCKET, {"member": "somebody"}, "one of the known types"),
    case("role_malformed", PROJECT, {"role": "logging.logWriter"}, "Role logging.logWriter is not supported"),
    case("role_malformed", BUCKET, {"role": "owner"}, "is not supported"),
    case("account_missing", PROJECT, {"member": f"serviceAccount:{land.ACCOUNT[1:]}"}, "does not exist"),
    case("account_missing", BUCKET, {"member": f"serviceAccount:{land.ACCOUNT[1:]}"}, "does not exist"),
    case(
        "identity_pool_missing",
        PROJECT,
        {"member": land.BUCKET_MEMBER["member"]},
        r"Identity Pool does not exist \(acme-ml.svc.id.goog\)",
        prepare=_no_cluster,
    ),
    case("identity_pool_missing", BUCKET, {}, "Identity Pool does not exist", prepare=_no_cluster),
    case(
        "identity_pool_missing",
        BUCKET,
        {"member": re.sub(r"projects/\d+", "projects/1", land.BUCKET_MEMBER["member"])},
        "Identity Pool does not exist",
    ),
    case("bucket_malformed", BUCKET, {"bucket": "My Data"}, "Invalid bucket name: 'My Data'"),
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
        prepare=_cluster({"deletionProtection": True}),
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
        prepare=_quota({"PREEMPTIBLE_NVIDIA_H200_GPUS": 8}),
    ),
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
    case("flex_on_old_version", P, {}, "1.32.2-gke.1652000", prepare=_cluster({"masterVersion": "1.32.2-gke.1000000"})),
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
        "reservation_named_in_vain",
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
    case("version_too_old", P, {}, "1.31.4-gke.1183000 or later", prepare=_cluster({"masterVersion": "1.30.1-gke.1"})),
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
        prepare=_cluster({"masterVersion": "1.33.8-gke.1112000"}),
    ),
    case(
        "profile_in_several_zones",
        P,
        {**AUTO, "nodeLocations": [land.ZONE, "us-central1-a"]},
        "single zone",
        right=AUTO,
    ),
    case("profile_without_dataplane_v2", P, AUTO, "ADVANCED_DATAPATH", prepare=_cluster({"datapathProvider": ""})),
    case("multi_networking_off", P, {}, "multi-networking enabled", prepare=_cluster({"enableMultiNetworking": False})),
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
        prepare=lambda world: (
            _also(N, {"name": "close", "autoCreateSubnetworks": False})(world),
            _also(S, {"name": "close", "network": "close", "region": land.REGION, "ipCidrRange": "10.0.9.0/24"})(world),
        )[0],
    ),
)


def _all_rules() -> set[tuple[str, str]]:
    return {(kind.type, _name(rule)) for kind in CLOUD.kinds.values() for rule in kind.rules}


def _name(rule: Rule) -> str:
    return str(getattr(rule, "__name__", ""))


def _rule(case: Case) -> Rule:
    (found,) = (rule for rule in CLOUD.kinds[case.kind].rules if _name(rule) == case.rule)
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[View]:
    with World(tmp_path / "world.sqlite").transaction() as view:
        land.landscape(view)
        yield view


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rule_refuses_the_wrong_request_and_only_that(case: Case, world: View) -> None:
    right = land.changed(land.RIGHT[case.kind], case.right)
    assert _rule(case)(land.call(world, case.kind, right, case.verb)) is None
    case.prepare(world)
    wrong = land.changed(land.RIGHT[case.kind], case.changes)
    refusal = _rule(case)(land.call(world, case.kind, wrong, case.verb, case.config))
    assert isinstance(refusal, Refusal), "the rule is silent"
    assert re.search(case.says, refusal.message), refusal.message
    assert re.match(r"\d{3} \w+$", refusal.status)
    # A source that nobody can look up is none: it names a revision, or the day on which it was read.
    assert re.search(r"20\d\d-\d\d|[0-9a-f]{8}", refusal.source), refusal.source


@pytest.mark.parametrize("kind", CLOUD.kinds)
def test_the_right_request_passes_every_rule(kind: str, world: View) -> None:
    assert land.refusals(land.call(world, kind, land.RIGHT[kind])) == []


@pytest.mark.parametrize(
    "changes",
    [QUEUED, PLAIN, {**PLAIN, "nodeConfig.spot": True, "initialNodeCount": 1}, {**PLAIN, **RESERVED}, AUTO],
    ids=["queued", "on-demand", "spot", "reservation", "managed networks"],
)
def test_every_way_to_get_machines_passes(changes: Mapping[str, Any], world: View) -> None:
    assert land.refusals(land.call(world, P, land.changed(land.POOL, changes))) == []


def test_every_rule_of_every_kind_has_a_case() -> None:
    assert {(case.kind, case.rule) for case in CASES} == _all_rules()


def test_every_rule_says_in_one_line_what_holds() -> None:
    for kind in CLOUD.kinds.values():
        for rule in kind.rules:
            assert re.fullmatch(r"[A-Z][^\n]+\.", rule.__doc__ or ""), _name(rule)


def test_an_empty_landscape_can_be_taken_down_in_order(world: View) -> None:
    order = (
        tokens.NODE_POOL,
        tokens.CLUSTER,
        tokens.NAT,
        tokens.ROUTER,
        tokens.FIREWALL,
        tokens.SUBNETWORK,
        N,
        ACCOUNT,
    )
    for type_ in order:
        for _, id_, live in list(world.all(type_)):
            request = land.call(world, type_, live, "delete")
            assert (request.id, land.refusals(request)) == (id_, [])
            world.remove(type_, id_)
    assert list(world.all()) == []
