"""Nodes as the API server has them: of a pool's machine, labels and taints, with the devices that are offered on it.

kwok plays the kubelet of each: it reports the node as ready and its pods as running, whatever they are. At depth `pods`
a real kubelet takes the object over, but for its status, which it writes itself (`machines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.kind import Json
from rehearsal.clouds.values import digest
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.quantities import amounts, left_for_pods
from rehearsal.cluster.controllers.scheduling import CandidateNode

_LEVELS = ("block", "subblock", "host")
POOL = "rehearsal.rdma-ray/pool"
"""The annotation by which the landlord knows its nodes."""


def node(pool: Pool, name: str, devices: Mapping[str, int]) -> Json:
    """The Node object; `devices` by count."""
    count = {resource: str(number) for resource, number in devices.items()}
    whole = {"cpu": str(pool.cpus), "memory": str(pool.memory), "ephemeral-storage": str(pool.storage), "pods": "110"}
    own: dict[str, Any] = {
        "labels": {**pool.labels, **_topology(pool, name), "kubernetes.io/hostname": name},
        "annotations": {POOL: pool.name},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **own},
        "spec": {"taints": list(pool.taints), "providerID": _provider_id(pool, name)},
        "status": {"capacity": {**whole, **count}, "allocatable": {**_left(pool), **count}},
    }


def template(pool: Pool, name: str, devices: Mapping[str, int]) -> CandidateNode:
    """A node of the pool that is not there yet, as the autoscaler imagines it."""
    return CandidateNode(
        name=name,
        pool=pool.name,
        labels={**pool.labels, "kubernetes.io/hostname": name},
        taints=list(pool.taints),
        free=amounts({**_left(pool), **devices}),
    )


def pool_of(node: Json) -> str | None:
    """The pool of a node; None for one that the landlord did not make."""
    name = (node["metadata"].get("annotations") or {}).get(POOL)
    return None if name is None else str(name)


def _topology(pool: Pool, name: str) -> dict[str, str]:
    """Where the node stands, from far to near (GKE docs on topology-aware scheduling, read 2026-08): one block, one
    sub-block, a host of its own."""
    places = (pool.key[1], f"{pool.key[1]}/sub", name) if pool.placed else ()
    return {f"cloud.google.com/gce-topology-{level}": digest(its) for level, its in zip(_LEVELS, places, strict=False)}


def _left(pool: Pool) -> dict[str, str]:
    return left_for_pods(pool.cpus, pool.memory, pool.storage)


def _provider_id(pool: Pool, name: str) -> str:
    return f"gce://rehearsal/{pool.zone}/{name}" if pool.cloud == "gke" else f"aws:///{pool.zone}/{name}"
