"""Valid objects of Kueue: a queue with two GPU flavors, the second one queued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)

POOL = "cloud.google.com/gke-nodepool"
COHORT = "kubernetes:kueue.x-k8s.io/v1beta2:Cohort"
PRIORITY_CLASS = "kubernetes:kueue.x-k8s.io/v1beta2:WorkloadPriorityClass"


def everywhere(name: str, **rest: Any) -> Json:
    """Return a cluster-scoped object."""
    return {"metadata": {"name": name}, **rest}


def quotas(flavor: str, **amounts: Any) -> Json:
    """Return a flavor's quotas; `gpu` is NVIDIA's resource."""
    named = {"nvidia.com/gpu" if key == "gpu" else key: amount for key, amount in amounts.items()}
    return {"name": flavor, "resources": [{"name": key, "nominalQuota": amount} for key, amount in named.items()]}


RIGHT_QUEUES: Mapping[str, Json] = {
    TOPOLOGY: everywhere("rooms", spec={"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}),
    RESOURCE_FLAVOR: everywhere(
        "gpu",
        spec={
            "nodeLabels": {POOL: "gpu"},
            "nodeTaints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "topologyName": "racks",
        },
    ),
    PROVISIONING: everywhere(
        "dws-2",
        spec={
            "provisioningClassName": "queued-provisioning.gke.io",
            "managedResources": ["nvidia.com/gpu"],
            "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements",
            "retryStrategy": {"backoffLimitCount": 100},
            "parameters": {"maxRunDurationSeconds": "3600"},
        },
    ),
    ADMISSION_CHECK: everywhere(
        "dws-2",
        spec={
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"},
        },
    ),
    CLUSTER_QUEUE: everywhere(
        "queue",
        spec={
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
                    "flavors": [
                        quotas("system", cpu="1k", memory="1Ti", gpu="0"),
                        quotas("queued", cpu="500", memory="4Ti", gpu="16"),
                    ],
                }
            ],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "dws", "onFlavors": ["queued"]}]},
        },
    ),
    LOCAL_QUEUE: {"metadata": {"name": "lq", "namespace": "ray"}, "spec": {"clusterQueue": "queue"}},
    COHORT: everywhere("all", spec={"parentName": "company"}),
    PRIORITY_CLASS: everywhere("urgent", value=1000, description="before others"),
}
"""One valid object of each of Kueue's kinds."""


def standing() -> list[tuple[str, str, Json]]:
    """Objects that the valid ones refer to, as (type, id, live). None of them refers to a valid one."""
    return [
        (TOPOLOGY, "racks", RIGHT_QUEUES[TOPOLOGY]),
        (RESOURCE_FLAVOR, "system", everywhere("system", spec={"nodeLabels": {POOL: "system"}})),
        (RESOURCE_FLAVOR, "queued", everywhere("queued", spec={"nodeLabels": {POOL: "queued"}})),
        (PROVISIONING, "dws", RIGHT_QUEUES[PROVISIONING]),
        (ADMISSION_CHECK, "dws", RIGHT_QUEUES[ADMISSION_CHECK]),
    ]
