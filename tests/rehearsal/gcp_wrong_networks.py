"""Names, networks, routers and identities that the simulated Google Cloud refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.rehearsal import gcp_supporting as land
from tests.rehearsal.gcp_wrong import (
    ACCOUNT,
    BUCKET,
    NAT,
    PROJECT,
    C,
    Case,
    F,
    N,
    P,
    R,
    S,
    also,
    case,
    gpu_pool,
    no_cluster,
    quota,
    router_on_rdma,
)
from tests.rehearsal.supporting import GONE


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
        yield case("deletion_prevented", kind, {}, said, verb="delete", prepare=also(kind, kept))


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
    case("network_quota", N, {}, "Quota 'NETWORKS' exceeded.  Limit: 3.0", prepare=quota({"NETWORKS": 3})),
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
    case("nat_on_roce_network", NAT, {"router": "odd"}, "not supported by the network profile", prepare=router_on_rdma),
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
        prepare=also(N, {"name": "auto", "autoCreateSubnetworks": True}),
    ),
    case("ranges_overlap_each_other", S, {"secondaryIpRanges.0.ipCidrRange": "10.60.0.0/16"}, "conflicts with"),
    case("ranges_overlap_others", S, {"ipCidrRange": "10.0.7.0/24"}, "conflicts with existing subnetwork 'main'"),
    case("ranges_overlap_others", S, {"ipCidrRange": "10.2.0.0/16"}, "in region 'us-central1'", verb="update"),
    case("range_overlaps_control_plane", S, {"ipCidrRange": "172.16.0.0/24"}, "reserved IP range '172.16.0.0/28'"),
    case("in_use_by_nodes", S, {"name": "main"}, "clusters/ray'", verb="delete"),
    case("in_use_by_nodes", S, {"name": "rdma-3"}, "nodePools/gpu'", verb="delete", prepare=gpu_pool),
    case(
        "in_use_by_nat",
        S,
        {},
        f"being used by '{land.PROJECT}/us-central1/out/narrow'",
        verb="delete",
        prepare=also(NAT, {**land.NAT, "name": "narrow", "subnetworks": [{"name": "fresh"}]}),
    ),
    # Members
    case("member_malformed", PROJECT, {"member": "me@example.com"}, "one of the known types"),
    case("member_malformed", BUCKET, {"member": "user"}, "one of the known types"),
    case("role_malformed", PROJECT, {"role": "logging.logWriter"}, "Role logging.logWriter is not supported"),
    case("role_malformed", BUCKET, {"role": "owner"}, "is not supported"),
    case("account_missing", PROJECT, {"member": f"serviceAccount:{land.ACCOUNT[1:]}"}, "does not exist"),
    case("account_missing", BUCKET, {"member": f"serviceAccount:{land.ACCOUNT[1:]}"}, "does not exist"),
    case(
        "identity_pool_missing",
        PROJECT,
        {"member": land.BUCKET_MEMBER["member"]},
        r"Identity Pool does not exist \(acme-ml.svc.id.goog\)",
        prepare=no_cluster,
    ),
    case("identity_pool_missing", BUCKET, {}, "Identity Pool does not exist", prepare=no_cluster),
    case(
        "identity_pool_missing",
        BUCKET,
        {"member": re.sub(r"projects/\d+", "projects/1", land.BUCKET_MEMBER["member"])},
        "Identity Pool does not exist",
    ),
    case("bucket_malformed", BUCKET, {"bucket": "My Data"}, "Invalid bucket name: 'My Data'"),
)
