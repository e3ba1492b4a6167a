"""The network between nodes, and the pod requirements for using it.

Both are plain data in Kubernetes' JSON format, independent of the cloud. RayCluster, RayJob, Indexed Job and NCCL Job
use a `GpuPod` in the same way, so a new fabric is one function that returns a `GpuPod`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from infra.catalog.pins import DEVICE_API

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Variable:
    """An environment variable with its reason and source."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The network between nodes.

    Args:
        transport: gIB (RoCE), EFA, or sockets.
        nics: RDMA NICs of a node; None without RDMA.
        gbps_per_nic: Gbit/s of one NIC, each way; None without RDMA.
        aligned: Whether a pod gets every GPU together with the NICs on the same PCIe switch.
        environment: Variables that every process needs.
        script: Script to source before the process starts, which sets the other variables as the installed plugin
            needs them; None without one.
        scripted: Variables that the script set when last read, for comparison and for images that cannot source it.
    """

    transport: Literal["gib", "efa", "socket"]
    nics: int | None
    gbps_per_nic: int | None
    aligned: bool
    environment: tuple[Variable, ...]
    script: str | None = None
    scripted: tuple[Variable, ...] = ()

    @property
    def gbps(self) -> int | None:
        """Line rate of a node, Gbit/s each way; None without RDMA."""
        return None if self.nics is None or self.gbps_per_nic is None else self.nics * self.gbps_per_nic


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """Requirements of a pod that owns all GPUs and RDMA NICs of its node.

    They apply to the pod's first container: only that one gets the device files. The methods return copies, which
    callers may change.

    Args:
        node_selector: Empty where Kueue chooses among several node pools.
        setup: Shell command to run before the process; None without one.
        objects: Manifests that must exist, in the pod's namespace unless they are cluster-scoped.
    """

    annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Json]
    resources: Json
    resource_claims: Sequence[Json]
    volumes: Sequence[Json]
    volume_mounts: Sequence[Json]
    environment: tuple[Variable, ...]
    security_context: Json
    setup: str | None
    objects: Sequence[Json] = field(default=())

    def pod(self) -> dict[str, Any]:
        """Return the fields of the pod spec: tolerations, volumes, and nodeSelector and resourceClaims if any."""
        return copy.deepcopy(
            {
                **({"nodeSelector": dict(self.node_selector)} if self.node_selector else {}),
                "tolerations": list(self.tolerations),
                "volumes": list(self.volumes),
                **({"resourceClaims": list(self.resource_claims)} if self.resource_claims else {}),
            }
        )

    def container(self) -> dict[str, Any]:
        """Return the fields of the first container: resources, volumeMounts, env, securityContext."""
        return copy.deepcopy(
            {
                "resources": dict(self.resources),
                "volumeMounts": list(self.volume_mounts),
                "env": [{"name": variable.name, "value": variable.value} for variable in self.environment],
                "securityContext": dict(self.security_context),
            }
        )


GPU_TOLERATION: Json = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

BOOTSTRAP = (
    Variable(
        "NCCL_SOCKET_IFNAME",
        "eth0",
        "NCCL's bootstrap runs over the pod network, not over an RDMA interface",
        "NCCL docs, environment variables, 2026-11; containerd: internal/cri/server/helpers.go, defaultIfName",
    ),
    Variable(
        "GLOO_SOCKET_IFNAME",
        "eth0",
        "Gloo otherwise resolves the host name, which may lead to another interface",
        "GoogleCloudPlatform/kubernetes-engine-samples: ai-ml/verl-on-gke, read 2026-08",
    ),
)

SOCKET = Fabric(transport="socket", nics=None, gbps_per_nic=None, aligned=False, environment=())
"""Fabric of the local target, a machine without RDMA."""


def whole_node(cpus: int, memory_gib: int, gpus: int, **extended: str) -> dict[str, Any]:
    """Return resources with requests equal to limits for a pod that takes a whole node; `memory_gib` is GiB."""
    amounts = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus), **extended}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def with_claim(pod: GpuPod, name: str, template: Mapping[str, Any], *objects: Json) -> GpuPod:
    """Return the pod with a claim on the devices of `template`, for its first container.

    Args:
        name: Name of the claim in the pod.
        template: ResourceClaimTemplate of the claim.
        objects: Manifests that the template needs, such as a DeviceClass.
    """
    claim = {"name": name, "resourceClaimTemplateName": template["metadata"]["name"]}
    return replace(
        pod,
        resources={**pod.resources, "claims": [{"name": name}]},
        resource_claims=(claim,),
        objects=(*objects, template),
    )


def claim_template(name: str, device_class: str, count: int) -> dict[str, Any]:
    """Return a ResourceClaimTemplate for exactly `count` devices: with a NIC missing, the pod stays visibly Pending.

    `resource.k8s.io/v1` with `exactly` is served from Kubernetes 1.34.
    """
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}},
    }
