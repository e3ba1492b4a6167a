"""Rules of clusters: location, version, nodes, protection. For their networks, see `rules_cluster_network`."""

from __future__ import annotations

from rehearsal.clouds.gcp.iam import known_account
from rehearsal.clouds.gcp.node_config import node
from rehearsal.clouds.gcp.offerings import resolve
from rehearsal.clouds.gcp.references import is_zone, location_of, project_of, region_of_location
from rehearsal.clouds.gcp.refusals import (
    MULTI_NETWORK,
    NETWORK_POLICY,
    NO_ACCOUNT,
    NO_VERSION,
    PROVIDER_CLUSTER,
    UNVERIFIED,
    bad,
)
from rehearsal.clouds.kind import Call, Refusal, on, value_at

CHANNELS = ("RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED")


@on("create", "update")
def version_not_offered(call: Call) -> Refusal | None:
    """The control plane starts with an offered version."""
    asked = call.inputs.get("minMasterVersion")
    # An unchanged version needs no request, though it may no longer be offered.
    if not asked or asked == call.live.get("minMasterVersion") or resolve(str(asked), None, call.state):
        return None
    return bad(f'Master version "{asked}" is unsupported.', NO_VERSION)


@on("create")
def node_version_differs(call: Call) -> Refusal | None:
    """The nodes of the default pool start with the control plane's version."""
    asked = call.inputs.get("nodeVersion")
    if not asked or asked == call.inputs.get("minMasterVersion"):
        return None
    return bad("node_version and min_master_version must be set to equivalent values on create", PROVIDER_CLUSTER)


@on("create")
def node_version_of_removed_pool(call: Call) -> Refusal | None:
    """A default pool that is removed at once has no version of its own."""
    if not call.inputs.get("nodeVersion") or not call.inputs.get("removeDefaultNodePool"):
        return None
    return bad("node_version can only be specified if remove_default_node_pool is not true", PROVIDER_CLUSTER)


@on("create")
def channel_unknown(call: Call) -> Refusal | None:
    """The release channel is one of four, or none."""
    channel = value_at(call.inputs, "releaseChannel.channel")
    if channel is None or channel in CHANNELS:
        return None
    return bad(
        f"expected release_channel.0.channel to be one of {list(CHANNELS)}, got {channel}",
        f"{PROVIDER_CLUSTER}; wording {UNVERIFIED}",
    )


@on("create")
def no_first_node(call: Call) -> Refusal | None:
    """A cluster is created with a node, even if its pool is removed at once."""
    if call.inputs.get("initialNodeCount") or call.inputs.get("nodePools") or call.inputs.get("enableAutopilot"):
        return None
    return bad(
        "Cluster.initial_node_count must be greater than zero.", f"GKE API, clusters.create; wording {UNVERIFIED}"
    )


@on("create", "update")
def zone_named_twice(call: Call) -> Refusal | None:
    """The node locations of a zonal cluster do not include its own zone."""
    location = location_of(call.inputs, call.config)
    if not is_zone(location) or location not in (call.inputs.get("nodeLocations") or []):
        return None
    return bad(
        "when using a multi-zonal cluster, node_locations should not contain the original 'zone'", PROVIDER_CLUSTER
    )


@on("create", "update")
def zones_elsewhere(call: Call) -> Refusal | None:
    """Nodes are in the region of the control plane."""
    region = region_of_location(location_of(call.inputs, call.config))
    for zone in call.inputs.get("nodeLocations") or []:
        if not is_zone(str(zone)) or region_of_location(str(zone)) != region:
            return bad(
                f'Location "{zone}" is not a zone in region "{region}".',
                f"{PROVIDER_CLUSTER}: node_locations; wording {UNVERIFIED}",
            )
    return None


@on("create")
def network_policy_with_dataplane_v2(call: Call) -> Refusal | None:
    """Dataplane V2 enforces network policies itself."""
    if call.inputs.get("datapathProvider") != "ADVANCED_DATAPATH":
        return None
    if value_at(call.inputs, "networkPolicy.enabled") is not True:
        return None
    return bad(
        "Enabling NetworkPolicy for clusters with DatapathProvider=ADVANCED_DATAPATH is not allowed.", NETWORK_POLICY
    )


@on("create", "update")
def multi_networking_without_dataplane_v2(call: Call) -> Refusal | None:
    """Multi-networking needs Dataplane V2."""
    if call.inputs.get("enableMultiNetworking") is not True:
        return None
    if call.inputs.get("datapathProvider") == "ADVANCED_DATAPATH":
        return None
    return bad(
        "Multi-networking requires DatapathProvider=ADVANCED_DATAPATH.", f"{MULTI_NETWORK}; wording {UNVERIFIED}"
    )


@on("create", "update")
def multi_networking_without_ip_aliases(call: Call) -> Refusal | None:
    """Multi-networking needs a VPC-native cluster."""
    if call.inputs.get("enableMultiNetworking") is not True or call.inputs.get("networkingMode") != "ROUTES":
        return None
    return bad("Multi-networking requires a VPC-native cluster.", f"{MULTI_NETWORK}; wording {UNVERIFIED}")


@on("create", "update")
def multi_networking_with_dual_stack(call: Call) -> Refusal | None:
    """Multi-networking supports IPv4 only."""
    if call.inputs.get("enableMultiNetworking") is not True:
        return None
    if value_at(call.inputs, "ipAllocationPolicy.stackType") != "IPV4_IPV6":
        return None
    return bad("Multi-networking is not supported on dual-stack clusters.", f"{MULTI_NETWORK}; wording {UNVERIFIED}")


@on("create", "update")
def multi_networking_with_hubble(call: Call) -> Refusal | None:
    """Managed Hubble does not support additional interfaces."""
    relay = value_at(call.inputs, "monitoringConfig.advancedDatapathObservabilityConfig.enableRelay")
    if call.inputs.get("enableMultiNetworking") is not True or relay is not True:
        return None
    return bad(
        "Multi-networking cannot be used with Dataplane V2 observability (managed Hubble).",
        f"{MULTI_NETWORK}; wording {UNVERIFIED}",
    )


@on("create", "update")
def workload_pool_of_other_project(call: Call) -> Refusal | None:
    """A project has one workload identity pool, named after it."""
    asked = value_at(call.inputs, "workloadIdentityConfig.workloadPool")
    project = project_of(call.inputs, call.config)
    if not asked or asked == f"{project}.svc.id.goog":
        return None
    return bad(
        f'Currently, the only supported workload pool is "{project}.svc.id.goog".',
        f"GKE docs workload-identity; wording {UNVERIFIED}",
    )


@on("create")
def node_account_missing(call: Call) -> Refusal | None:
    """The service account of the default pool exists."""
    account = str(node(call.inputs).get("serviceAccount") or "default")
    if known_account(call.state, account):
        return None
    return bad(f'Service account "{account}" does not exist.', NO_ACCOUNT)


@on("delete")
def protected(call: Call) -> Refusal | None:
    """A protected cluster is not deleted; protection is on unless an earlier update turned it off."""
    if call.live.get("deletionProtection") is False:
        return None
    return bad(
        "Cannot destroy cluster because deletion_protection is set to true. Set it to false to proceed with cluster "
        "deletion.",
        PROVIDER_CLUSTER,
    )
