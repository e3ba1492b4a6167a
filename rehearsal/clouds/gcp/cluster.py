"""GKE clusters: id, computed outputs, references, rules, and cascading deletion."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.drift import drift_cluster
from rehearsal.clouds.gcp.offerings import key, resolve, zones
from rehearsal.clouds.gcp.references import PROVIDER, TPG, is_zone, location_of, project_of, tested
from rehearsal.clouds.kubernetes.connection import certificate, is_in_cluster
from rehearsal.engine.kind import Call, Json, Refusal, ResourceKind, value_at, values_at
from rehearsal.engine.values import blocks, cidr, digest, kept

FIRST_PUBLIC = int(IPv4Address("203.0.113.1"))
"""Addresses of control planes, from TEST-NET-3 (RFC 5737), which is not routed."""
PRIVATE = tuple(IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))

_PRIVATE = tested("ContainerCluster_withPrivateClusterConfigBasic")


def compute_cluster(call: Call) -> Json:
    """Return versions, endpoints, certificate, zones, ranges and GKE's defaults."""
    project, location = project_of(call.inputs, call.config), location_of(call.inputs, call.config)
    network = gcp.network_id(call.inputs.get("network"), call.inputs, call.config)
    subnetwork = gcp.subnetwork_id(call.inputs.get("subnetwork"), call.inputs, call.config)
    count = int(call.inputs.get("initialNodeCount") or 0)
    pools = [] if call.inputs.get("removeDefaultNodePool") else [{"name": "default-pool", "nodeCount": count}]
    return {
        "project": project,
        "location": location,
        # As requested: for the provider an id, a self link and a name are equal.
        "network": call.inputs.get("network", network),
        "subnetwork": call.inputs.get("subnetwork", subnetwork),
        "selfLink": f"https://container.googleapis.com/v1/{call.id}",
        # All labels; an import reads no others (provider: resource_container_cluster.go, SetLabels).
        "effectiveLabels": call.now.get("resourceLabels") or {},
        **_versions(call),
        **_endpoints(call, location),
        **kept(
            call,
            {
                "nodeLocations": [] if is_zone(location) else zones(location)[:3],
                "nodePools": pools,
                "deletionProtection": True,
                "servicesIpv4Cidr": _range(call, subnetwork, "services", "34.118.224.0/20"),
                "clusterIpv4Cidr": _range(call, subnetwork, "cluster", "10.4.0.0/14"),
            },
        ),
        # As GKE 1.35.6 answered the google-beta provider (a recording, 2026-11-22).
        **blocks(
            call,
            {
                "releaseChannel": {"channel": "REGULAR"},
                "addonsConfig": {"dnsCacheConfig": {"enabled": True}},
                "anonymousAuthenticationConfig": {"mode": "LIMITED"},
                "ipAllocationPolicy": {"networkTierConfig": {"networkTier": "NETWORK_TIER_DEFAULT"}},
                "monitoringConfig": {"advancedDatapathObservabilityConfig": {}},
            },
        ),
    }


def delete_with_cluster(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the cluster: node pools and everything in it."""
    if type_ == gcp.NODE_POOL:
        return gcp.cluster_of_pool(live, {}) == call.id
    return is_in_cluster(type_, live, call.id)


def _versions(call: Call) -> Json:
    """Return the versions. The control plane is never downgraded (provider: resource_container_cluster.go)."""
    asked = call.inputs.get("minMasterVersion")
    offered = resolve(asked, value_at(call.inputs, "releaseChannel.channel"), call.state) or ""
    if call.verb == "create":
        return {"masterVersion": offered, "nodeVersion": offered}
    live = str(call.live.get("masterVersion", ""))
    return {"masterVersion": max(live, offered if asked else live, key=key), **kept(call, {"nodeVersion": live})}


def _endpoints(call: Call, location: str) -> Json:
    address = str(IPv4Address(FIRST_PUBLIC + int(digest(call.id), 16) % 250))
    private = cidr(value_at(call.inputs, "privateClusterConfig.masterIpv4CidrBlock"))
    inside = str(private[2]) if private else "10.128.0.2"
    only_private = value_at(call.inputs, "privateClusterConfig.enablePrivateEndpoint") is True
    name = f"gke-{digest(call.id, 36)}-{gcp.project_number(project_of(call.inputs, call.config))}"
    return {
        "endpoint": inside if only_private else address,
        **blocks(
            call,
            {
                "masterAuth": {"clientCertificate": "", "clientKey": "", "clusterCaCertificate": certificate(call.id)},
                "controlPlaneEndpointsConfig": {
                    "dnsEndpointConfig": {
                        "endpoint": f"{name}.{gcp.region_of_location(location)}.gke.goog",
                        "allowExternalTraffic": False,
                    },
                    "ipEndpointsConfig": {"enabled": True},
                },
                "privateClusterConfig": {"publicEndpoint": address, "privateEndpoint": inside, "peeringName": ""},
            },
        ),
    }


def _range(call: Call, subnetwork: str, which: str, default: str) -> str:
    """Return the range of the pods ("cluster") or Services, from the subnetwork or from the request."""
    policy = call.inputs.get("ipAllocationPolicy") or {}
    named = _secondary_ranges(call, subnetwork).get(str(policy.get(f"{which}SecondaryRangeName")))
    return named or str(policy.get(f"{which}Ipv4CidrBlock") or default)


def _secondary_ranges(call: Call, subnetwork: str) -> dict[str, str]:
    live = call.state.get(gcp.SUBNETWORK, subnetwork) or {}
    return {str(one.get("rangeName")): str(one.get("ipCidrRange")) for one in live.get("secondaryIpRanges") or []}


@rule(refused="pluralsh/plural#1308, 2024-05-09", accepted=tested("ContainerCluster_updateVersion"))
def control_plane_version_is_offered(call: Call) -> str | None:
    """The control plane starts with an offered version."""
    asked = call.inputs.get("minMasterVersion")
    # An unchanged version needs no request, though it may no longer be offered.
    known = not asked or asked == call.live.get("minMasterVersion") or resolve(str(asked), None, call.state)
    return None if known else f'Master version "{asked}" is unsupported.'


@rule("create", refused=f"{TPG}#13540, 2023-01-20", accepted=tested("ContainerCluster_regionalWithNodeLocations"))
def cluster_has_first_node(call: Call) -> str | None:
    """A cluster is created with a node, even if its pool is removed at once."""
    known = any(call.inputs.get(name) for name in ("initialNodeCount", "nodePools", "enableAutopilot"))
    return None if known else "Cluster.initial_node_count must be greater than zero."


@rule("create", refused=f"{TPG}#7895, 2020-11-26", accepted=tested("ContainerCluster_withMultiNicNetworkConfig"))
def subnetwork_is_in_network(call: Call) -> str | None:
    """A cluster's subnetwork is in its network."""
    subnetwork = gcp.subnetwork_id(call.inputs.get("subnetwork"), call.inputs, call.config)
    network = gcp.network_id(call.inputs.get("network"), call.inputs, call.config)
    live = call.state.get(gcp.SUBNETWORK, subnetwork)
    if live is None or gcp.network_id(live["network"], live, {}) == network:
        return None
    return f'Subnetwork "{subnetwork}" is not valid for Network "{network}".'


@rule("create", refused="fabianlee/gcp-gke-clusters-ingress#2, 2024-04-19", accepted=_PRIVATE)
def secondary_ranges_exist(call: Call) -> str | None:
    """The secondary ranges of pods and Services are the subnetwork's."""
    subnetwork = gcp.subnetwork_id(call.inputs.get("subnetwork"), call.inputs, call.config)
    for field, what in (("clusterSecondaryRangeName", "Pod"), ("servicesSecondaryRangeName", "Service")):
        name = value_at(call.inputs, f"ipAllocationPolicy.{field}")
        if name and name not in _secondary_ranges(call, subnetwork):
            return f'{what} secondary range "{name}" not found in subnetwork "{subnetwork}".'
    return None


@rule("create", refused="gruntwork-io/terraform-google-gke#118, 2021-03-17", accepted=_PRIVATE)
def pods_and_services_have_own_ranges(call: Call) -> str | None:
    """Pods and Services have separate secondary ranges."""
    policy = call.inputs.get("ipAllocationPolicy") or {}
    name = policy.get("clusterSecondaryRangeName")
    wrong = name and name == policy.get("servicesSecondaryRangeName")
    return (
        f"Pod secondary range name ({name}) should not be the same as service secondary range name." if wrong else None
    )


@rule(refused="rancher/rancher#32251, 2021-04-20", accepted=_PRIVATE)
def private_endpoint_needs_authorized_networks(call: Call) -> str | None:
    """A private endpoint needs authorized networks, which may be an empty list."""
    private = value_at(call.inputs, "privateClusterConfig.enablePrivateEndpoint") is True
    wrong = private and call.inputs.get("masterAuthorizedNetworksConfig") is None
    return "Master authorized networks must be enabled if private endpoint is enabled." if wrong else None


@rule(
    refused="GoogleCloudPlatform/gke-network-policy-demo#37, 2021-05-23",
    accepted=tested("ContainerCluster_withMasterAuthorizedNetworksConfig"),
)
def private_endpoint_has_private_networks(call: Call) -> str | None:
    """A private endpoint takes private authorized networks only."""
    private = value_at(call.inputs, "privateClusterConfig.enablePrivateEndpoint") is True
    asked = values_at(call.inputs, "masterAuthorizedNetworksConfig.cidrBlocks.cidrBlock") if private else ()
    public = [own for own in map(cidr, asked) if own and not any(own.subnet_of(one) for one in PRIVATE)]
    said = 'Invalid master authorized networks: network "{}" is not a reserved network'
    return said.format(public[0]) if public else None


@rule("create", refused=f"{TPG}#2996, 2019-03-09", accepted=_PRIVATE)
def control_plane_range_has_16_addresses(call: Call) -> str | None:
    """The control plane's range is a /28, if set."""
    text = value_at(call.inputs, "privateClusterConfig.masterIpv4CidrBlock")
    network = cidr(text)
    wrong = text and (network is None or network.prefixlen != 28)
    return f'Invalid master_ipv4_cidr "{text}": it must be a /28 block.' if wrong else None


@rule("delete", refused=f"{PROVIDER}: resource_container_cluster_test.go, ExpectError", accepted=_PRIVATE)
def cluster_is_not_protected(call: Call) -> str | None:
    """A protected cluster is not deleted; protection is on unless an earlier update turned it off."""
    wrong = call.live.get("deletionProtection") is not False
    return "Cannot destroy cluster because deletion_protection is set to true." if wrong else None


CLUSTER = ResourceKind(
    type=gcp.CLUSTER,
    identify=gcp.cluster_id,
    compute=compute_cluster,
    # Without resourceLabels: the provider keeps GKE's additions in effectiveLabels (provider: labels since 5.0).
    # GKE returns another pool's nodeConfig once the default pool is gone, and every property of it shows.
    maps=frozenset({"nodeConfig", "nodeConfig.labels", "nodeConfig.metadata"}),
    references=(gcp.IN_NETWORK, gcp.reference("subnetwork", gcp.SUBNETWORK, gcp.subnetwork_id), gcp.AS_ACCOUNT),
    rules=rules_of(globals()),
    drift=drift_cluster,
    cascade=delete_with_cluster,
    awaited=True,
    conflict=lambda _type, id_: Refusal("409 alreadyExists", f"Already exists: {id_}.", "GKE API, clusters.create"),
)
