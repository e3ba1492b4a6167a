"""Names of Google Cloud resources: type tokens, ids in every notation, and the inputs that name other resources."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Network
from typing import Any

from rehearsal.engine.kind import Call, Json, Reference
from rehearsal.engine.state import View
from rehearsal.engine.values import cidr, last, number

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
NAT = "gcp:compute/routerNat:RouterNat"
ACCOUNT = "gcp:serviceaccount/account:Account"
PROJECT_MEMBER = "gcp:projects/iAMMember:IAMMember"
BUCKET_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

COMPUTE = "https://www.googleapis.com/compute/v1/"

PROVIDER = "hashicorp/terraform-provider-google-beta 93c65b2d, 2026-08-21"
TOOLKIT = "GoogleCloudPlatform/cluster-toolkit 10470803, 2026-06-25"
TPG = "hashicorp/terraform-provider-google"
TKE = "terraform-google-modules/terraform-google-kubernetes-engine"

_ROCE = re.compile(r"/networkProfiles/(?P<zone>[a-z0-9-]+?)-vpc-roce(-metal)?$")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-([a-z]|ai\d+[a-z])")
_ACCOUNT = re.compile(r"[a-z][-a-z0-9]*@(?P<project>[a-z][-a-z0-9]*)\.iam\.gserviceaccount\.com")


def tested(name: str) -> str:
    """Return the source of an acceptance test of the google-beta provider."""
    return f"{PROVIDER}: TestAcc{name}"


def fingerprint(text: str) -> str:
    """Return an etag or fingerprint."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def project_number(project: str) -> str:
    """Return the number of a project."""
    return number(project, 12)


def is_zone(location: str) -> bool:
    """Return whether a location is a zone; otherwise it is a region."""
    return _ZONE.fullmatch(location) is not None


def region_of_location(location: str) -> str:
    """Return the region of a zone or of a region."""
    return location.rsplit("-", 1)[0] if is_zone(location) else location


def project_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the project of a resource: its own, otherwise the provider's, otherwise ""."""
    return str(inputs.get("project") or config.get("project") or "").removeprefix("projects/")


def region_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the region of a regional resource, or that of a cluster's or pool's location."""
    place = inputs.get("region") or inputs.get("location") or config.get("region") or config.get("zone") or ""
    return region_of_location(last(str(place)))


def location_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the zone or region of a cluster or node pool: its own, or the provider's zone or region, otherwise ""."""
    return str(inputs.get("location") or config.get("zone") or config.get("region") or "")


def _compute_id(collection: str, value: object, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the id of a Compute Engine resource from its id, self link or name; without one, of the default one."""
    path = re.search(rf"projects/[^/]+/(global|regions/[^/]+)/{collection}/[^/]+$", str(value))
    place = "global" if collection in ("networks", "firewalls") else f"regions/{region_of(inputs, config)}"
    return path[0] if path else f"projects/{project_of(inputs, config)}/{place}/{collection}/{value or 'default'}"


network_id = partial(_compute_id, "networks")
subnetwork_id = partial(_compute_id, "subnetworks")
firewall_id = partial(_compute_id, "firewalls")
router_id = partial(_compute_id, "routers")
resource_policy_id = partial(_compute_id, "resourcePolicies")


def cluster_id(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return a cluster's id from its inputs or live value."""
    return f"projects/{project_of(inputs, config)}/locations/{location_of(inputs, config)}/clusters/{inputs['name']}"


def cluster_of_pool(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the cluster id of a node pool, from the pool's inputs or live value."""
    path = re.search(r"projects/[^/]+/locations/[^/]+/clusters/[^/]+$", str(inputs.get("cluster")))
    return path[0] if path else cluster_id({**inputs, "name": inputs.get("cluster")}, config)


def account_id(value: object, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return the id of a service account of this project from its email or IAM member.

    Other projects' accounts, Google's agents among them, are not simulated.
    """
    email = str(value).removeprefix("serviceAccount:")
    match = _ACCOUNT.fullmatch(email)
    project = project_of(inputs, config)
    return f"projects/{project}/serviceAccounts/{email}" if match and match["project"] == project else None


def reference(
    path: str, type_: str, resolve: Callable[[Any, Json, Mapping[str, Any]], str | None], *, holds: bool = True
) -> Reference:
    """Return a reference to a resource of this project; the default network and subnetwork are not simulated."""

    def own(value: Any, inputs: Json, config: Mapping[str, Any]) -> str | None:
        id_ = resolve(value, inputs, config)
        ours = id_ is not None and id_.startswith(f"projects/{project_of(inputs, config)}/") and last(id_) != "default"
        return id_ if ours else None

    return Reference(path=path, types=(type_,), resolve=own, holds=holds)


IN_NETWORK = reference("network", NETWORK, network_id)
AS_ACCOUNT = reference("nodeConfig.serviceAccount", ACCOUNT, account_id, holds=False)
TO_ACCOUNT = reference("member", ACCOUNT, account_id, holds=False)


def network_of(call: Call) -> Json:
    """Return the live network in a call's `network`, or an empty object."""
    return call.state.get(NETWORK, network_id(call.inputs.get("network"), call.inputs, call.config)) or {}


def roce_zone(network: Mapping[str, Any]) -> str | None:
    """Return the zone of an RDMA network's profile; None for other networks."""
    match = _ROCE.search(str(network.get("networkProfile") or ""))
    return match["zone"] if match else None


def subnetworks_of(state: View, network: str) -> Iterator[tuple[str, Json]]:
    """Yield the live subnetworks of a network (by id), as (id, live value)."""
    for _, id_, live in state.all(SUBNETWORK):
        if network_id(live["network"], live, {}) == network:
            yield id_, live


def ranges_of(subnetwork: Mapping[str, Any]) -> dict[str, IPv4Network]:
    """Return every valid range of a subnetwork by its field: "ipCidrRange", "secondaryIpRanges[0].ipCidrRange", ..."""
    fields: dict[str, object] = {"ipCidrRange": subnetwork.get("ipCidrRange")}
    for index, secondary in enumerate(subnetwork.get("secondaryIpRanges") or []):
        fields[f"secondaryIpRanges[{index}].ipCidrRange"] = secondary.get("ipCidrRange")
    return {field: network for field, text in fields.items() if (network := cidr(text)) is not None}


def cluster_of(call: Call) -> Json:
    """Return the live cluster of a node pool's call, or an empty object."""
    return call.state.get(CLUSTER, cluster_of_pool(call.inputs, call.config)) or {}


def pool_zones(call: Call) -> list[str]:
    """Return the zones of a node pool's call: its own or its cluster's."""
    cluster = cluster_of(call)
    location = str(cluster.get("location", ""))
    default = [*([location] if is_zone(location) else []), *(cluster.get("nodeLocations") or [])]
    return [str(zone) for zone in call.inputs.get("nodeLocations") or default]


def pools_of(state: View, cluster: str) -> Iterator[tuple[str, Json]]:
    """Yield the live node pools of a cluster (by id), as (id, live value)."""
    for _, id_, live in state.all(NODE_POOL):
        if cluster_of_pool(live, {}) == cluster:
            yield id_, live
