"""GKE node pools: id, computed outputs, references and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.gcp import capacity
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.capacity import affinity, filled_in, is_flex, is_queued, is_spot, machine, node
from rehearsal.clouds.gcp.drift import drift_node_pool
from rehearsal.clouds.gcp.offerings import GPU_QUOTA, MACHINES, gpu_metric
from rehearsal.clouds.gcp.references import PROVIDER, TKE, cluster_of, pool_zones, project_of, tested
from rehearsal.engine.kind import Call, Json, Reference, Refusal, ResourceKind, value_at
from rehearsal.engine.values import blocks, digest, kept, last

_LIMITS = tested("ContainerNodePool_totalSize, TestAccContainerNodePool_regionalAutoscaling")
RECREATES = frozenset({"version"}) | {
    f"nodeConfig.{name}"
    for name in (
        *("diskSizeGb", "diskType", "gcfsConfig", "gvnic", "imageType", "kubeletConfig", "linuxNodeConfig"),
        *("containerdConfig", "loggingVariant", "machineType", "workloadMetadataConfig"),
    )
}
"""Inputs that GKE changes with an upgrade of the pool, node by node (GKE API, nodePools.update; GKE docs, manual
changes that recreate the nodes; unverified, 2026-11). Labels, taints, tags and autoscaling change without one."""


def identify_node_pool(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/locations/L/clusters/C/nodePools/N. A generated name depends on the inputs only."""
    cluster = gcp.cluster_of_pool(inputs, config)
    return f"{cluster}/nodePools/{inputs.get('name') or str(inputs.get('namePrefix', '')) + digest(cluster)}"


def node_pool_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id P/L/C/N."""
    project, location, cluster, name = text.split("/")
    return f"projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{name}"


def asked_count(inputs: Mapping[str, Any]) -> int:
    """Return the initial number of nodes per zone."""
    return int(inputs.get("nodeCount") or inputs.get("initialNodeCount") or 0)


def compute_node_pool(call: Call) -> Json:
    """Return version, zones, networks, and GKE's defaults."""
    project, cluster = project_of(call.inputs, call.config), cluster_of(call)
    name, zones = last(call.id), pool_zones(call)
    counts = dict.fromkeys(("nodeCount", "initialNodeCount"), asked_count(call.inputs))
    short_lived = is_flex(call.inputs) or is_queued(call.inputs)
    return {
        "name": name,
        "project": project,
        "location": gcp.location_of({**cluster, **call.inputs}, call.config),
        **kept(call, {"version": cluster.get("masterVersion", ""), "nodeLocations": zones, **counts}),
        **blocks(
            call,
            {
                "nodeConfig": filled_in(call.inputs),
                "management": {"autoRepair": True, "autoUpgrade": True},
                "upgradeSettings": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
            },
        ),
        # Whatever the program sets (crossplane-contrib/provider-upjet-gcp#1028).
        **({"upgradeSettings": {"strategy": "SHORT_LIVED"}} if short_lived else {}),
        "networkConfig": _networks(call),
    }


def _networks(call: Call) -> Json:
    """Return the network configuration with names of networks, as GKE answers, and those that GKE creates.

    A program that sets full paths gets a difference that replaces the pool.
    """
    config: Json = {"enablePrivateNodes": False, "podRange": "", "podIpv4CidrBlock": ""}
    config |= call.live.get("networkConfig") or {}
    config |= call.inputs.get("networkConfig") or {}
    asked = config.get("additionalNodeNetworkConfigs") or []
    names = [{**one, **{name: last(str(one[name])) for name in ("network", "subnetwork")}} for one in asked]
    if config.get("acceleratorNetworkProfile") and not names:
        row, net = MACHINES.get(machine(call.inputs), {}), f"gke-{digest(call.id)}"
        names = [{"network": f"{net}-gvnic", "subnetwork": f"{net}-gvnic"}] * (int(row.get("hostNics", 2)) - 1)
        names += [{"network": f"{net}-rdma", "subnetwork": f"{net}-{nic}"} for nic in range(row.get("rdmaNics", 0))]
    return {**config, "additionalNodeNetworkConfigs": names} if names else config


@rule(refused=f"{TKE}#682, 2020-09-21", accepted=tested("ContainerNodePool_withManagement"))
def release_channel_upgrades_nodes(call: Call) -> str | None:
    """A release channel upgrades the nodes."""
    channel = value_at(cluster_of(call), "releaseChannel.channel")
    wrong = channel not in (None, "UNSPECIFIED") and value_at(call.inputs, "management.autoUpgrade") is False
    return f"Auto_upgrade cannot be false when release_channel {channel} is set." if wrong else None


@rule(refused=f"{TKE}#1554, 2023-02-02", accepted=_LIMITS)
def autoscaled_pool_may_grow(call: Call) -> str | None:
    """The autoscaler's maximum is above 0."""
    scaling = call.inputs.get("autoscaling") or {}
    wrong = scaling and not (scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount"))
    return "max_node_count must be at least 1 with autoscaling." if wrong else None


@rule(
    refused="vanvalenlab/kiosk-console#367, 2020-06-29",
    accepted=tested("ContainerNodePool_withRDMA"),
    status="403 QUOTA_EXCEEDED",
)
def gpus_are_within_quota(call: Call) -> str | None:
    """Initial GPUs are within the quota; an empty pool and reserved machines do not count."""
    metric = gpu_metric(machine(call.inputs), preemptible=is_flex(call.inputs) or is_spot(call.inputs))
    nodes = asked_count(call.inputs) * max(1, len(pool_zones(call)))
    asked = nodes * sum(int(each.get("count") or 0) for each in node(call.inputs).get("guestAccelerators") or [])
    wrong = metric and asked > GPU_QUOTA and affinity(call.inputs) != "SPECIFIC_RESERVATION"
    said = f'Insufficient regional quota to satisfy request: resource "{metric}": request requires "{asked}.0"'
    return f'{said} and is short "{asked - GPU_QUOTA}.0".' if wrong else None


NODE_POOL = ResourceKind(
    type=gcp.NODE_POOL,
    identify=identify_node_pool,
    from_import=node_pool_from_import,
    compute=compute_node_pool,
    # Without nodeConfig.resourceLabels: the provider hides GKE's additions (provider: node_config.go).
    maps=frozenset({"nodeConfig.labels", "nodeConfig.metadata"}),
    # A block that comes or goes; its type has one value.
    replace_on=frozenset({"placementPolicy"}),
    references=(
        Reference(
            path="cluster",
            types=(gcp.CLUSTER,),
            resolve=lambda _value, inputs, config: gcp.cluster_of_pool(inputs, config),
            holds=False,
        ),
        gcp.AS_ACCOUNT,
        gcp.reference("placementPolicy.policyName", gcp.RESOURCE_POLICY, gcp.resource_policy_id),
        gcp.reference("networkConfig.additionalNodeNetworkConfigs.network", gcp.NETWORK, gcp.network_id),
        gcp.reference("networkConfig.additionalNodeNetworkConfigs.subnetwork", gcp.SUBNETWORK, gcp.subnetwork_id),
    ),
    rules=(*rules_of(globals()), *capacity.RULES),
    drift=drift_node_pool,
    awaited=True,
    nodes=lambda live: int(live.get("nodeCount") or 0) * len(live.get("nodeLocations") or ()),
    recreates=RECREATES,
    # The provider looks for the pool before its request.
    conflict=lambda _type, id_: Refusal("409 alreadyExists", f"resource - {id_} - already exists", PROVIDER),
)
