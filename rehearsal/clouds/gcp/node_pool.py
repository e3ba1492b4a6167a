"""GKE node pools: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.node_config import NODE_CONFIG_REPLACES, filled_in, is_flex
from rehearsal.clouds.gcp.references import (
    COMPUTE,
    cluster_of,
    cluster_of_pool,
    last,
    location_of,
    pool_zones,
    project_of,
)
from rehearsal.clouds.gcp.refusals import PROVIDER_POOL
from rehearsal.clouds.kind import Call, Json, Refusal
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew in `refusals.PROVIDER_POOL`. network_config.enable_private_nodes and autoscaling are updated in place.
NODE_POOL_REPLACES = frozenset(
    {
        *("name", "namePrefix", "project", "cluster", "location", "initialNodeCount", "maxPodsPerNode"),
        *("placementPolicy", "queuedProvisioning"),
        "networkConfig.acceleratorNetworkProfile",
        "networkConfig.additionalNodeNetworkConfigs",
        "networkConfig.additionalPodNetworkConfigs",
        "networkConfig.createPodRange",
        "networkConfig.podCidrOverprovisionConfig",
        "networkConfig.podIpv4CidrBlock",
        "networkConfig.podRange",
        "networkConfig.subnetwork",
        *(f"nodeConfig.{path}" for path in NODE_CONFIG_REPLACES),
    }
)


def identify_node_pool(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/locations/L/clusters/C/nodePools/N."""
    return f"{cluster_of_pool(inputs, config)}/nodePools/{pool_name(inputs, config)}"


def pool_taken(_type: str, id_: str) -> Refusal:
    """Return the refusal of a node pool name that is in use: the provider checks before its request."""
    return Refusal("409 alreadyExists", f"resource - {id_} - already exists", PROVIDER_POOL)


def node_pool_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id P/L/C/N."""
    if text.startswith("projects/"):
        return text
    project, location, cluster, name = text.split("/")
    return f"projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{name}"


def pool_name(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the pool's name. A generated name depends on the inputs only, so it is stable."""
    asked = inputs.get("name")
    return str(asked) if asked else f"{inputs.get('namePrefix', '')}{digest(cluster_of_pool(inputs, config))}"


def asked_count(inputs: Mapping[str, Any]) -> int:
    """Return the initial number of nodes per zone."""
    return int(inputs.get("nodeCount") or inputs.get("initialNodeCount") or 0)


def compute_node_pool(call: Call) -> Json:
    """Return version, zones, instance groups, and GKE's defaults."""
    project, cluster = project_of(call.inputs, call.config), cluster_of(call) or {}
    name = pool_name(call.inputs, call.config)
    zones = pool_zones(call)
    groups = [
        (zone, f"gke-{last(str(call.inputs['cluster']))[:12]}-{name[:12]}-{digest(call.id)}-grp") for zone in zones
    ]
    begun = asked_count(call.inputs)
    return {
        "name": name,
        "project": project,
        "location": location_of({**cluster, **call.inputs}, call.config),
        "instanceGroupUrls": [
            f"{COMPUTE}projects/{project}/zones/{zone}/instanceGroupManagers/{group}" for zone, group in groups
        ],
        "managedInstanceGroupUrls": [
            f"{COMPUTE}projects/{project}/zones/{zone}/instanceGroups/{group}" for zone, group in groups
        ],
        **kept(
            call,
            {
                "version": cluster.get("masterVersion", ""),
                "nodeLocations": zones,
                "nodeCount": begun,
                "initialNodeCount": begun,
                "maxPodsPerNode": int(cluster.get("defaultMaxPodsPerNode") or 110),
                "namePrefix": "",
            },
        ),
        **blocks(
            call,
            {
                "nodeConfig": filled_in(call.inputs),
                "management": {"autoRepair": True, "autoUpgrade": True},
                "upgradeSettings": {"strategy": "SHORT_LIVED"}
                if is_flex(call.inputs)
                else {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
                "networkConfig": {"enablePrivateNodes": False, "podRange": "", "podIpv4CidrBlock": ""},
            },
        ),
    }
