"""GKE clusters: ids, computed outputs, replacement, and cascading deletion."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

from rehearsal.clouds.gcp.node_config import NODE_CONFIG_REPLACES, NODE_MAPS
from rehearsal.clouds.gcp.offerings import key, resolve, zones
from rehearsal.clouds.gcp.references import (
    CONTAINER,
    cidr,
    cluster_id,
    cluster_of_pool,
    is_zone,
    location_of,
    network_id,
    project_number,
    project_of,
    region_of_location,
    secondary_range,
    subnetwork_id,
)
from rehearsal.clouds.gcp.refusals import UNVERIFIED
from rehearsal.clouds.gcp.tokens import IN_CLUSTER, KUBERNETES, NODE_POOL, SUBNETWORK
from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew in `refusals.PROVIDER_CLUSTER`, whose reference states that enable_multi_networking is not ForceNew.
CLUSTER_REPLACES = frozenset(
    {
        *("name", "project", "location", "network", "subnetwork", "networkingMode", "datapathProvider"),
        *("dataplaneOptimizationMode", "defaultMaxPodsPerNode", "description", "initialNodeCount", "nodePools"),
        *("clusterIpv4Cidr", "enableAutopilot", "enableKubernetesAlpha", "enableTpu", "confidentialNodes"),
        "ipAllocationPolicy.clusterIpv4CidrBlock",
        "ipAllocationPolicy.clusterSecondaryRangeName",
        "ipAllocationPolicy.podCidrOverprovisionConfig",
        "ipAllocationPolicy.servicesIpv4CidrBlock",
        "ipAllocationPolicy.servicesSecondaryRangeName",
        "masterAuth.clientCertificateConfig",
        "privateClusterConfig.masterIpv4CidrBlock",
        "privateClusterConfig.privateEndpointSubnetwork",
        "clusterAutoscaling.autoProvisioningDefaults.bootDiskKmsKey",
        *(f"nodeConfig.{path}" for path in NODE_CONFIG_REPLACES),
    }
)
CLUSTER_MAPS = NODE_MAPS
"""Without resourceLabels: the provider keeps GKE's additions in effectiveLabels (provider: labels since 5.0)."""

FIRST_PUBLIC = int(IPv4Address("203.0.113.1"))
"""Addresses of control planes, from TEST-NET-3 (RFC 5737), which is not routed."""


def identify_cluster(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/locations/L/clusters/C."""
    return cluster_id(inputs, config)


def cluster_taken(_type: str, id_: str) -> Refusal:
    """Return the refusal of a cluster name that is in use."""
    return Refusal("409 alreadyExists", f"Already exists: {id_}.", f"GKE API, clusters.create; wording {UNVERIFIED}")


def compute_cluster(call: Call) -> Json:
    """Return versions, endpoints, certificate, zones and ranges of the cluster."""
    project, location = project_of(call.inputs, call.config), location_of(call.inputs, call.config)
    network = network_id(str(call.inputs.get("network") or "default"), project)
    subnetwork = subnetwork_id(str(call.inputs.get("subnetwork") or "default"), project, region_of_location(location))
    kind = "zones" if is_zone(location) else "locations"
    return {
        "project": project,
        "location": location,
        # As requested: for the provider an id, a self link and a name are equal.
        "network": call.inputs.get("network", network),
        "subnetwork": call.inputs.get("subnetwork", subnetwork),
        "selfLink": f"{CONTAINER}projects/{project}/{kind}/{location}/clusters/{call.inputs['name']}",
        "labelFingerprint": digest(f"{call.id} {call.inputs.get('resourceLabels')}"),
        "pulumiLabels": dict(call.inputs.get("resourceLabels") or {}),
        "effectiveLabels": {**(call.inputs.get("resourceLabels") or {}), "goog-pulumi-provisioned": "true"},
        **_versions(call),
        **_endpoints(call, location),
        **kept(
            call,
            {
                "nodeLocations": [] if is_zone(location) else zones(location)[:3],
                "networkingMode": "VPC_NATIVE",
                "datapathProvider": "",
                "defaultMaxPodsPerNode": 110,
                "enableShieldedNodes": True,
                "nodePools": _default_pool(call),
                "deletionProtection": True,
                "loggingService": "logging.googleapis.com/kubernetes",
                "monitoringService": "monitoring.googleapis.com/kubernetes",
                "servicesIpv4Cidr": _range(call, subnetwork, "services", "34.118.224.0/20"),
                "clusterIpv4Cidr": _range(call, subnetwork, "cluster", "10.4.0.0/14"),
            },
        ),
    }


def delete_with_cluster(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the cluster: node pools and everything in it."""
    if type_ == NODE_POOL:
        return cluster_of_pool(live, {}) == call.id
    return type_.startswith(KUBERNETES) and live.get(IN_CLUSTER) == call.id


def certificate(cluster: str) -> str:
    """Return a placeholder for a CA certificate in the API's format: base64 of PEM."""
    body = base64.b64encode(f"simulated certificate authority of {cluster}".encode()).decode()
    return base64.b64encode(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()).decode()


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
    name = f"gke-{digest(call.id, 36)}-{project_number(project_of(call.inputs, call.config))}"
    return {
        "endpoint": inside if only_private else address,
        **blocks(
            call,
            {
                "masterAuth": {
                    "clientCertificate": "",
                    "clientKey": "",
                    "clusterCaCertificate": certificate(call.id),
                    "clientCertificateConfig": {"issueClientCertificate": False},
                },
                "controlPlaneEndpointsConfig": {
                    "dnsEndpointConfig": {
                        "endpoint": f"{name}.{region_of_location(location)}.gke.goog",
                        "allowExternalTraffic": False,
                    },
                    "ipEndpointsConfig": {"enabled": True},
                },
                "privateClusterConfig": {
                    "publicEndpoint": address,
                    "privateEndpoint": inside,
                    "peeringName": "",
                    "masterGlobalAccessConfig": {"enabled": False},
                },
            },
        ),
    }


def _range(call: Call, subnetwork: str, which: str, default: str) -> str:
    """Return the range of the pods ("cluster") or Services, from the subnetwork or from the request."""
    policy = call.inputs.get("ipAllocationPolicy") or {}
    name, block = policy.get(f"{which}SecondaryRangeName"), policy.get(f"{which}Ipv4CidrBlock")
    live = call.state.get(SUBNETWORK, subnetwork) or {}
    return (secondary_range(live, str(name)) if name else None) or str(block or default)


def _default_pool(call: Call) -> list[Json]:
    """Return the default pool of a cluster, unless it is removed at once."""
    if call.inputs.get("removeDefaultNodePool") or call.inputs.get("enableAutopilot"):
        return []
    count = int(call.inputs.get("initialNodeCount") or 0)
    return [{"name": "default-pool", "initialNodeCount": count, "nodeCount": count, "version": ""}]
