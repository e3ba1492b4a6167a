"""Devices of nodes besides CPUs and memory: GPUs and NICs by count, and NICs by claim.

Replaces device plugins (GKE's own for GPUs and networks; NVIDIA's and AWS' by Helm on EKS) and the DRANET driver, whose
pods register with the kubelet.
Sources: GKE docs, multi-network support for Pods, 2026-08, with gke-networking-api v0.2.11 for the names; the charts'
node affinities as `infra.eks.addons` cites them; kubernetes-sigs/dranet v1.4.0: pkg/apis/attributes.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.pins import DEVICE_API
from rehearsal.cluster.controllers.nodes import pool_of
from rehearsal.cluster.controllers.pools import Pool
from rehearsal.cluster.controllers.snapshot import Snapshot
from rehearsal.engine.kind import Json, value_at

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
NETWORK_PREFIX = "networking.gke.io.networks/"
DRIVER = "dra.net"
SLICES = (DEVICE_API, "ResourceSlice")
Charts = Mapping[str, Mapping[str, Any]]
"""Values of the installed Helm releases, by chart."""
Networks = Mapping[tuple[str, str], str]
"""Name of the ready Network object for a VPC and subnet."""


def update_devices(snapshot: Snapshot) -> None:
    """Correct the counts in the nodes' status and the drivers' ResourceSlices, node by node.

    They change when a plugin, a driver or a Network is added or removed.
    """
    api, pools = snapshot.api, {pool.name: pool for pool in snapshot.pools}
    slices = {each["spec"].get("nodeName"): each for each in api.list(*SLICES) if each["spec"]["driver"] == DRIVER}
    for its in snapshot.nodes:
        pool = pools.get(str(pool_of(its)))
        if pool is None:
            continue
        name = its["metadata"]["name"]
        change = difference(its, offered(pool, snapshot.networks, snapshot.charts))
        if change:
            status = {"status": {"capacity": change, "allocatable": change}}
            api.patch("v1", "Node", name, None, status, subresource="status")
        claimed, there = claimable(pool, snapshot.charts), slices.get(name)
        if claimed and there is None:
            api.create(resource_slice(its, claimed))
        if not claimed and there is not None:
            api.delete(*SLICES, there["metadata"]["name"])


def difference(node: Json, devices: Mapping[str, int]) -> dict[str, str | None]:
    """Return the status patch that gives a node exactly these devices. Pure."""
    there = {
        name: str(count)
        for name, count in ((node.get("status") or {}).get("capacity") or {}).items()
        if name in (GPU, EFA) or name.startswith(NETWORK_PREFIX)
    }
    wanted = {name: str(count) for name, count in devices.items()}
    changed: dict[str, str | None] = {name: count for name, count in wanted.items() if there.get(name) != count}
    return changed | dict.fromkeys(there.keys() - wanted.keys())


def offered(pool: Pool, networks: Networks, charts: Charts) -> dict[str, int]:
    """Return the devices of a pool's node by count, once its device plugins run."""
    if pool.cloud == "gke":
        # A device and an address for each Network of the pool's additional interfaces.
        names = [networks[pair] for pair in pool.networks if pair in networks]
        nics = {f"{NETWORK_PREFIX}{name}{suffix}": 1 for name in names for suffix in ("", ".IP")}
        return nics | ({GPU: pool.gpus} if pool.gpus else {})
    devices = {}
    if "nvidia-device-plugin" in charts and pool.labels.get("nvidia.com/gpu.present") == "true" and pool.gpus:
        devices[GPU] = pool.gpus
    if _comes_to(pool, charts.get("aws-efa-k8s-device-plugin")):
        devices[EFA] = pool.nics
    return devices


def expected(pool: Pool, networks: Networks) -> dict[str, int]:
    """Return the devices that the autoscaler expects of an upcoming node.

    On EKS it knows the GPUs of the instance type, and other devices by the tags of the Auto Scaling group
    (kubernetes/autoscaler: cloudprovider/aws README). Devices by claim are not counted.
    """
    if pool.cloud == "gke":
        return offered(pool, networks, {})
    return {**({GPU: pool.gpus} if pool.gpus else {}), **pool.announced}


def claimable(pool: Pool, charts: Charts) -> list[str]:
    """Return the names of the NICs that a driver offers by claim on a pool's node."""
    if pool.cloud == "eks":
        runs = _comes_to(pool, charts.get("aws-dranet"))
        return [f"efa{nic}" for nic in range(pool.nics)] if runs else []
    if pool.managed_dranet or ("dranet" in charts and pool.networks):
        return [f"gpu{nic}rdma0" for nic in range(pool.nics)]
    return []


def resource_slice(node: Json, names: list[str]) -> Json:
    """Return the ResourceSlice of a node's devices, which the node owns."""
    its = node["metadata"]
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{its['name']}-{DRIVER}",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": its["name"], "uid": its["uid"]}],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": its["name"],
            "pool": {"name": its["name"], "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": name,
                    "attributes": {
                        f"{DRIVER}/ifName": {"string": name},
                        f"{DRIVER}/rdma": {"bool": True},
                        f"{DRIVER}/numaNode": {"int": 0 if 2 * index < len(names) else 1},
                    },
                }
                for index, name in enumerate(names)
            ],
        },
    }


def device_class(name: str) -> Json:
    """Return a DeviceClass of the driver's RDMA devices. The clouds' selectors are not public."""
    return {
        "apiVersion": DEVICE_API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {
            "selectors": [
                {"cel": {"expression": f'device.driver == "{DRIVER}"'}},
                {"cel": {"expression": f'device.attributes["{DRIVER}"].rdma == true'}},
            ]
        },
    }


def _comes_to(pool: Pool, values: Mapping[str, Any] | None) -> bool:
    """Return whether a chart of EKS runs on the pool's nodes: by instance type and tolerations."""
    if values is None or not pool.nics:
        return False
    types = value_at(values, "supportedInstanceLabels.values")
    tolerates = {toleration.get("key") for toleration in values.get("tolerations") or ()}
    return (types is None or pool.machine in types) and all(taint["key"] in tolerates for taint in pool.taints)
