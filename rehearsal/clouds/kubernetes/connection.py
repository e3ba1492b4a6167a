"""Which simulated cluster a provider's kubeconfig leads to, and what that cluster and its node pools offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.world import View

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
OWNER = "__cluster"
"""The key of a live object that names its cluster: "projects/P/locations/L/clusters/C"."""

UNREACHABLE = "pulumi-kubernetes: provider/pkg/provider/provider.go, 94977969, 2026-07-01"
_ENDPOINTS = (
    "endpoint",
    "controlPlaneEndpointsConfig.dnsEndpointConfig.endpoint",
    "controlPlaneEndpointsConfig.0.dnsEndpointConfig.0.endpoint",
    "controlPlaneEndpointsConfig.0.dnsEndpointConfig.endpoint",
    "privateClusterConfig.privateEndpoint",
    "privateClusterConfig.publicEndpoint",
)


def server(config: Mapping[str, Any]) -> str | None:
    """The host that the current context of the kubeconfig talks to; None if it names none."""
    text = config.get("kubeconfig")
    kubeconfig = _parsed(text) if isinstance(text, str) else text
    context = config.get("context") or value_at(kubeconfig, "current-context")
    wanted = config.get("cluster") or _named(kubeconfig, "contexts", context, "context.cluster")
    address = _named(kubeconfig, "clusters", wanted, "cluster.server")
    return address.removeprefix("https://").partition("/")[0].removesuffix(":443") if isinstance(address, str) else None


@cache
def _parsed(text: str) -> Any:
    """A kubeconfig; None if it is none. Remembered, since every rule asks for it."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def cluster(config: Mapping[str, Any], world: View) -> tuple[str, Json] | None:
    """The simulated cluster at the other end, as (id, live value)."""
    host = server(config)
    if host is None:
        return None
    for _, id_, live in world.all(CLUSTER):
        if host in (value_at(live, path) for path in _ENDPOINTS):
            return id_, live
    return None


def reaches(config: Mapping[str, Any], world: View) -> Refusal | None:
    """Why the API cannot be reached now, in the provider's words."""
    host = server(config)
    if host is None:
        return Refusal(
            "unreachable",
            "configured Kubernetes cluster is unreachable: unable to load Kubernetes client configuration from "
            "kubeconfig file. Make sure you have: set the provider's kubeconfig, with a current-context whose cluster "
            "has a server",
            UNREACHABLE,
        )
    if cluster(config, world) is None:
        return Refusal(
            "unreachable",
            f"configured Kubernetes cluster is unreachable: unable to load schema information from the API server: "
            f'Get "https://{host}/openapi/v2?timeout=32s": dial tcp: no such host or no answer: '
            "no cluster of this rehearsal has that endpoint",
            UNREACHABLE,
        )
    return None


def here(call: Call) -> tuple[str, Json]:
    """The cluster of a call that `reaches` has let through."""
    found = cluster(call.config, call.world)
    return found if found is not None else ("", {})


def version(live: Json) -> tuple[int, int] | None:
    """The cluster's Kubernetes version as (major, minor); None if it does not say."""
    text = str(live.get("masterVersion") or live.get("minMasterVersion") or "")
    parts = text.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit() else None


def node_pools(call: Call) -> Iterator[Json]:
    """The node pools of the call's cluster, those in the cluster's own description included."""
    id_, live = here(call)
    own = str(live.get("name") or id_.rpartition("/")[2])
    for _, _, pool in call.world.all(NODE_POOL):
        if str(pool.get("cluster", "")).rpartition("/")[2] == own:
            yield pool
    yield from (pool for pool in live.get("nodePools") or () if isinstance(pool, dict))
    if not live.get("removeDefaultNodePool") and not live.get("nodePools"):
        yield {"name": "default-pool", "nodeConfig": live.get("nodeConfig") or {}}


def takes_any_pod(pool: Mapping[str, Any]) -> bool:
    """Whether a pod without tolerations can run there: no GPUs (GKE taints those nodes) and no other taint."""
    config = pool.get("nodeConfig") or {}
    gpus = config.get("guestAccelerators") or str(config.get("machineType", "")).startswith(("a2-", "a3-", "a4"))
    return not gpus and not config.get("taints")


def switched_on(live: Json, *paths: str) -> bool:
    """Whether a cluster has a feature, which the SDK writes as an object or as a list of one."""
    return any(value_at(live, path) in (True, "true") for path in paths)


def _named(kubeconfig: Any, section: str, wanted: Any, path: str) -> Any:
    entries = value_at(kubeconfig, section)
    for entry in entries if isinstance(entries, list) else ():
        if value_at(entry, "name") == wanted or (wanted is None and len(entries) == 1):
            return value_at(entry, path)
    return None
