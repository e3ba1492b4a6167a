"""Kueue's objects for the stack's GPU nodes, and its configuration. Pure: plain Kubernetes JSON from a `QueueShape`.

A pool's quota is what its nodes can hold, no more: nothing is admitted that could never be placed. How many machines
there are just now, Kueue does not know; it counts promises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.catalog.pins import KUEUE_API, KUEUE_CONFIG_API
from infra.fabric import GpuPod
from infra.kubernetes import queue_facts as facts
from infra.kubernetes.ray_manifest import HEAD_CPUS, HEAD_MEMORY, NAMESPACE

GPU = "nvidia.com/gpu"
_QUANTITY = re.compile(r"(\d+)(|k|M|G|T|Ki|Mi|Gi|Ti|Pi)")
_LARGER = {"": "k", "k": "M", "M": "G", "G": "T", "Ki": "Mi", "Mi": "Gi", "Gi": "Ti", "Ti": "Pi"}


@dataclass(frozen=True, kw_only=True)
class Flavor:
    """A kind of GPU nodes. labels: what they have and other nodes have not. queued: whether a ProvisioningRequest asks
    for them. topology: whether Kueue chooses among them by where they stand."""

    name: str
    labels: Mapping[str, str]
    queued: bool = False
    topology: bool = False


@dataclass(frozen=True, kw_only=True)
class QueueShape:
    """What the queue is shaped by.

    system_labels: of the CPU nodes; heads: how many Ray heads those hold. flavors: the GPU nodes in the order in which
    they are tried. nodes: the most of each flavor. pod: what takes one of them whole; nics: devices that it claims, of
    the class `device_class`, 0 and None without claims. topology: labels of nodes from far to near, empty for none.
    wait_s: seconds that a pod may wait for its node after it was admitted.
    """

    system_labels: Mapping[str, str]
    heads: int
    flavors: Sequence[Flavor]
    nodes: int
    pod: GpuPod
    nics: int = 0
    device_class: str | None = None
    topology: Sequence[str] = ()
    wait_s: int

    @property
    def provisioned(self) -> list[str]:
        """The flavors whose machines are asked for by a ProvisioningRequest."""
        return [flavor.name for flavor in self.flavors if flavor.queued]


@dataclass(frozen=True, kw_only=True)
class Admission:
    """How a workload is handed to Kueue: the LocalQueue, and for how many seconds queued machines are lent to it, None
    where there are none."""

    queue: str = facts.LOCAL_QUEUE
    lent_s: int | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What the RayCluster, RayJob or Job carries; its pods do not."""
        return {facts.QUEUE_LABEL: self.queue}

    @property
    def annotations(self) -> dict[str, str]:
        """The same, for the ProvisioningRequest."""
        return {} if self.lent_s is None else {facts.MAX_RUN_ANNOTATION: str(self.lent_s)}


def configuration(shape: QueueShape) -> dict[str, Any]:
    """Kueue's configuration, whole, since the chart takes it as one text. What it leaves out is Kueue's default."""
    resources: dict[str, Any] = {}
    if shape.device_class is not None:
        resources = {
            "resources": {"deviceClassMappings": [{"name": facts.NICS, "deviceClassNames": [shape.device_class]}]}
        }
    return {
        "apiVersion": KUEUE_CONFIG_API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": facts.WEBHOOK_PORT},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 300, "burst": 500},
        "waitForPodsReady": {
            # Counts from admission. Where machines come only then, their whole wait is in it: an eviction would give up
            # their place in the cloud's queue.
            "timeout": f"{shape.wait_s + facts.PULL_S}s",
            "requeuingStrategy": {"backoffLimitCount": facts.EVICTIONS},
        },
        "integrations": {"frameworks": list(facts.FRAMEWORKS)},
        **resources,
    }


def resource_flavors(shape: QueueShape) -> list[dict[str, Any]]:
    """The CPU nodes' flavor, then the GPU nodes'.

    They carry no tolerations: pods have their own, and what Kueue adds to a template is a change to what was applied.
    """
    system = _object("ResourceFlavor", facts.SYSTEM_FLAVOR, {"nodeLabels": dict(shape.system_labels)})
    return [
        system,
        *(
            _object(
                "ResourceFlavor",
                flavor.name,
                {
                    "nodeLabels": dict(flavor.labels),
                    **({"topologyName": facts.TOPOLOGY} if flavor.topology else {}),
                },
            )
            for flavor in shape.flavors
        ),
    ]


def topology(shape: QueueShape) -> dict[str, Any] | None:
    """Where nodes stand, from far to near; None where nothing chooses among them."""
    if not shape.topology:
        return None
    return _object("Topology", facts.TOPOLOGY, {"levels": [{"nodeLabel": label} for label in shape.topology]})


def provisioning(shape: QueueShape) -> list[dict[str, Any]]:
    """The configuration of ProvisioningRequests and the check that makes them; nothing where no flavor wants one."""
    if not shape.provisioned:
        return []
    config = {
        "provisioningClassName": facts.PROVISIONING_CLASS,
        # GKE takes one set of pods per request: the head asks for no GPU, so it is not in it (ray #57839).
        "managedResources": [GPU],
        # Sets of pods that ask for the same become one.
        "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements",
        "retryStrategy": {
            "backoffLimitCount": facts.RETRIES,
            "backoffBaseSeconds": facts.RETRY_BASE_S,
            "backoffMaxSeconds": facts.RETRY_MOST_S,
        },
    }
    check = {
        "controllerName": facts.PROVISIONING_CONTROLLER,
        "parameters": {
            "apiGroup": KUEUE_API.partition("/")[0],
            "kind": "ProvisioningRequestConfig",
            "name": facts.PROVISIONING_CONFIG,
        },
    }
    return [
        _object("ProvisioningRequestConfig", facts.PROVISIONING_CONFIG, config),
        _object("AdmissionCheck", facts.ADMISSION_CHECK, check),
    ]


def cluster_queue(shape: QueueShape) -> dict[str, Any]:
    """The quotas. One group, so that a pod gets all it asks for from one flavor, and every resource in it that a pod
    asks for: one that no group covers keeps a workload out for ever (pkg/scheduler/flavorassigner)."""
    worker = worker_resources(shape)
    head = {"cpu": HEAD_CPUS, "memory": HEAD_MEMORY}
    system = {name: times(head[name], shape.heads) if name in head else "0" for name in worker}
    gpu = {name: times(amount, shape.nodes) for name, amount in worker.items()}
    spec: dict[str, Any] = {
        # Only Ray's namespace has a LocalQueue to it; said, since {} would let every namespace in.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "resourceGroups": [
            {
                "coveredResources": list(worker),
                "flavors": [
                    _quota(facts.SYSTEM_FLAVOR, system),
                    *(_quota(flavor.name, gpu) for flavor in shape.flavors),
                ],
            }
        ],
    }
    if shape.provisioned:
        # Only these: what the reservation holds needs no request, and none would find it.
        checks = [{"name": facts.ADMISSION_CHECK, "onFlavors": shape.provisioned}]
        spec["admissionChecksStrategy"] = {"admissionChecks": checks}
    return _object("ClusterQueue", facts.CLUSTER_QUEUE, spec)


def local_queue() -> dict[str, Any]:
    """The way in, without its namespace."""
    return _object("LocalQueue", facts.LOCAL_QUEUE, {"clusterQueue": facts.CLUSTER_QUEUE})


def worker_resources(shape: QueueShape) -> dict[str, str]:
    """What one worker takes, by name: what it requests, and the devices that it claims.

    Resources that GKE's own webhook adds to pods are not among them: Kueue reads templates, which do not have them.
    """
    requested = {str(name): str(amount) for name, amount in shape.pod.resources["requests"].items()}
    return {**requested, **({facts.NICS: str(shape.nics)} if shape.nics else {})}


def times(quantity: str, count: int) -> str:
    """A quantity times a whole number, as Kubernetes itself would write it: 2048Gi is 2Ti, and 1000 is 1k.

    Kueue reads and writes these objects back, and anything else would then look like a change.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity} is not a whole quantity such as 8, 16Gi or 2k")
    amount, unit = int(found[1]) * count, found[2]
    step = 1024 if unit.endswith("i") else 1000
    while amount and amount % step == 0 and unit in _LARGER:
        amount, unit = amount // step, _LARGER[unit]
    return f"{amount}{unit if amount else ''}"


def _quota(flavor: str, amounts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": flavor,
        "resources": [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()],
    }


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": KUEUE_API, "kind": kind, "metadata": {"name": name}, "spec": spec}
