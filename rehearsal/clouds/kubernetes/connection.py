"""Simulated cluster of a provider's kubeconfig, or the user's of its context, with its version and nodes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from rehearsal.clouds.kubernetes import identity
from rehearsal.engine.kind import Call, Json, Refusal, value_at, values_at
from rehearsal.engine.state import View

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
EKS_CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ACCESS_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
OWNER = "__cluster"
"""Key of a live object with its cluster: "projects/P/locations/L/clusters/C", or an EKS cluster's name."""
USERS = "users cluster"
"""Setting of the state: name of the context and version of the cluster that the user has (`users_cluster`)."""
POOL_LABELS = ("cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup")
"""Labels with the pool or group of a node (GKE and EKS docs; unverified, 2026-11)."""
NO_ENTRY = "EKS docs, access entries: authentication mode API requires one; wording unverified, 2026-11"

UNREACHABLE = "pulumi-kubernetes: provider/pkg/provider/provider.go, 94977969, 2026-07-01"
_DNS = "controlPlaneEndpointsConfig.dnsEndpointConfig"
_ENDPOINTS = {
    "endpoint": None,
    f"{_DNS}.endpoint": (f"{_DNS}.allowExternalTraffic", False),
    "privateClusterConfig.privateEndpoint": None,
    "privateClusterConfig.publicEndpoint": ("privateClusterConfig.enablePrivateEndpoint", True),
}
"""Endpoints of a cluster, and the value of another property that closes one to users (GKE API, clusters)."""


def is_in_cluster(type_: str, live: Json, id_: str) -> bool:
    """Return whether a live object is in the Kubernetes API of a cluster, and so is deleted with it."""
    return type_.startswith("kubernetes:") and live.get(OWNER) == id_


def certificate(cluster: str) -> str:
    """Return a placeholder for a CA certificate in the API's format: base64 of PEM."""
    body = base64.b64encode(f"simulated certificate authority of {cluster}".encode()).decode()
    return base64.b64encode(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()).decode()


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
    """Return the simulated cluster of the kubeconfig or context, as (id, live value)."""
    host = server(config)
    if host is None:
        users = state.setting(USERS)
        return ("", users) if users and users["name"] == config.get("context") else None
    for type_ in (CLUSTER, EKS_CLUSTER):
        for _, id_, live in state.all(type_):
            is_open = [path for path, shut in _ENDPOINTS.items() if not shut or value_at(live, shut[0]) is not shut[1]]
            # EKS has a URL where GKE has a host.
            if host in (str(each).removeprefix("https://") for path in is_open for each in values_at(live, path)):
                return id_, live
    return None


def reaches(config: Mapping[str, Any], state: View) -> Refusal | None:
    """Return why the API is unreachable, in the provider's words, or None."""
    host, found = server(config), cluster(config, state)
    words = "configured Kubernetes cluster is unreachable: unable to load"
    if host is None and found is None:
        return Refusal("unreachable", f"{words} Kubernetes client configuration from kubeconfig file", UNREACHABLE)
    if found is None:
        words += f' schema information from the API server: Get "https://{host}/openapi/v2?timeout=32s": dial tcp: '
        return Refusal("unreachable", f"{words}no cluster of this rehearsal has that endpoint", UNREACHABLE)
    # The simulation has no caller, so any identity's access counts.
    if value_at(found[1], "accessConfig.authenticationMode") == "API" and not any(
        live.get("clusterName") == found[0] for _, _, live in state.all(ACCESS_POLICY)
    ):
        return Refusal("401 Unauthorized", "the server has asked for the client to provide credentials", NO_ENTRY)
    return None


def here(call: Call) -> tuple[str, Json]:
    """Return the cluster of a call that `reaches` has accepted."""
    return cluster(call.config, call.state) or ("", {})


def version(live: Json) -> tuple[int, int] | None:
    """Return the cluster's Kubernetes version as (major, minor), or None."""
    text = str(live.get("masterVersion") or live.get("minMasterVersion") or live.get("version"))
    parsed = re.match(r"(\d+)\.(\d+)", text)
    return (int(parsed[1]), int(parsed[2])) if parsed else None


def open_pools(call: Call) -> Iterator[str]:
    """Yield the node pools (GKE), node groups (EKS) or nodes (the user's) that take pods without tolerations."""
    id_, live = here(call)
    if live and not id_:
        every = ((name, value_at(node, "spec.taints")) for _, name, node in call.state.all(identity.NODE))
        yield from (name for name, taints in every if not taints)
        return
    cluster_name = str(live.get("name") or id_.rpartition("/")[2])
    if call.state.get(EKS_CLUSTER, id_) is not None:
        for _, _, group in call.state.all(NODE_GROUP):
            repels = any(taint.get("effect") != "PREFER_NO_SCHEDULE" for taint in group.get("taints") or ())
            there = int(value_at(group, "scalingConfig.desiredSize") or 0) > 0
            if group.get("clusterName") == cluster_name and there and not repels:
                yield str(group.get("nodeGroupName"))
        return
    pools = [
        pool for _, _, pool in call.state.all(NODE_POOL) if str(pool.get("cluster")).rpartition("/")[2] == cluster_name
    ]
    pools += live.get("nodePools") or ()
    if not live.get("removeDefaultNodePool") and not live.get("nodePools"):
        pools.append({"name": "default-pool", "nodeConfig": live.get("nodeConfig")})
    for pool in pools:
        config = pool.get("nodeConfig") or {}
        # GKE taints nodes with GPUs itself.
        gpus = config.get("guestAccelerators") or str(config.get("machineType", "")).startswith(("a2-", "a3-", "a4"))
        if not gpus and not config.get("taints"):
            yield str(pool.get("name"))


def _named(kubeconfig: Any, section: str, wanted: Any, path: str) -> Any:
    entries = value_at(kubeconfig, section)
    for entry in entries if isinstance(entries, list) else ():
        if value_at(entry, "name") == wanted or (wanted is None and len(entries) == 1):
            return value_at(entry, path)
    return None
