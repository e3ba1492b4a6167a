"""Ids, self links and bare names of Google Cloud resources, all read as ids; computed values that kinds share."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from rehearsal.clouds.gcp.tokens import CLUSTER, NETWORK, NODE_POOL, SUBNETWORK
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.state import View
from rehearsal.clouds.values import number

SINCE = "2026-11-02T08:00:00.000-07:00"
"""Creation time of every resource: fixed, so that two rehearsals agree."""
COMPUTE = "https://www.googleapis.com/compute/v1/"
CONTAINER = "https://container.googleapis.com/v1/"


def fingerprint(text: str) -> str:
    """Return an etag or fingerprint."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def project_number(project: str) -> str:
    """Return the number of a project."""
    return number(project, 12)


ROCE = re.compile(r"/networkProfiles/(?P<zone>[a-z0-9-]+?)-vpc-roce(-metal)?$")
ZONE = re.compile(r"[a-z]+-[a-z]+\d+-([a-z]|ai\d+[a-z])")

DEFAULT_NETWORK: Json = {"name": "default", "autoCreateSubnetworks": True, "mtu": 1460}
"""Default network of every project (Google Cloud VPC docs, default network; unverified, 2026-11)."""


def last(reference: str) -> str:
    """Return the last part of a path: the name."""
    return reference.rstrip("/").rsplit("/", 1)[-1]


def project_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the project of a resource: its own, else the provider's, else ""."""
    return str(inputs.get("project") or config.get("project") or "").removeprefix("projects/")


def region_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the region of a regional resource: its own, else the provider's, else ""."""
    return last(str(inputs.get("region") or config.get("region") or region_of_location(str(config.get("zone") or ""))))


def location_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the zone or region of a cluster or node pool: its own, or the provider's zone or region, else ""."""
    return str(inputs.get("location") or config.get("zone") or config.get("region") or "")


def is_zone(location: str) -> bool:
    """Return whether a location is a zone; otherwise it is a region."""
    return ZONE.fullmatch(location) is not None


def region_of_location(location: str) -> str:
    """Return the region of a zone or of a region."""
    return location.rsplit("-", 1)[0] if is_zone(location) else location


def network_id(reference: str, project: str) -> str:
    """Return a network's id from its id, self link or name."""
    path = re.search(r"projects/[^/]+/global/networks/[^/]+$", reference)
    return path[0] if path else f"projects/{project}/global/networks/{last(reference)}"


def subnetwork_id(reference: str, project: str, region: str) -> str:
    """Return a subnetwork's id from its id, self link or name."""
    path = re.search(r"projects/[^/]+/regions/[^/]+/subnetworks/[^/]+$", reference)
    return path[0] if path else f"projects/{project}/regions/{region}/subnetworks/{last(reference)}"


def cluster_id(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return a cluster's id from its inputs or live value."""
    return f"projects/{project_of(inputs, config)}/locations/{location_of(inputs, config)}/clusters/{inputs['name']}"


def cluster_of_pool(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the cluster id of a node pool, from the pool's inputs or live value."""
    reference = str(inputs.get("cluster", ""))
    path = re.search(r"projects/[^/]+/locations/[^/]+/clusters/[^/]+$", reference)
    if path:
        return path[0]
    return f"projects/{project_of(inputs, config)}/locations/{location_of(inputs, config)}/clusters/{reference}"


def find_network(state: View, id_: str) -> Json | None:
    """Return a live network, or the default one."""
    return state.get(NETWORK, id_) or (DEFAULT_NETWORK if last(id_) == "default" else None)


def network_of(call: Call) -> tuple[str, Json | None]:
    """Return the network in a call's `network`, as (id, live value or None)."""
    id_ = network_id(str(call.inputs.get("network") or "default"), project_of(call.inputs, call.config))
    return id_, find_network(call.state, id_)


def roce_zone(network: Mapping[str, Any] | None) -> str | None:
    """Return the zone of an RDMA network's profile; None for other networks."""
    found = ROCE.search(str((network or {}).get("networkProfile") or ""))
    return found["zone"] if found else None


def subnetworks_of(state: View, network: str) -> Iterator[tuple[str, Json]]:
    """Return the live subnetworks of a network (by id), as (id, live value)."""
    for _, id_, live in state.all(SUBNETWORK):
        if network_id(str(live["network"]), str(live["project"])) == network:
            yield id_, live


def cidr(text: object) -> IPv4Network | None:
    """Parse an address range; None if the text is not one or has host bits set."""
    try:
        return IPv4Network(str(text)) if "/" in str(text) else None
    except ValueError:
        return None


def ranges_of(subnetwork: Mapping[str, Any]) -> dict[str, IPv4Network]:
    """Return every valid range of a subnetwork by its field: "ipCidrRange", "secondaryIpRanges[0].ipCidrRange", ..."""
    fields: dict[str, object] = {"ipCidrRange": subnetwork.get("ipCidrRange")}
    for index, secondary in enumerate(subnetwork.get("secondaryIpRanges") or []):
        fields[f"secondaryIpRanges[{index}].ipCidrRange"] = secondary.get("ipCidrRange")
    return {field: network for field, text in fields.items() if (network := cidr(text)) is not None}


def secondary_range(subnetwork: Mapping[str, Any], name: str) -> str | None:
    """Return a secondary range of a subnetwork by its name."""
    for secondary in subnetwork.get("secondaryIpRanges") or []:
        if secondary.get("rangeName") == name:
            return str(secondary.get("ipCidrRange"))
    return None


def cluster_zones(cluster: Mapping[str, Any]) -> list[str]:
    """Return the default zones of a cluster's pools."""
    zones = [str(zone) for zone in cluster.get("nodeLocations") or []]
    location = str(cluster.get("location", ""))
    return [location, *zones] if is_zone(location) else zones


def cluster_of(call: Call) -> Json | None:
    """Return the live cluster of a node pool's call."""
    return call.state.get(CLUSTER, cluster_of_pool(call.inputs, call.config))


def pool_zones(call: Call) -> list[str]:
    """Return the zones of a node pool's call."""
    zones = call.inputs.get("nodeLocations")
    return [str(zone) for zone in zones] if zones else cluster_zones(cluster_of(call) or {})


def pools_of(state: View, cluster: str) -> Iterator[tuple[str, Json]]:
    """Return the live node pools of a cluster (by id), as (id, live value)."""
    for _, id_, live in state.all(NODE_POOL):
        if cluster_of_pool(live, {}) == cluster:
            yield id_, live
