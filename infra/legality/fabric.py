"""Rules about the place and the fabric: location, RDMA, addresses."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from infra.addresses import BaseRangeError, eks_addresses, gke_addresses
from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

ROCE = "Google Cloud docs rdma-network-profiles, read 2026-08: an RDMA network belongs to one zone"
EFA = "EC2 docs, Elastic Fabric Adapter: EFA traffic does not leave its availability zone, read 2026-08"
DRANET_EKS = "aws/eks-charts: aws-dranet 1.0.0, 5239609, 2026-08-03; inferred from the Cluster Autoscaler"
PRIVATE = "RFC 1918 and RFC 6598"

FABRICS = {"gke": ("multi-network", "dranet", "managed-dranet"), "eks": ("efa", "efa-dranet")}
ZONE = {
    "gke": r"[a-z]+-[a-z]+\d+-[a-z]",
    "eks": r"[a-z]{2}(-[a-z]+)+-\d+(-[a-z]{3}-\d)?[a-z]|[a-z]{3,5}\d(-[a-z]{3}\d)?-az\d",
}
REGION = {"gke": r"[a-z]+-[a-z]+\d+", "eks": r"[a-z]{2}(-[a-z]+)+-\d+"}
EXAMPLE = {"gke": "us-central1-b", "eks": "us-east-1a, or its id such as use1-az1"}
PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))


def location_is_a_zone(s: Settings) -> Problem | None:
    """RDMA does not leave a zone, so the location is one."""
    if s.target == "local" or s.location is None or re.fullmatch(ZONE[s.target], s.location):
        return None
    if re.fullmatch(REGION[s.target], s.location):
        letter = "-b" if s.target == "gke" else "a"
        says = (
            f"{s.location} is a region. RDMA does not leave a zone, so nodes in two zones could not reach each other."
        )
        fix = f"name one zone of it that has the machine, such as {s.location}{letter}"
    else:
        says = f"{s.location} is not the name of a zone on {s.target}; nothing could be made there."
        fix = f"write a zone such as {EXAMPLE[s.target]}"
    return Problem(settings=("location",), says=says, fix=fix, source=ROCE if s.target == "gke" else EFA)


def fabric_of_other_cloud(s: Settings) -> Problem | None:
    """The fabric belongs to the other cloud."""
    if s.target == "local" or s.fabric is None or s.fabric in FABRICS[s.target]:
        return None
    return Problem(
        settings=("fabric", "target"),
        says=f"{s.target} has no fabric called {s.fabric}; pods would get no RDMA NIC.",
        fix=f"set fabric to one of {', '.join(FABRICS[s.target])}",
        source=OUR_CONTRACT,
    )


def efa_dranet_cannot_wake(s: Settings) -> Problem | None:
    """An EFA pool with claims does not scale up from nothing."""
    if s.target != "eks" or s.fabric != "efa-dranet" or s.nodes.min > 0:
        return None
    block = s.nodes.capacity == "capacity-block"
    return Problem(
        settings=("fabric", "nodes.min", *(("nodes.capacity",) if block else ())),
        says="The autoscaler learns which devices a node offers from a node that runs; from 0 nodes it sees none that "
        "could serve a claim, and never adds one.",
        fix="set fabric to efa" if block else "set nodes.min to 1, or fabric to efa",
        source=DRANET_EKS,
    )


def base_range_is_private(s: Settings) -> Problem | None:
    """The networks of a stack do not take other people's addresses."""
    if s.target == "local" or s.network.base_range is None:
        return None
    base = IPv4Network(s.network.base_range)
    if any(base.subnet_of(private) for private in PRIVATE_RANGES):
        return None
    return Problem(
        settings=("network.baseRange",),
        says=f"{base} is not inside a private range; machines on the Internet with "
        "these addresses could not be reached.",
        fix=f"take a part of {', '.join(map(str, PRIVATE_RANGES))}",
        source=PRIVATE,
    )


def base_range_holds_the_nodes(s: Settings) -> Problem | None:
    """Every node, pod and NIC finds an address."""
    if s.target == "local" or s.network.base_range is None:
        return None
    plan = gke_addresses if s.target == "gke" else eks_addresses
    try:
        plan(IPv4Network(s.network.base_range), s.nodes.max)
    except BaseRangeError as error:
        return error.problem
    return None


RULES: tuple[Rule, ...] = (
    location_is_a_zone,
    fabric_of_other_cloud,
    efa_dranet_cannot_wake,
    base_range_is_private,
    base_range_holds_the_nodes,
)
