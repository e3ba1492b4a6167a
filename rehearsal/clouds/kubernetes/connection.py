"""Simulated cluster of a provider's kubeconfig, with its version, features and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.state import View

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
EKS_CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ACCESS_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
OWNER = "__cluster"
"""Key of a live object with its cluster: "projects/P/locations/L/clusters/C", or an EKS cluster's name."""
POOL_LABELS = ("cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup")
"""Labels with the pool or group of a node (GKE and EKS docs; unverified, 2026-11)."""
NO_ENTRY = "EKS docs, access entries: authentication mode API requires one; wording unverified, 2026-11"

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
    """Return the host of the kubeconfig's current context, or None."""
    text = config.get("kubeconfig")
    kubeconfig = _parsed(text) if isinstance(text, str) else text
    context = config.get("context") or value_at(kubeconfig, "current-context")
    wanted = config.get("cluster") or _named(kubeconfig, "contexts", context, "context.cluster")
    address = _named(kubeconfig, "clusters", wanted, "cluster.server")
    return address.removeprefix("https://").partition("/")[0].removesuffix(":443") if isinstance(address, str) else None


@cache
def _parsed(text: str) -> Any:
    """Parse a kubeconfig, or return None. Cached, since every rule needs it."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def cluster(config: Mapping[str, Any], state: View) -> tuple[str, Json] | None:
    """Return the simulated cluster of the kubeconfig, as (id, live value)."""
    host = server(config)
    if host is None:
        return None
    for type_ in (CLUSTER, EKS_CLUSTER):
        for _, id_, live in state.all(type_):
            # EKS has a URL where GKE has a host.
            if host in (str(value_at(live, path)).removeprefix("https://") for path in _ENDPOINTS):
                return id_, live
    return None


def reaches(config: Mapping[str, Any], state: View) -> Refusal | None:
    """Return why the API is unreachable, in the provider's words, or None."""
    host = server(config)
    if host is None:
        return Refusal(
            "unreachable",
            "configured Kubernetes cluster is unreachable: unable to load Kubernetes client configuration from "
            "kubeconfig file. Make sure you have: set the provider's kubeconfig, with a current-context whose cluster "
            "has a server",
            UNREACHABLE,
        )
    found = cluster(config, state)
    if found is None:
        return Refusal(
            "unreachable",
            f"configured Kubernetes cluster is unreachable: unable to load schema information from the API server: "
            f'Get "https://{host}/openapi/v2?timeout=32s": dial tcp: no such host or no answer: '
            "no cluster of this rehearsal has that endpoint",
            UNREACHABLE,
        )
    if value_at(found[1], "accessConfig.authenticationMode") == "API" and not _let_in(state, found[0]):
        return Refusal("401 Unauthorized", "the server has asked for the client to provide credentials", NO_ENTRY)
    return None


def _let_in(state: View, eks: str) -> bool:
    """Return whether any identity has access to an EKS cluster; the simulation has no caller identity."""
    return any(live.get("clusterName") == eks for _, _, live in state.all(ACCESS_POLICY))


def here(call: Call) -> tuple[str, Json]:
    """Return the cluster of a call that `reaches` has accepted."""
    found = cluster(call.config, call.state)
    return found if found is not None else ("", {})


def version(live: Json) -> tuple[int, int] | None:
    """Return the cluster's Kubernetes version as (major, minor), or None."""
    text = str(live.get("masterVersion") or live.get("minMasterVersion") or live.get("version") or "")
    parts = text.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit() else None


@dataclass(frozen=True)
class Pool:
    """Nodes of one kind: a node pool of GKE or a node group of EKS.

    `open`: whether a pod without tolerations can run there. `labels`: the labels that the cloud sets on its nodes.
    """

    name: str
    open: bool
    live: Json
    labels: Mapping[str, str] = field(default_factory=dict)

    def takes(self, selector: Mapping[str, Any]) -> bool:
        """Return whether a node selector may match these nodes, ignoring keys that the cloud does not set."""
        return all(self.labels.get(key) == value for key, value in selector.items() if key in POOL_LABELS)


def pools(call: Call) -> Iterator[Pool]:
    """Return the pools of the call's cluster, including those in a GKE cluster's own inputs."""
    id_, live = here(call)
    own = str(live.get("name") or id_.rpartition("/")[2])
    if call.state.get(EKS_CLUSTER, id_) is not None:
        for _, _, group in call.state.all(NODE_GROUP):
            if group.get("clusterName") == own:
                yield _group(group)
        return
    for _, _, pool in call.state.all(NODE_POOL):
        if str(pool.get("cluster", "")).rpartition("/")[2] == own:
            yield _pool(pool)
    yield from (_pool(pool) for pool in live.get("nodePools") or () if isinstance(pool, dict))
    if not live.get("removeDefaultNodePool") and not live.get("nodePools"):
        yield _pool({"name": "default-pool", "nodeConfig": live.get("nodeConfig") or {}})


def _group(group: Json) -> Pool:
    name = str(group.get("nodeGroupName"))
    repels = any(taint.get("effect") != "PREFER_NO_SCHEDULE" for taint in group.get("taints") or ())
    there = int(value_at(group, "scalingConfig.desiredSize") or 0) > 0
    return Pool(name, there and not repels, group, {"eks.amazonaws.com/nodegroup": name})


def _pool(pool: Json) -> Pool:
    """Return whether pods need a toleration: GKE taints GPU nodes automatically."""
    config = pool.get("nodeConfig") or {}
    gpus = config.get("guestAccelerators") or str(config.get("machineType", "")).startswith(("a2-", "a3-", "a4"))
    name = str(pool.get("name"))
    return Pool(name, not gpus and not config.get("taints"), pool, {"cloud.google.com/gke-nodepool": name})


def switched_on(live: Json, *paths: str) -> bool:
    """Return whether a cluster has a feature, which the SDK writes as an object or as a list of one."""
    return any(value_at(live, path) in (True, "true") for path in paths)


def _named(kubeconfig: Any, section: str, wanted: Any, path: str) -> Any:
    entries = value_at(kubeconfig, section)
    for entry in entries if isinstance(entries, list) else ():
        if value_at(entry, "name") == wanted or (wanted is None and len(entries) == 1):
            return value_at(entry, path)
    return None
