"""The address plan over random base ranges and sizes: disjoint, inside, aligned, unmoved; or the size that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infra.addresses import BaseRangeError, EksAddresses, GkeAddresses, eks_addresses, gke_addresses
from infra.catalog.pins import RAY
from infra.plan import plan as plan_of
from infra.settings import parse
from tests.kubernetes.cloud_mocks import deployed
from tests.unit.stacks import EKS, GKE, changed, problems_of

MIRROR = "111122223333.dkr.ecr.us-east-1.amazonaws.com"

Plan = GkeAddresses | EksAddresses
Maker = Callable[[IPv4Network, int], GkeAddresses | EksAddresses]
MAKERS: dict[str, Maker] = {
    "gke": lambda base, nodes: gke_addresses(base, nodes, 8),
    "eks": eks_addresses,
}

clouds = st.sampled_from(["gke", "eks"])
node_counts = st.integers(min_value=1, max_value=1000)


@st.composite
def bases(draw: st.DrawFn) -> IPv4Network:
    """Any aligned range from a /8 to a /28."""
    prefix = draw(st.integers(min_value=8, max_value=28))
    number = draw(st.integers(min_value=0, max_value=2**prefix - 1))
    return IPv4Network((number << (32 - prefix), prefix))


def plan(cloud: str, base: IPv4Network, nodes: int) -> Plan:
    return MAKERS[cloud](base, nodes)


def suggested(error: BaseRangeError) -> IPv4Network | None:
    """The base range that the error proposes, or None if it says that none is large enough."""
    found = re.search(r"(\d+\.\d+\.\d+\.\d+/\d+)$", error.fix)
    return IPv4Network(found[1]) if found else None


def accepted(cloud: str, base: IPv4Network, nodes: int) -> tuple[IPv4Network, Plan]:
    """The plan in this base range, or in the one that the error proposes, and that range."""
    try:
        return base, plan(cloud, base, nodes)
    except BaseRangeError as error:
        better = suggested(error)
        assume(better)
        assert better is not None
        return accepted(cloud, better, nodes)


@given(clouds, bases(), node_counts)
def test_ranges_are_disjoint_inside_and_aligned(cloud: str, base: IPv4Network, nodes: int) -> None:
    base, made = accepted(cloud, base, nodes)
    ranges = [item.network for item in made.ranges()]
    assert len(ranges) == {"gke": 5 + 8, "eks": 1 + 2 + 2}[cloud]
    assert all(network.subnet_of(base) for network in ranges)
    for one, other in pairwise(ranges):
        assert int(one.broadcast_address) < int(other.network_address)
    assert made.max_gpu_nodes >= nodes
    assert all(item.room for item in made.ranges())
    if isinstance(made, GkeAddresses):
        assert made.services.prefixlen >= 16


@given(clouds, bases(), node_counts)
def test_more_nodes_move_nothing(cloud: str, base: IPv4Network, nodes: int) -> None:
    base, made = accepted(cloud, base, nodes)
    assert plan(cloud, base, 1) == made == plan(cloud, base, made.max_gpu_nodes)
    with pytest.raises(BaseRangeError):
        plan(cloud, base, made.max_gpu_nodes + 1)


@given(clouds, bases(), node_counts)
def test_too_small_names_the_smallest_that_works(cloud: str, base: IPv4Network, nodes: int) -> None:
    try:
        plan(cloud, base, nodes)
    except BaseRangeError as error:
        rejected = error
    else:
        assume(False)
    assert str(base) in rejected.message or "A VPC has at most" in rejected.message
    better = suggested(rejected)
    if better is None:
        assert cloud == "eks"
        assert nodes > 511
        return
    if better.subnet_of(base):
        # A VPC has a largest size; the proposal is a part, and it must be the largest part.
        assert cloud == "eks"
        assert better.prefixlen == 16
        return
    assert base.subnet_of(better)
    assert plan(cloud, better, nodes).max_gpu_nodes >= nodes
    one_smaller = next(better.subnets(prefixlen_diff=1))
    with pytest.raises(BaseRangeError):
        plan(cloud, one_smaller, nodes)


@pytest.mark.parametrize(
    ("nodes", "prefix"),
    # With 5 CPU nodes and a /24 of pods per node: 8, 16, 32, 64, 128, 256, 512 nodes are half of these ranges.
    [(1, 20), (3, 20), (4, 19), (11, 19), (12, 18), (27, 18), (59, 17), (123, 16), (251, 15), (507, 14), (508, 13)],
)
def test_the_smallest_gke_ranges_by_hand(nodes: int, prefix: int) -> None:
    gke_addresses(IPv4Network((10 << 24, prefix)), nodes, 8)
    with pytest.raises(BaseRangeError, match=r"too few"):
        gke_addresses(IPv4Network((10 << 24, prefix + 1)), nodes, 8)


@pytest.mark.parametrize(
    ("nodes", "prefix"),
    # 64 addresses per GPU node in half of the range, less the five that AWS keeps; never smaller than a /22.
    [(1, 22), (7, 22), (8, 21), (15, 21), (16, 20), (127, 18), (511, 16)],
)
def test_the_smallest_eks_ranges_by_hand(nodes: int, prefix: int) -> None:
    eks_addresses(IPv4Network((10 << 24, prefix)), nodes)
    with pytest.raises(BaseRangeError, match=r"too few"):
        eks_addresses(IPv4Network((10 << 24, prefix + 1)), nodes)


@given(bases(), node_counts)
def test_networks_that_gke_makes_take_nothing_and_move_nothing(base: IPv4Network, nodes: int) -> None:
    """With managed DRANET there are no ranges for NICs, and the others are where they were in earlier versions."""
    base, made = accepted("gke", base, nodes)
    assert isinstance(made, GkeAddresses)
    alone = gke_addresses(base, nodes, 0)
    assert [item.name for item in alone.ranges()] == ["pods", "nodes", "services", "control-plane"]
    assert [item for item in made.ranges() if not item.name.startswith(("gvnic", "rdma"))] == [*alone.ranges()]
    assert alone.max_gpu_nodes >= made.max_gpu_nodes


@pytest.mark.parametrize(
    ("stack", "changes"),
    [
        (GKE, {}),
        (GKE, {"fabric": "managed-dranet", "network.baseRange": "10.80.0.0/20"}),
        (EKS, {}),
        (EKS, {"access.egress": "endpoints", "access.imageMirror": MIRROR, "ray.image": f"{MIRROR}/ray:{RAY}"}),
    ],
    ids=["gke", "gke-managed-dranet", "eks", "eks-endpoints"],
)
def test_plan_has_exactly_the_ranges_that_are_made(stack: dict[str, Any], changes: dict[str, Any]) -> None:
    raw = changed(stack, changes)
    made = deployed(raw, stack="demo", config={"gcp:project": "mine", "aws:region": "us-east-1"})
    found = {one.inputs.get("ipCidrRange") or one.inputs.get("cidrBlock") for one in made if "ubnet" in one.type}
    found |= {each["ipCidrRange"] for one in made for each in one.inputs.get("secondaryIpRanges") or ()}
    found |= {one.inputs.get("privateClusterConfig", {}).get("masterIpv4CidrBlock") for one in made}
    assert {str(item.network) for item in plan_of(parse(raw)).ranges} == found - {None}


@pytest.mark.parametrize(("nodes", "accepts"), [(5, True), (6, False)])
def test_pools_with_a_quota_each_count_each(nodes: int, accepts: bool) -> None:
    """Kueue fills the reservation's pool and the queued one at the same time."""
    two = {"nodes.capacity": "reservation", "nodes.reservation": "ours", "nodes.fallback": "flex-start-queued"}
    raw = changed(GKE, {**two, "queue": "kueue", "nodes.max": nodes, "network.baseRange": "10.80.0.0/19"})
    assert (problems_of(raw) == ()) is accepts
