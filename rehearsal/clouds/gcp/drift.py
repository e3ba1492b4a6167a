"""Changes that Google Cloud makes over time. A refresh must not show them as differences.

The program ignores them by `ignore_changes`. cluster-toolkit's list is nodeConfig.labels, initialNodeCount, local SSD
blocks and minMasterVersion of pools and clusters, and the node configuration of a removed default pool.
"""

from __future__ import annotations

from rehearsal.clouds.gcp.capacity import is_flex, node
from rehearsal.clouds.gcp.offerings import LATER, key
from rehearsal.clouds.gcp.references import CLUSTER, cluster_id, cluster_of_pool, fingerprint, pools_of, subnetwork_id
from rehearsal.engine.kind import Json, value_at
from rehearsal.engine.state import View
from rehearsal.engine.values import digest

NOT_COMPUTED = ("machineType", "flexStart", "maxRunDuration", "spot", "reservationAffinity", "taints")
"""Properties of a node configuration that show as differences: the provider computes the others itself."""


def drift_cluster(live: Json, state: View) -> Json:
    """Upgrade the control plane to a new version, and update the summary of the pools.

    The program's minMasterVersion is not read back (provider: resource_container_cluster.go), but the result of
    `getEngineVersions` changes, and so would minMasterVersion.
    """
    pools = dict(pools_of(state, cluster_id(live, {})))
    changes: Json = {
        "resourceLabels": {"goog-gke-cost-management": ""},
        "nodePools": [
            {"name": pool["name"], "nodeCount": pool.get("nodeCount", 0)} for _, pool in sorted(pools.items())
        ],
        "masterVersion": _upgraded(str(live.get("masterVersion", "")), live),
    }
    if not _excluded(live, "NODE"):
        changes["nodeVersion"] = changes["masterVersion"]
    if live.get("removeDefaultNodePool"):
        # GKE then describes the first of the other pools.
        first = node(min(pools.items())[1]) if pools else {}
        changes["nodeConfig"] = {name: value for name, value in first.items() if name in NOT_COMPUTED}
    else:
        # Resizing a pool also changes its initial count (terraform-google-kubernetes-engine ignores it; read 2026-08).
        changes["initialNodeCount"] = int(live.get("initialNodeCount") or 0) + 1
    return changes


def drift_node_pool(live: Json, state: View) -> Json:
    """Add a node, upgrade the pool, and add GKE's node labels."""
    cluster = state.get(CLUSTER, cluster_of_pool(live, {})) or {}
    changes: Json = {"nodeConfig": {"labels": _labels(live)}}
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
    mine = subnetwork_id(live["name"], live, {})
    ranges: list[Json] = list(live.get("secondaryIpRanges") or [])
    for _, id_, cluster in state.all(CLUSTER):
        named = value_at(cluster, "ipAllocationPolicy.clusterSecondaryRangeName")
        if named or subnetwork_id(cluster.get("subnetwork"), cluster, {}) != mine:
            continue
        name = f"gke-{cluster['name']}-pods-{digest(id_)}"
        if all(known.get("rangeName") != name for known in ranges):
            ranges.append({"rangeName": name, "ipCidrRange": cluster.get("clusterIpv4Cidr")})
            changes["secondaryIpRanges"] = ranges
    return changes


def _labels(pool: Json) -> Json:
    """Return GKE's node labels for a pool (GKE docs provisioningrequest and allocate-network-resources-dra)."""
    added = {
        "cloud.google.com/gke-gpu": "true" if node(pool).get("guestAccelerators") else None,
        "cloud.google.com/gke-flex-start": "true" if is_flex(pool) else None,
        "gke.networks.io/accelerator-network-profile": value_at(pool, "networkConfig.acceleratorNetworkProfile"),
    }
    return {name: value for name, value in added.items() if value}


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
