"""The pod requirements for using a node's GPUs and its fabric.

They are plain data in the JSON format of Kubernetes, independent of the cloud. RayCluster, RayJob, Indexed Job and NCCL
Job use a `GpuPod` in the same way, and `with_fabric` adds any row of `infra.catalog.fabrics` to one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infra.catalog.fabrics import BOOTSTRAP, Claim, Fabric, Variable
from infra.catalog.names import GPU
from infra.catalog.pins import DEVICE_API

Json = Mapping[str, Any]


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
    resource_claims: Sequence[Json] = ()
    volumes: Sequence[Json]
    volume_mounts: Sequence[Json]
    environment: tuple[Variable, ...] = ()
    security_context: Json = field(default_factory=dict)
    setup: str | None = None
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


SHM_MOUNT: Json = {"name": "shm", "mountPath": "/dev/shm"}
"""Mount of `shared_memory`."""
GPU_TOLERATION: Json = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}


def shared_memory(gib: int) -> Json:
    """Return the volume of a pod's shared memory, of at most so many GiB."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{gib}Gi"}}


def whole_node(cpus: int, memory_gib: int, gpus: int, **extended: str) -> dict[str, Any]:
    """Return resources with requests equal to limits for a pod that takes a whole node; `memory_gib` is GiB."""
    amounts = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", **({GPU: str(gpus)} if gpus else {}), **extended}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def with_fabric(pod: GpuPod, fabric: Fabric, *, nics: int | None, gpus: int) -> GpuPod:
    """Return the pod with what the fabric needs, with all `nics` (None: not known) and `gpus` of its node.

    Only Network objects are missing, which depend on the cloud (`Fabric.interfaces`). Raises ValueError if the fabric
    counts NICs and their number is not known.
    """
    resources = {kind: dict(amounts) for kind, amounts in pod.resources.items()}
    if fabric.resource is not None:
        amount = str(fabric.resource.amount(nics=nics, gpus=gpus))
        resources = {kind: {**amounts, fabric.resource.name: amount} for kind, amounts in resources.items()}
    volumes = [{"name": name, "hostPath": {"path": host}} for name, (host, _) in fabric.folders.items()]
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, (_, path) in fabric.folders.items()]
    pod = replace(
        pod,
        resources=resources,
        volumes=(*volumes, *pod.volumes),
        volume_mounts=(*mounts, *pod.volume_mounts),
        environment=(*fabric.environment, *BOOTSTRAP, *pod.environment),
        security_context={"capabilities": {"add": list(fabric.capabilities)}} if fabric.capabilities else {},
        setup=fabric.setup,
    )
    return pod if fabric.claim is None else _with_claim(pod, fabric.claim, nics)


def _with_claim(pod: GpuPod, claim: Claim, nics: int | None) -> GpuPod:
    """Return the pod with a claim for exactly `nics` devices: with one missing, the pod stays visibly Pending.

    `resource.k8s.io/v1` with `exactly` is served from Kubernetes 1.34.
    """
    if nics is None:
        raise ValueError(f"{claim.device_class}: the number of NICs of a node is not known, so a pod cannot claim all")

    def manifest(kind: str, name: str, spec: Json) -> Json:
        return {"apiVersion": DEVICE_API, "kind": kind, "metadata": {"name": name}, "spec": spec}

    exactly = {"deviceClassName": claim.device_class, "allocationMode": "ExactCount", "count": nics}
    devices = {"requests": [{"name": "nics", "exactly": exactly}]}
    objects = [manifest("ResourceClaimTemplate", claim.template, {"spec": {"devices": devices}})]
    if claim.selectors:
        selectors = [{"cel": {"expression": expression}} for expression in claim.selectors]
        objects.insert(0, manifest("DeviceClass", claim.device_class, {"selectors": selectors}))
    return replace(
        pod,
        resources={**pod.resources, "claims": [{"name": claim.name}]},
        resource_claims=({"name": claim.name, "resourceClaimTemplateName": claim.template},),
        objects=objects,
    )
