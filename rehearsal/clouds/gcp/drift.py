"""Changes that Google Cloud makes over time. A refresh must not show them as differences.

The program ignores them by `ignore_changes`. cluster-toolkit's list is nodeConfig.labels, initialNodeCount, local SSD
blocks and minMasterVersion of pools and clusters, and the node configuration of a removed default pool.
"""

from __future__ import annotations

from rehearsal.clouds.gcp.node_config import is_flex, machine, node
from rehearsal.clouds.gcp.offerings import LATER, key
from rehearsal.clouds.gcp.references import (
    cluster_id,
    cluster_of_pool,
    fingerprint,
    pools_of,
    region_of_location,
    subnetwork_id,
)
from rehearsal.clouds.gcp.tokens import CLUSTER
from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.state import View
from rehearsal.clouds.values import digest

END_OF_SUPPORT = "2028-01-31T00:00:00Z"
"""Of the current version: chosen by the simulation, 2026-11."""


def drift_cluster(live: Json, state: View) -> Json:
    """Upgrade the control plane to a new version, and update the summary of the pools.

    The program's minMasterVersion is not read back (provider: resource_container_cluster.go), but the result of
    `getEngineVersions` changes, and so would minMasterVersion.
    """
    pools = dict(pools_of(state, cluster_id(live, {})))
    changes: Json = {
        "labelFingerprint": digest(f"{live.get('labelFingerprint')} later"),
        "resourceLabels": {"goog-gke-cost-management": ""},
        "nodePools": [
            {"name": pool["name"], "nodeCount": pool.get("nodeCount", 0), "version": pool.get("version", "")}
            for _, pool in sorted(pools.items())
        ],
    }
    changes["masterVersion"] = _upgraded(str(live.get("masterVersion", "")), live)
    if not _excluded(live, "NODE"):
        changes["nodeVersion"] = changes["masterVersion"]
    exclusions = value_at(live, "maintenancePolicy.maintenanceExclusions") or []
    if exclusions:
        changes["maintenancePolicy"] = {
            "maintenanceExclusions": [{"endTime": asked.get("endTime") or END_OF_SUPPORT} for asked in exclusions]
        }
    if live.get("removeDefaultNodePool"):
        # The API describes a remaining pool; the inputs for the removed one are gone.
        if pools:
            changes["nodeConfig"] = node(next(iter(sorted(pools.items())))[1])
    else:
        # Resizing a pool also changes its initial count (terraform-google-kubernetes-engine ignores it; read 2026-08).
        changes["initialNodeCount"] = int(live.get("initialNodeCount") or 0) + 1
    return changes


def drift_node_pool(live: Json, state: View) -> Json:
    """Add a node, upgrade the pool, and add GKE's node labels."""
    cluster = state.get(CLUSTER, cluster_of_pool(live, {})) or {}
    changes: Json = {
        "nodeConfig": {
            "labels": _labels(live),
            "resourceLabels": {"goog-gke-accelerator-type": machine(live)}
            if node(live).get("guestAccelerators")
            else {},
        }
    }
    if value_at(live, "management.autoUpgrade") is not False and not _excluded(cluster, "NODE"):
        changes["version"] = _upgraded(str(live.get("version", "")), cluster)
    scaling = live.get("autoscaling") or {}
    most = int(scaling.get("totalMaxNodeCount") or scaling.get("maxNodeCount") or 0)
    grown = min(int(live.get("nodeCount") or 0) + 1, most)
    if grown > int(live.get("nodeCount") or 0):
        changes |= {"nodeCount": grown, "initialNodeCount": grown}
    return changes


def drift_subnetwork(live: Json, state: View) -> Json:
    """Add the secondary ranges that GKE creates for a cluster without named ones."""
    changes: Json = {"fingerprint": fingerprint(f"{live.get('fingerprint')} later")}
    mine = subnetwork_id(str(live["name"]), str(live["project"]), str(live["region"]))
    ranges: list[Json] = list(live.get("secondaryIpRanges") or [])
    for _, id_, cluster in state.all(CLUSTER):
        region = region_of_location(str(cluster["location"]))
        named = value_at(cluster, "ipAllocationPolicy.clusterSecondaryRangeName")
        if named or subnetwork_id(str(cluster.get("subnetwork")), str(cluster["project"]), region) != mine:
            continue
        name = f"gke-{cluster['name']}-pods-{digest(id_)}"
        if all(known.get("rangeName") != name for known in ranges):
            ranges.append({"rangeName": name, "ipCidrRange": cluster.get("clusterIpv4Cidr")})
    return (
        {**changes, "secondaryIpRanges": ranges} if len(ranges) > len(live.get("secondaryIpRanges") or []) else changes
    )


def drift_member(live: Json, _state: View) -> Json:
    """Change the etag, as every change of the policy does."""
    return {"etag": fingerprint(f"{live.get('etag')} later")}


def _labels(pool: Json) -> Json:
    """Return GKE's node labels for a pool (GKE docs provisioningrequest and allocate-network-resources-dra)."""
    labels: Json = {}
    if node(pool).get("guestAccelerators"):
        labels["cloud.google.com/gke-gpu"] = "true"
    if is_flex(pool):
        labels["cloud.google.com/gke-flex-start"] = "true"
    if value_at(pool, "networkConfig.acceleratorNetworkProfile"):
        labels["gke.networks.io/accelerator-network-profile"] = "auto"
    return labels


def _upgraded(version: str, cluster: Json) -> str:
    """Return the version after an upgrade by the release channel, or by an end of support without a channel."""
    if value_at(cluster, "releaseChannel.channel") == "UNSPECIFIED":
        return version
    if _excluded(cluster, "MINOR") and key(version)[:2] != key(LATER)[:2]:
        return version
    return max(version, LATER, key=key)


def _excluded(cluster: Json, what: str) -> bool:
    """Return whether a maintenance exclusion forbids upgrades: "MINOR" ones, or those of "NODE"s."""
    exclusions = value_at(cluster, "maintenancePolicy.maintenanceExclusions") or []
    scopes = [str(value_at(exclusion, "exclusionOptions.scope")) for exclusion in exclusions]
    return any(what in scope or scope == "NO_UPGRADES" for scope in scopes)
