"""Rules of node pools: cluster, version, size, zones, quota."""

from __future__ import annotations

from rehearsal.clouds.gcp.iam import known_account
from rehearsal.clouds.gcp.node_config import affinity, is_flex, is_spot, machine, node
from rehearsal.clouds.gcp.node_pool import asked_count
from rehearsal.clouds.gcp.node_pool import pool_name as name_of
from rehearsal.clouds.gcp.offerings import gpu_metric, key, quota, resolve
from rehearsal.clouds.gcp.references import (
    cluster_of,
    cluster_of_pool,
    is_zone,
    location_of,
    pool_zones,
    project_of,
    region_of_location,
)
from rehearsal.clouds.gcp.refusals import NO_ACCOUNT, NO_CHANNEL, PROVIDER_POOL, QUEUED, TOOLKIT, UNVERIFIED, bad
from rehearsal.clouds.gcp.tokens import NODE_POOL
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at

MOST_NODES = 1000
"""Nodes per pool and zone (GKE docs quotas; unverified, 2026-11)."""


@on("create", "update")
def cluster_missing(call: Call) -> Refusal | None:
    """The cluster of a node pool exists, in the same location."""
    if cluster_of(call) is not None:
        return None
    return Refusal(
        "404 notFound",
        f"Not found: {cluster_of_pool(call.inputs, call.config)}.",
        f"GKE API, 404; wording {UNVERIFIED}",
    )


@on("create", "update")
def zones_elsewhere(call: Call) -> Refusal | None:
    """Nodes are in the region of their cluster."""
    region = region_of_location(location_of(call.inputs, call.config))
    for zone in call.inputs.get("nodeLocations") or []:
        if not is_zone(str(zone)) or region_of_location(str(zone)) != region:
            return bad(
                f'Location "{zone}" is not a zone in region "{region}".',
                f"{PROVIDER_POOL}: node_locations; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def version_not_offered(call: Call) -> Refusal | None:
    """Nodes have an offered version."""
    asked = call.inputs.get("version")
    if not asked or asked == call.live.get("version") or resolve(str(asked), None, call.state):
        return None
    return bad(f'Node version "{asked}" is unsupported.', f"GKE API, nodePools.create; wording {UNVERIFIED}")


@on("create", "update")
def newer_than_control_plane(call: Call) -> Refusal | None:
    """Nodes are not newer than their control plane."""
    version = resolve(call.inputs.get("version"), None, call.state) if call.inputs.get("version") else None
    control_plane = (cluster_of(call) or {}).get("masterVersion")
    if not version or not control_plane or key(version) <= key(str(control_plane)):
        return None
    return bad(
        f'Node version "{version}" must not be greater than master version "{control_plane}".',
        f"Kubernetes version skew policy; wording {UNVERIFIED}",
    )


@on("create", "update")
def upgrades_off_in_channel(call: Call) -> Refusal | None:
    """A release channel upgrades the nodes."""
    channel = value_at(cluster_of(call) or {}, "releaseChannel.channel")
    if channel in (None, "UNSPECIFIED") or value_at(call.inputs, "management.autoUpgrade") is not False:
        return None
    return bad(f"Auto_upgrade cannot be false when release_channel {channel} is set.", NO_CHANNEL)


@on("create")
def two_names(call: Call) -> Refusal | None:
    """A pool has a name or a name prefix."""
    if not call.inputs.get("name") or not call.inputs.get("namePrefix"):
        return None
    return bad("Cannot specify both name and name_prefix for a node_pool", PROVIDER_POOL)


@on("create", "update")
def surge_settings_without_surge(call: Call) -> Refusal | None:
    """Surge settings belong to the surge strategy, which is the default."""
    settings = call.inputs.get("upgradeSettings") or {}
    if settings.get("strategy", "SURGE") == "SURGE" or not (settings.get("maxSurge") or settings.get("maxUnavailable")):
        return None
    return bad("Surge upgrade settings may not be changed when surge strategy is not enabled", PROVIDER_POOL)


@on("create", "update")
def blue_green_settings_without_blue_green(call: Call) -> Refusal | None:
    """Blue-green settings belong to the blue-green strategy."""
    settings = call.inputs.get("upgradeSettings") or {}
    if settings.get("strategy") == "BLUE_GREEN" or not settings.get("blueGreenSettings"):
        return None
    return bad("Blue-green upgrade settings may not be changed when blue-green strategy is not enabled", PROVIDER_POOL)


@on("create")
def two_initial_counts(call: Call) -> Refusal | None:
    """A pool starts with initialNodeCount or nodeCount nodes."""
    if not call.inputs.get("initialNodeCount") or not call.inputs.get("nodeCount"):
        return None
    name = name_of(call.inputs, call.config)
    return bad(f"Cannot set both initial_node_count and node_count on node pool {name}", PROVIDER_POOL)


@on("create", "update")
def count_with_autoscaling(call: Call) -> Refusal | None:
    """Either the autoscaler or the program sets the number of nodes."""
    if "nodeCount" not in call.inputs or not call.inputs.get("autoscaling"):
        return None
    return bad(
        '"node_count" should not be used alongside "autoscaling"',
        f"{PROVIDER_POOL}: node_count; refused according to the project's GKE reference, 2026-08; wording {UNVERIFIED}",
    )


@on("create", "update")
def two_kinds_of_limits(call: Call) -> Refusal | None:
    """Autoscaling has limits per zone, or total limits."""
    scaling = call.inputs.get("autoscaling") or {}
    per_zone = [name for name in ("minNodeCount", "maxNodeCount") if scaling.get(name)]
    in_all = [name for name in ("totalMinNodeCount", "totalMaxNodeCount") if scaling.get(name)]
    if not per_zone or not in_all:
        return None
    return bad(
        f"Per-zone limits ({', '.join(per_zone)}) and total limits ({', '.join(in_all)}) cannot be used together.",
        f"{PROVIDER_POOL}: autoscaling; wording {UNVERIFIED}",
    )


@on("create", "update")
def limits_reversed(call: Call) -> Refusal | None:
    """The minimum does not exceed the maximum."""
    scaling = call.inputs.get("autoscaling") or {}
    for prefix in ("min", "totalMin"):
        fewest = int(scaling.get(f"{prefix}NodeCount") or 0)
        most = scaling.get(f"{prefix.replace('min', 'max').replace('Min', 'Max')}NodeCount")
        if most is not None and int(most) > 0 and fewest > int(most):
            return bad(
                f"min_node_count {fewest} must be less than or equal to max_node_count {most}.",
                f"GKE API, NodePoolAutoscaling; wording {UNVERIFIED}",
            )
    return None


@on("create")
def count_outside_limits(call: Call) -> Refusal | None:
    """The initial size is within the limits of the autoscaler."""
    scaling, zones = call.inputs.get("autoscaling") or {}, max(1, len(pool_zones(call)))
    count = int(call.inputs.get("initialNodeCount") or 0)
    for most, have in ((scaling.get("maxNodeCount"), count), (scaling.get("totalMaxNodeCount"), count * zones)):
        if most and have > int(most):
            return bad(
                f"Initial node count {have} is greater than the autoscaling maximum {most}.",
                f"GKE API, NodePoolAutoscaling; wording {UNVERIFIED}",
            )
    return None


@on("create", "update")
def too_large(call: Call) -> Refusal | None:
    """A pool has at most 1000 nodes per zone."""
    scaling = call.inputs.get("autoscaling") or {}
    count = max(asked_count(call.inputs), int(scaling.get("maxNodeCount") or 0))
    if count <= MOST_NODES:
        return None
    return bad(
        f"Node pool size {count} exceeds the limit of {MOST_NODES} nodes per zone.", f"GKE docs quotas; {UNVERIFIED}"
    )


@on("create")
def node_account_missing(call: Call) -> Refusal | None:
    """The service account of the nodes exists."""
    account = str(node(call.inputs).get("serviceAccount") or "default")
    if known_account(call.state, account):
        return None
    return bad(f'Service account "{account}" does not exist.', NO_ACCOUNT)


@on("create", "update")
def gpu_quota(call: Call) -> Refusal | None:
    """Initial GPUs are within the quota; an empty pool and reserved machines do not count."""
    if affinity(call.inputs) == "SPECIFIC_RESERVATION":
        return None
    metric = _metric(call.inputs)
    if metric is None:
        return None
    project = project_of(call.inputs, call.config)
    asked = _gpus(call.inputs, asked_count(call.inputs), len(pool_zones(call)))
    taken = sum(
        _gpus(live, int(live.get("nodeCount") or 0), len(live.get("nodeLocations") or []))
        for _, id_, live in call.state.all(NODE_POOL)
        if id_ != call.id and live["project"] == project and _metric(live) == metric
    )
    limit = quota(call.state, metric)
    if asked == 0 or asked + taken <= limit:
        return None
    return Refusal(
        "403 QUOTA_EXCEEDED",
        f'Insufficient regional quota to satisfy request: resource "{metric}": request requires "{asked}.0" and is '
        f'short "{asked + taken - limit}.0". project has a quota of "{limit}.0" with "{max(0, limit - taken)}.0" '
        "available.",
        f"{QUEUED}; {TOOLKIT}; wording {UNVERIFIED}",
    )


def _metric(pool: Json) -> str | None:
    if affinity(pool) == "SPECIFIC_RESERVATION":
        return None
    return gpu_metric(machine(pool), preemptible=is_flex(pool) or is_spot(pool))


def _gpus(pool: Json, nodes: int, zones: int) -> int:
    each = sum(int(accelerator.get("count") or 0) for accelerator in node(pool).get("guestAccelerators") or [])
    return each * nodes * max(1, zones)
