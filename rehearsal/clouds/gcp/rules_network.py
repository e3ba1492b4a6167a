"""Rules of networks, and of firewall rules, routers and NAT in them."""

from __future__ import annotations

import re

from rehearsal.clouds.gcp.network import network_of_live, router_of
from rehearsal.clouds.gcp.offerings import has_profile, quota
from rehearsal.clouds.gcp.references import (
    ROCE,
    cidr,
    find_network,
    last,
    network_of,
    project_of,
    region_of,
    roce_zone,
    subnetworks_of,
)
from rehearsal.clouds.gcp.refusals import (
    IMAGE_TESTS,
    IN_USE,
    NO_NETWORK,
    PROVIDER_COMPUTE,
    RDMA_PROFILE,
    TOOLKIT_RDMA,
    UNVERIFIED,
    VPC,
    bad,
    invalid,
)
from rehearsal.clouds.gcp.tokens import CLUSTER, FIREWALL, NETWORK, ROUTER
from rehearsal.clouds.kind import Call, Refusal, on

SMALLEST_MTU, LARGEST_MTU = 1300, 8896
_FULL = re.compile(r"projects/[^/]+/global/networkProfiles/[^/]+$")


@on("create", "update")
def mtu_out_of_range(call: Call) -> Refusal | None:
    """The MTU of a network is 1300 to 8896 bytes."""
    mtu = call.inputs.get("mtu")
    if mtu is None or int(mtu) == 0 or SMALLEST_MTU <= int(mtu) <= LARGEST_MTU:
        return None
    return invalid(
        "resource.mtu", mtu, f"Must be greater than or equal to {SMALLEST_MTU} and at most {LARGEST_MTU}", VPC
    )


@on("create")
def profile_malformed(call: Call) -> Refusal | None:
    """A network profile is given by its full path, including the project."""
    profile = call.inputs.get("networkProfile")
    if not profile or _FULL.search(str(profile)):
        return None
    return invalid("resource.networkProfile", profile, "The URL is malformed.", IMAGE_TESTS)


@on("create")
def profile_unknown(call: Call) -> Refusal | None:
    """Only zones with RDMA machines have an RDMA profile."""
    profile = str(call.inputs.get("networkProfile") or "")
    found = ROCE.search(profile)
    if not _FULL.search(profile) or (found and has_profile(found["zone"])):
        return None
    path = profile[profile.index("projects/") :]
    return Refusal("404 notFound", f"The resource '{path}' was not found", f"{RDMA_PROFILE}; wording {UNVERIFIED}")


@on("create")
def roce_network_in_auto_mode(call: Call) -> Refusal | None:
    """An RDMA network has no automatic subnetworks; the provider requests them by default."""
    if roce_zone(call.inputs) is None or call.inputs.get("autoCreateSubnetworks") is False:
        return None
    return invalid(
        "resource.autoCreateSubnetworks",
        "true",
        "Auto subnet mode is not supported by the network profile of this network.",
        f"{RDMA_PROFILE}; wording {UNVERIFIED}",
    )


@on("create")
def network_quota(call: Call) -> Refusal | None:
    """The number of networks in a project is limited."""
    project = project_of(call.inputs, call.config)
    here = sum(1 for _, _, live in call.state.all(NETWORK) if live["project"] == project)
    limit = quota(call.state, "NETWORKS")
    if here < limit:
        return None
    return Refusal(
        "403 quotaExceeded",
        f"Quota 'NETWORKS' exceeded.  Limit: {limit}.0 globally.",
        f"Google Cloud VPC docs; {UNVERIFIED}",
    )


@on("delete")
def network_in_use(call: Call) -> Refusal | None:
    """A network is deleted after its subnetworks, firewall rules, routers and clusters."""
    for id_, _ in subnetworks_of(call.state, call.id):
        return _in_use("network", call.id, id_)
    for type_ in (FIREWALL, ROUTER, CLUSTER):
        for _, id_, live in call.state.all(type_):
            if network_of_live(live) == call.id:
                return _in_use("network", call.id, id_)
    return None


def _in_use(what: str, id_: str, user: str) -> Refusal:
    return Refusal(
        "400 resourceInUseByAnotherResource", f"The {what} resource '{id_}' is already being used by '{user}'", IN_USE
    )


@on("create")
def firewall_network_missing(call: Call) -> Refusal | None:
    """The network of a firewall rule exists."""
    return _network_missing(call)


@on("create")
def router_network_missing(call: Call) -> Refusal | None:
    """The network of a router exists."""
    return _network_missing(call)


def _network_missing(call: Call) -> Refusal | None:
    id_, network = network_of(call)
    if network is not None:
        return None
    return Refusal("404 notFound", f"The resource '{id_}' was not found", f"Compute Engine API, 404; {NO_NETWORK}")


@on("create", "update")
def firewall_on_roce_network(call: Call) -> Refusal | None:
    """An RDMA network allows all traffic between its NICs, and supports no firewall rules."""
    id_, network = network_of(call)
    if roce_zone(network) is None:
        return None
    return invalid(
        "resource.network",
        id_,
        "Firewall rules are not supported by the network profile of this network.",
        f"{RDMA_PROFILE}; {TOOLKIT_RDMA}; wording {UNVERIFIED}",
    )


@on("create")
def router_on_roce_network(call: Call) -> Refusal | None:
    """An RDMA network has no egress, so it supports no router."""
    id_, network = network_of(call)
    if roce_zone(network) is None:
        return None
    return invalid(
        "resource.network",
        id_,
        "Cloud Router is not supported by the network profile of this network.",
        f"{RDMA_PROFILE}; wording {UNVERIFIED}",
    )


@on("create", "update")
def firewall_without_source(call: Call) -> Refusal | None:
    """An ingress rule has a source."""
    sources = ("sourceTags", "sourceRanges", "sourceServiceAccounts")
    if call.inputs.get("direction") == "EGRESS" or any(name in call.inputs for name in sources):
        return None
    return bad(
        "one of source_tags, source_ranges, or source_service_accounts must be defined",
        f"{PROVIDER_COMPUTE}/resource_compute_firewall.go",
    )


@on("create", "update")
def firewall_range_invalid(call: Call) -> Refusal | None:
    """Sources and destinations are ranges or addresses."""
    for field in ("sourceRanges", "destinationRanges"):
        for text in call.inputs.get(field) or []:
            # A rule may have IPv6 ranges, which the simulation does not parse.
            if ":" not in str(text) and cidr(text if "/" in str(text) else f"{text}/32") is None:
                return invalid(f"resource.{field}[0]", text, "Must be a valid CIDR address range.", VPC)
    return None


@on("create", "update")
def firewall_without_action(call: Call) -> Refusal | None:
    """A rule has either allow or deny."""
    if bool(call.inputs.get("allows")) != bool(call.inputs.get("denies")):
        return None
    both = bool(call.inputs.get("allows"))
    return bad(
        "only one of `allow,deny` can be specified, but `allow,deny` were specified."
        if both
        else "one of `allow,deny` must be specified",
        f"{PROVIDER_COMPUTE}/resource_compute_firewall.go: ExactlyOneOf; wording {UNVERIFIED}",
    )


@on("create")
def nat_router_missing(call: Call) -> Refusal | None:
    """The router of a NAT exists."""
    place = {"project": project_of(call.inputs, call.config), "region": region_of(call.inputs, call.config)}
    id_ = router_of({**place, "router": call.inputs["router"]})
    if call.state.get(ROUTER, id_) is not None:
        return None
    return Refusal("404 notFound", f"The resource '{id_}' was not found", f"Compute Engine API, 404; {UNVERIFIED}")


@on("create")
def nat_on_roce_network(call: Call) -> Refusal | None:
    """The router of a NAT is not in an RDMA network."""
    place = {"project": project_of(call.inputs, call.config), "region": region_of(call.inputs, call.config)}
    router = call.state.get(ROUTER, router_of({**place, "router": call.inputs["router"]}))
    network = find_network(call.state, network_of_live(router)) if router else None
    if roce_zone(network) is None:
        return None
    return invalid(
        "resource.nats[0]",
        last(call.id),
        "Cloud NAT is not supported by the network profile of this network.",
        f"{RDMA_PROFILE}; wording {UNVERIFIED}",
    )


@on("create", "update")
def nat_addresses_missing(call: Call) -> Refusal | None:
    """NAT with manual addresses lists them; with automatic ones it lists none."""
    manual, named = call.inputs.get("natIpAllocateOption") == "MANUAL_ONLY", bool(call.inputs.get("natIps"))
    if manual == named or call.inputs.get("initialNatIps") or call.inputs.get("type") == "PRIVATE":
        return None
    return invalid(
        "resource.nats[0].natIps",
        call.inputs.get("natIps") or "",
        "NAT IPs must be given with MANUAL_ONLY, and must not be given with AUTO_ONLY.",
        f"Cloud NAT docs, addresses; wording {UNVERIFIED}",
    )
