"""The network between the nodes as a value, and what a pod must carry to reach it.

Both are plain data in Kubernetes' own JSON shapes. RayCluster, RayJob, Indexed Job and NCCL Job consume a `GpuPod` the
same way, so adding a fabric is writing one function that returns one. This module knows no cloud.
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
    """An environment variable, why it is there, and who says so."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The network between the nodes.

    `nics` is RDMA NICs of a node, `gbps_per_nic` Gbit/s of one each way; both None without RDMA. `aligned` is whether a
    pod gets every GPU together with the NICs on the same PCIe switch. `environment` is what every process needs.
    `script`, where there is one, is sourced before the process starts and sets the rest as the installed plugin wants
    it; `scripted` is what it set when last read, to compare with or for images that cannot source it.
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
    """What a pod needs to own all GPUs and RDMA NICs of its node.

    Everything concerns the pod's first container: only that one gets the device files. `node_selector` is empty where
    somebody else chooses among several pools. `setup` is a shell command to run before the process, None where there is
    nothing to do. `objects` are manifests that must exist beside the pod,
    in its namespace where they have one. The methods return copies that the caller may change.
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
        """The pod spec's part: tolerations, volumes, and nodeSelector and resourceClaims if there are any."""
        spec: dict[str, Any] = {
            **({"nodeSelector": dict(self.node_selector)} if self.node_selector else {}),
            "tolerations": list(self.tolerations),
            "volumes": list(self.volumes),
        }
        if self.resource_claims:
            spec["resourceClaims"] = list(self.resource_claims)
        return copy.deepcopy(spec)

    def container(self) -> dict[str, Any]:
        """The first container's part: resources, volumeMounts, env, securityContext."""
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
        "kubernetes pod networking; EKS reference, corrections, 2026-11",
    ),
    Variable(
        "GLOO_SOCKET_IFNAME",
        "eth0",
        "Gloo otherwise resolves the host name, which may lead to another interface",
        "GoogleCloudPlatform/kubernetes-engine-samples: ai-ml/verl-on-gke, read 2026-08",
    ),
)

SOCKET = Fabric(transport="socket", nics=None, gbps_per_nic=None, aligned=False, environment=())
"""A machine without RDMA: the local target."""


def all_of_the_node(cpus: int, memory_gib: int, gpus: int, **extended: str) -> dict[str, Any]:
    """Requests equal to limits for CPUs, memory (GiB) and GPUs: a pod with RDMA takes its node whole."""
    amounts = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus), **extended}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def claiming(pod: GpuPod, name: str, template: Mapping[str, Any], *objects: Json) -> GpuPod:
    """The same pod with a claim called `name` from `template`, whose devices its first container gets.

    `objects` are what the template needs beside it, such as a DeviceClass.
    """
    claim = {"name": name, "resourceClaimTemplateName": template["metadata"]["name"]}
    return replace(
        pod,
        resources={**pod.resources, "claims": [{"name": name}]},
        resource_claims=(claim,),
        objects=(*objects, template),
    )


def claim_template(name: str, device_class: str, count: int) -> dict[str, Any]:
    """A ResourceClaimTemplate for exactly `count` devices, so that a missing NIC keeps the pod Pending, visibly.

    `resource.k8s.io/v1` with `exactly` is served from Kubernetes 1.34.
    """
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": DEVICE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}},
    }
