"""Hand-written cloud state: a cluster, its pools and their resources, as the plugins would leave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens as aws
from rehearsal.clouds.gcp import references as gcp
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State, View

GKE = "projects/p/locations/us-central1/clusters/blue"
EKS = "green"
NICS = ("gvnic-1", *(f"rdma-{nic}" for nic in range(8)))
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
WHOLE_NODE = {"cpu": "220", "memory": "2800Gi", "nvidia.com/gpu": "8", "ephemeral-storage": "1000Gi"}
"""Requests of a worker on an A3 Ultra."""


def gke(state: State, *pools: Json) -> None:
    """Create a GKE cluster with multi-networking, its networks, a system pool of one node, and more pools."""
    cluster = {
        "name": "blue",
        "network": "projects/p/global/networks/blue",
        "subnetwork": "blue",
        "enableMultiNetworking": True,
    }
    with state.transaction() as view:
        view.put(gcp.CLUSTER, GKE, cluster)
        for name in ("blue", "blue-gvnic", "blue-rdma"):
            view.put(gcp.NETWORK, name, {"name": name})
        for nic in NICS:
            view.put(gcp.SUBNETWORK, nic, {"name": f"blue-{nic}"})
        for pool in (gke_pool("system", "e2-standard-8", least=1, most=3, count=1), *pools):
            view.put(gcp.NODE_POOL, f"{GKE}/nodePools/{pool['name']}", pool)


def gke_pool(name: str, machine: str, *, least: int = 0, most: int, count: int = 0, **more: Any) -> Json:
    """Return a live node pool."""
    return {
        "name": name,
        "cluster": "blue",
        "location": "us-central1",
        "nodeLocations": ["us-central1-b"],
        "nodeCount": count,
        "autoscaling": {"totalMinNodeCount": least, "totalMaxNodeCount": most},
        **more,
        "nodeConfig": {"machineType": machine, **more.get("nodeConfig", {})},
    }


def gpu_pool(name: str, most: int, *, node: Mapping[str, Any] | None = None, **more: Any) -> Json:
    """Return an empty live node pool of A3 Ultra machines, with interfaces in every network of the cluster."""
    vpcs = ("blue-gvnic", *["blue-rdma"] * 8)
    interfaces = [{"network": vpc, "subnetwork": f"blue-{nic}"} for vpc, nic in zip(vpcs, NICS, strict=True)]
    config = {
        "guestAccelerators": [{"type": "nvidia-h200-141gb", "count": 8}],
        "taints": [GPU_TAINT],
        "effectiveTaints": [GPU_TAINT],
        "ephemeralStorageLocalSsdConfig": {"localSsdCount": 32},
        **(node or {}),
    }
    more["networkConfig"] = {"additionalNodeNetworkConfigs": interfaces}
    return gke_pool(name, "a3-ultragpu-8g", most=most, nodeConfig=config, **more)


def eks(state: State, most: int) -> None:
    """Create an EKS cluster with a system group of one node and an empty group of P5en machines, tagged for the
    autoscaler."""
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    with state.transaction() as view:
        view.put(aws.CLUSTER, EKS, {"name": EKS})
        view.put(aws.SUBNET, "subnet", {"availabilityZone": "us-east-2a"})
        _group(view, "system", "m6i.2xlarge", {"minSize": 1, "maxSize": 3, "desiredSize": 1})
        _group(
            view,
            "gpu",
            "p5en.48xlarge",
            {"minSize": 0, "maxSize": most, "desiredSize": 0},
            labels={"nvidia.com/gpu.present": "true", "k8s.amazonaws.com/accelerator": "nvidia-h200"},
            taints=[taint],
        )
        for resource, count in (("nvidia.com/gpu", 8), ("vpc.amazonaws.com/efa", 16)):
            key = f"k8s.io/cluster-autoscaler/node-template/resources/{resource}"
            tag = {"autoscalingGroupName": "eks-gpu", "tag": {"key": key, "value": str(count)}}
            view.put(aws.GROUP_TAG, f"eks-gpu,{key}", tag)


def _group(view: View, name: str, machine: str, scaling: Json, **more: Any) -> None:
    group = {
        "clusterName": EKS,
        "nodeGroupName": name,
        "instanceTypes": [machine],
        "subnetIds": ["subnet"],
        "scalingConfig": scaling,
        "resources": [{"autoscalingGroups": [{"name": f"eks-{name}"}]}],
        **more,
    }
    view.put(aws.NODE_GROUP, f"{EKS}:{name}", group)


def pod(name: str, *, selector: Json | None = None) -> Json:
    """Return a pod that takes a whole A3 Ultra."""
    container = {"name": "work", "image": "work", "resources": {"requests": WHOLE_NODE, "limits": WHOLE_NODE}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": selector or {"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        },
    }
