"""Networks, subnetworks, firewall rules, routers, NAT, resource policies: ids, outputs, references and rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any

from rehearsal.clouds.constraints import rule
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.drift import drift_subnetwork
from rehearsal.clouds.gcp.references import PROVIDER, TOOLKIT, network_of, project_of, region_of, tested
from rehearsal.engine.kind import Call, Json, ResourceKind
from rehearsal.engine.values import cidr, kept, last, number

AUTO_RANGE = IPv4Network("10.128.0.0/9")
_RDMA = f"{TOOLKIT}: examples/gke-a3-ultragpu"


def _nat_id(inputs: Json, config: Mapping[str, Any]) -> str:
    router = last(str(inputs["router"]))
    return f"{project_of(inputs, config)}/{region_of(inputs, config)}/{router}/{inputs['name']}"


def _place(call: Call) -> Json:
    """Return the project, region and self link."""
    region = {} if "/global/" in call.id else {"region": region_of(call.inputs, call.config)}
    return {"project": project_of(call.inputs, call.config), "selfLink": gcp.COMPUTE + call.id, **region}


def compute_network(call: Call) -> Json:
    """Return number and self link; an RDMA network has jumbo frames by default."""
    mtu = 8896 if gcp.roce_zone(call.inputs) else 1460
    defaults = {"mtu": mtu, "routingMode": "REGIONAL", "autoCreateSubnetworks": True}
    return {**_place(call), "numericId": number(call.id, 19), **kept(call, defaults)}


def compute_subnetwork(call: Call) -> Json:
    """Return the outputs; the gateway is the first address of the range."""
    network = cidr(call.inputs.get("ipCidrRange"))
    return {
        **_place(call),
        "gatewayAddress": str(network[1]) if network else "",
        "fingerprint": gcp.fingerprint(f"{call.id} {json.dumps(call.inputs, sort_keys=True)}"),
        **kept(call, {"purpose": "PRIVATE", "stackType": "IPV4_ONLY", "secondaryIpRanges": []}),
    }


@rule("create", refused="GoogleCloudPlatform/cloud-image-tests#537, 2026-06-16", accepted=_RDMA)
def network_profile_has_project(call: Call) -> str | None:
    """A network profile is given by its full path, including the project."""
    profile = call.inputs.get("networkProfile")
    if not profile or re.search(r"projects/[^/]+/global/networkProfiles/[^/]+$", str(profile)):
        return None
    return f"Invalid value for field 'resource.networkProfile': '{profile}'. The URL is malformed."


@rule(refused="terraform-google-modules/terraform-google-network#20, 2018-12-13", accepted=_RDMA)
def ranges_do_not_overlap(call: Call) -> str | None:
    """All ranges of all subnetworks of a network are disjoint."""
    mine = list(gcp.ranges_of(call.inputs).items())
    network = gcp.network_id(call.inputs.get("network"), call.inputs, call.config)
    others = {id_: list(gcp.ranges_of(live).values()) for id_, live in gcp.subnetworks_of(call.state, network)}
    for index, (field, own) in enumerate(mine):
        for id_, ranges in {**others, call.id: [earlier for _, earlier in mine[:index]]}.items():
            if any(own.overlaps(other) for other in ranges):
                return f"{field}: Invalid IPCidrRange: {own} conflicts with existing subnetwork '{last(id_)}'."
    return None


@rule(
    refused="cloudfoundry/bosh-google-cpi-release#238, 2017-11-06", accepted=tested("ComputeRouterNat_basic, auto mode")
)
def automatic_range_is_reserved(call: Call) -> str | None:
    """An auto mode network reserves 10.128.0.0/9 for its automatic subnetworks."""
    automatic = network_of(call).get("autoCreateSubnetworks") is True
    wrong = automatic and any(own.overlaps(AUTO_RANGE) for own in gcp.ranges_of(call.inputs).values())
    return f"Extended subnetworks in auto subnet mode networks cannot overlap with {AUTO_RANGE}" if wrong else None


@rule(
    refused=f"pulumi/pulumi-gcp#964, 2022-12-23; {PROVIDER}: resource_compute_firewall.go",
    accepted=tested("ComputeFirewall_egress"),
)
def ingress_has_source(call: Call) -> str | None:
    """An ingress rule has a source."""
    sources = ("sourceTags", "sourceRanges", "sourceServiceAccounts")
    wrong = call.inputs.get("direction") != "EGRESS" and not any(name in call.inputs for name in sources)
    return "one of source_tags, source_ranges, or source_service_accounts must be defined" if wrong else None


NETWORK = ResourceKind(
    type=gcp.NETWORK,
    identify=lambda inputs, config: gcp.network_id(inputs["name"], inputs, config),
    compute=compute_network,
    rules=(network_profile_has_project,),
)
SUBNETWORK = ResourceKind(
    type=gcp.SUBNETWORK,
    identify=lambda inputs, config: gcp.subnetwork_id(inputs["name"], inputs, config),
    compute=compute_subnetwork,
    # The provider replaces a subnetwork only if the new range does not contain the old one; changed ranges of an
    # address plan never do, so any change counts here.
    replace_on=frozenset({"ipCidrRange"}),
    references=(gcp.IN_NETWORK,),
    rules=(automatic_range_is_reserved, ranges_do_not_overlap),
    drift=drift_subnetwork,
)
FIREWALL = ResourceKind(
    type=gcp.FIREWALL,
    identify=lambda inputs, config: gcp.firewall_id(inputs["name"], inputs, config),
    compute=_place,
    references=(
        gcp.IN_NETWORK,
        gcp.reference("sourceServiceAccounts", gcp.ACCOUNT, gcp.account_id, holds=False),
        gcp.reference("targetServiceAccounts", gcp.ACCOUNT, gcp.account_id, holds=False),
    ),
    rules=(ingress_has_source,),
)
ROUTER = ResourceKind(
    type=gcp.ROUTER,
    identify=lambda inputs, config: gcp.router_id(inputs["name"], inputs, config),
    compute=_place,
    references=(gcp.IN_NETWORK,),
    # A NAT is a part of its router.
    cascade=lambda call, type_, live: type_ == gcp.NAT and gcp.router_id(live["router"], live, {}) == call.id,
)
RESOURCE_POLICY = ResourceKind(
    type=gcp.RESOURCE_POLICY,
    identify=lambda inputs, config: gcp.resource_policy_id(inputs["name"], inputs, config),
    compute=_place,
)
NAT = ResourceKind(
    type=gcp.NAT,
    identify=_nat_id,
    compute=lambda call: {key: value for key, value in _place(call).items() if key != "selfLink"},
    references=(
        gcp.reference("router", gcp.ROUTER, gcp.router_id, holds=False),
        gcp.reference("subnetworks.name", gcp.SUBNETWORK, gcp.subnetwork_id),
    ),
)
