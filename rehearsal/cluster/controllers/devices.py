"""Devices of nodes besides CPUs and memory: GPUs and NICs by count, and NICs by claim. Pure.

Replaces device plugins (GKE's own for GPUs and networks; NVIDIA's and AWS' by Helm on EKS) and the DRANET driver.
Sources: GKE docs, multi-network support for Pods, 2026-08, with gke-networking-api v0.2.11 for the names; the charts'
node affinities as `infra.eks.addons` cites them; kubernetes-sigs/dranet v1.4.0: pkg/apis/attributes.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.pins import DEVICE_API
from rehearsal.clouds.kind import Json, value_at
from rehearsal.cluster.controllers.pools import Pool

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
NETWORK_PREFIX = "networking.gke.io.networks/"
DRIVER = "dra.net"
Charts = Mapping[str, Mapping[str, Any]]
"""Values of the installed Helm releases, by chart."""
Networks = Mapping[tuple[str, str], str]
"""Name of the ready Network object for a VPC and subnet."""


def offered(pool: Pool, networks: Networks, charts: Charts) -> dict[str, int]:
    """Return the devices of a pool's node by count, once its device plugins run."""
    if pool.cloud == "gke":
        gpus = {GPU: pool.gpus} if pool.gpus else {}
        return {**gpus, **_by_network(pool, networks)}
    found = {}
    if "nvidia-device-plugin" in charts and pool.labels.get("nvidia.com/gpu.present") == "true" and pool.gpus:
        found[GPU] = pool.gpus
    if _comes_to(pool, charts.get("aws-efa-k8s-device-plugin")):
        found[EFA] = pool.nics
    return found


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
    """Return a DeviceClass of the driver's RDMA devices. The clouds' own selectors are not public."""
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


def _by_network(pool: Pool, networks: Networks) -> dict[str, int]:
    """Return a device and an address for each Network of the pool's additional interfaces."""
    names = [networks[pair] for pair in pool.networks if pair in networks]
    return {f"{NETWORK_PREFIX}{name}{suffix}": 1 for name in names for suffix in ("", ".IP")}


def _comes_to(pool: Pool, values: Mapping[str, Any] | None) -> bool:
    """Return whether a chart of EKS runs on the pool's nodes: by instance type and tolerations."""
    if values is None or not pool.nics:
        return False
    types = value_at(values, "supportedInstanceLabels.values")
    tolerates = {toleration.get("key") for toleration in values.get("tolerations") or ()}
    return (types is None or pool.machine in types) and all(taint["key"] in tolerates for taint in pool.taints)
