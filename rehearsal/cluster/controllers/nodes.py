"""Node objects: a pool's machine, labels, taints and devices.

kwok simulates each kubelet: it reports the node as ready and its pods as running. At depth `pods` a real kubelet adopts
the object and writes the status itself (`real_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.quantities import amounts, left_for_pods
from rehearsal.cluster.controllers.scheduling import CandidateNode
from rehearsal.engine.kind import Json
from rehearsal.engine.values import digest

_LEVELS = {
    "gke": [f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock", "host")],
    "eks": [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)],
}
POOL = "rehearsal.rdma-ray/pool"
"""Annotation of the nodes of the cloud controllers."""


def node(pool: Pool, name: str, devices: Mapping[str, int]) -> Json:
    """Return the Node object; `devices` by count."""
    count = {resource: str(number) for resource, number in devices.items()}
    left = left_for_pods(pool.cpus, pool.memory, pool.storage)
    machine = f"gce://rehearsal/{pool.zone}/{name}" if pool.cloud == "gke" else f"aws:///{pool.zone}/{name}"
    whole = {"cpu": str(pool.cpus), "memory": str(pool.memory), "ephemeral-storage": str(pool.storage), "pods": "110"}
    own: dict[str, Any] = {
        "labels": {**pool.labels, **_topology(pool, name), "kubernetes.io/hostname": name},
        "annotations": {POOL: pool.name},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **own},
        "spec": {"taints": list(pool.taints), "providerID": machine},
        "status": {"capacity": {**whole, **count}, "allocatable": {**left, **count}},
    }


def template(pool: Pool, name: str, devices: Mapping[str, int]) -> CandidateNode:
    """Return a hypothetical node of the pool, for the autoscaler."""
    return CandidateNode(
        name=name,
        pool=pool.name,
        labels={**pool.labels, "kubernetes.io/hostname": name},
        taints=list(pool.taints),
        free=amounts({**left_for_pods(pool.cpus, pool.memory, pool.storage), **devices}),
    )


def pool_of(node: Json) -> str | None:
    """Return the pool of a node; None for any other node."""
    name = (node["metadata"].get("annotations") or {}).get(POOL)
    return None if name is None else str(name)


def _topology(pool: Pool, name: str) -> dict[str, str]:
    """Return a node's topology labels: one block, one sub-block (GKE docs, topology-aware scheduling, read 2026-08;
    EKS docs, ml-workload-topology, read 2026-11)."""
    above = pool.key[1], f"{pool.key[1]}/sub"
    places = (*above, f"{above[1]}/sub" if pool.cloud == "eks" else name) if pool.placed else ()
    return {level: digest(its) for level, its in zip(_LEVELS[pool.cloud], places, strict=False)}
