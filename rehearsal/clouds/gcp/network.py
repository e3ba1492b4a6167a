"""Networks, subnetworks, firewall rules, routers and NAT: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.references import (
    COMPUTE,
    SINCE,
    cidr,
    fingerprint,
    last,
    network_id,
    project_of,
    region_of,
    roce_zone,
)
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import kept, number

# Replacement: ForceNew in services/compute/resource_compute_*.go of the provider (`refusals.PROVIDER_COMPUTE`).
NETWORK_REPLACES = frozenset(
    {"name", "project", "autoCreateSubnetworks", "description", "internalIpv6Range", "networkProfile", "params"}
)
# The provider replaces a subnetwork only if the new range does not contain the old one; changed ranges of an address
# plan never do, so any change counts here.
SUBNETWORK_REPLACES = frozenset(
    {
        *("name", "project", "network", "region", "description", "externalIpv6Prefix", "internalIpv6Prefix", "params"),
        *("reservedInternalRange", "resolveSubnetMask", "ipCidrRange"),
    }
)
FIREWALL_REPLACES = frozenset({"name", "project", "direction", "params"})
ROUTER_REPLACES = frozenset(
    {"name", "project", "network", "region", "encryptedInterconnectRouter", "nccGateway", "params"}
)
NAT_REPLACES = frozenset({"name", "project", "router", "region", "endpointTypes", "initialNatIps", "type"})


def identify_network(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/global/networks/N."""
    return f"projects/{project_of(inputs, config)}/global/networks/{inputs['name']}"


def identify_subnetwork(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/regions/R/subnetworks/N."""
    return f"projects/{project_of(inputs, config)}/regions/{region_of(inputs, config)}/subnetworks/{inputs['name']}"


def identify_firewall(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/global/firewalls/N."""
    return f"projects/{project_of(inputs, config)}/global/firewalls/{inputs['name']}"


def identify_router(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/regions/R/routers/N."""
    return f"projects/{project_of(inputs, config)}/regions/{region_of(inputs, config)}/routers/{inputs['name']}"


def identify_nat(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return P/R/ROUTER/N."""
    project, region = project_of(inputs, config), region_of(inputs, config)
    return f"{project}/{region}/{last(str(inputs['router']))}/{inputs['name']}"


def compute_network(call: Call) -> Json:
    """Return numbers and self link; an RDMA network has jumbo frames by default."""
    numeric = number(call.id, 19)
    return {
        "project": project_of(call.inputs, call.config),
        "selfLink": COMPUTE + call.id,
        "networkId": numeric,
        "numericId": numeric,
        "gatewayIpv4": "",
        **kept(
            call,
            {
                "mtu": 8896 if roce_zone(call.inputs) else 1460,
                "routingMode": "REGIONAL",
                "autoCreateSubnetworks": True,
                "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
                "bgpBestPathSelectionMode": "LEGACY",
            },
        ),
    }


def compute_subnetwork(call: Call) -> Json:
    """Return the outputs; the gateway is the first address of the range."""
    network = cidr(call.inputs.get("ipCidrRange"))
    return {
        "project": project_of(call.inputs, call.config),
        "region": region_of(call.inputs, call.config),
        "selfLink": COMPUTE + call.id,
        "gatewayAddress": str(network[1]) if network else "",
        "creationTimestamp": SINCE,
        "fingerprint": fingerprint(f"{call.id} {call.inputs}"),
        "subnetworkId": int(number(call.id, 15)),
        **kept(
            call,
            {
                "purpose": "PRIVATE",
                "stackType": "IPV4_ONLY",
                "privateIpGoogleAccess": False,
                "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",
                "secondaryIpRanges": [],
                "state": "",
            },
        ),
    }


def compute_firewall(call: Call) -> Json:
    """Return the self link and defaults of the API."""
    return {
        "project": project_of(call.inputs, call.config),
        "selfLink": COMPUTE + call.id,
        "creationTimestamp": SINCE,
        **kept(call, {"direction": "INGRESS", "priority": 1000, "destinationRanges": [], "enableLogging": False}),
    }


def compute_router(call: Call) -> Json:
    """Return the self link."""
    return {
        "project": project_of(call.inputs, call.config),
        "region": region_of(call.inputs, call.config),
        "selfLink": COMPUTE + call.id,
        "creationTimestamp": SINCE,
    }


def compute_nat(call: Call) -> Json:
    """Return defaults of the API."""
    return {
        "project": project_of(call.inputs, call.config),
        "region": region_of(call.inputs, call.config),
        **kept(
            call,
            {
                "type": "PUBLIC",
                "endpointTypes": ["ENDPOINT_TYPE_VM"],
                "enableDynamicPortAllocation": False,
                "enableEndpointIndependentMapping": False,
                "minPortsPerVm": 0,
                "icmpIdleTimeoutSec": 30,
                "udpIdleTimeoutSec": 30,
                "tcpEstablishedIdleTimeoutSec": 1200,
                "tcpTransitoryIdleTimeoutSec": 30,
                "tcpTimeWaitTimeoutSec": 120,
            },
        ),
    }


def router_of(live: Mapping[str, Any]) -> str:
    """Return the id of a live NAT's router."""
    return f"projects/{live['project']}/regions/{live['region']}/routers/{last(str(live['router']))}"


def network_of_live(live: Mapping[str, Any]) -> str:
    """Return the network id of a live subnetwork, firewall rule, router or cluster."""
    return network_id(str(live.get("network") or "default"), str(live["project"]))
