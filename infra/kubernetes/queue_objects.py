"""Objects and configuration of Kueue for the stack's GPU nodes, as plain Kubernetes JSON. Imports no Pulumi.

The quota of a node pool is the capacity of its maximum number of nodes, so Kueue admits nothing that can never be
scheduled. Names and behavior are from the source of Kueue 0.19.2 (kubernetes-sigs/kueue, ff69552e, 2026-08-22), the
version that the tests run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infra.catalog.capacity import MAX_RUN_HOURS
from infra.catalog.names import CLUSTER_QUEUE, GPU, LOCAL_QUEUE
from infra.catalog.pins import KUEUE_API, KUEUE_CONFIG_API
from infra.kubernetes.queue_args import Flavor, QueueArgs
from infra.settings.teams import HEADS_PER_TEAM, Team, namespace_of, nodes_of

KUEUE_NAMESPACE = "kueue-system"
KUEUE_RELEASE = "kueue"

WEBHOOK_PORT = 9443
VISIBILITY_PORT = 8082
"""Ports of Kueue's pod that the control plane calls: the webhook for every new workload, and the API that lists pending
ones. While that API does not answer, the API server cannot list all kinds and cannot delete a namespace (charts/kueue;
Kubernetes docs on aggregated API servers, unverified, 2026-11)."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a RayCluster, RayJob or Job: the LocalQueue that admits it. Kueue then owns its `spec.suspend`."""
MAX_RUN_ANNOTATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
"""Annotation with the nodes' maximum run time in seconds, at most seven days. Kueue copies it to the
ProvisioningRequest (GKE docs provisioningrequest, 2026-04-08)."""
ELASTIC_ANNOTATION = "kueue.x-k8s.io/elastic-job"
"""Annotation of a workload whose size may change, and scheduling gate of its pods. More workers are another workload,
which Kueue admits in place of the old one before it removes their pods' gate (pkg/workloadslicing; on by default
since 0.18). It needs flavors without a topology (ElasticJobsViaWorkloadSlicesWithTAS is off)."""
TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"

SYSTEM_FLAVOR = "system"
"""Flavor of the CPU nodes, for the head."""
GPU_FLAVOR = "gpu"
"""Flavor of the GPU nodes if they are one node pool or selected by a ComputeClass."""
RESERVED_FLAVOR = "reserved"
QUEUED_FLAVOR = "queued"
"""Flavors of two node pools: the reservation's, tried first, then the one with queued provisioning."""
COHORT = "nodes"
"""Cohort of the stack's ClusterQueue and those of its teams, which borrow from each other."""
TOPOLOGY = "nodes"
ADMISSION_CHECK = "dws"
PROVISIONING_CONFIG = "dws"

PROVISIONING_CONTROLLER = "kueue.x-k8s.io/provisioning-request"
PROVISIONING_CLASS = "queued-provisioning.gke.io"
"""All nodes of a request at once, after a wait in Google's queue (GKE docs provisioningrequest, 2026-04-08)."""

REQUEST_LABEL = "autoscaling.gke.io/provisioning-request"
"""Label of a queued node: the request that it was provisioned for."""

NICS = "rdma-nics"
"""Name in the quota of NICs that pods claim as devices. Kueue admits no claim whose device class has no such name
(pkg/dra/claims.go)."""

RETRY_BASE_S, RETRY_MOST_S = 60, 1800
RETRIES = MAX_RUN_HOURS * 3600 // RETRY_MOST_S
"""Retries of a failed ProvisioningRequest, at most half an hour apart: about as long as a pod waits for a node. Kueue's
default of 3 retries deactivates a job within ten minutes, and stock-outs take days."""

PULL_S = 3600
"""Seconds from scheduling to readiness of a pod: our choice. 6 min 41 s were seen with a small image
(`infra.nccl_job`), and one with torch and CUDA is several times as large. Kueue's default of 30 minutes
(since 0.19, kueue #11855) could evict a pod that is about to run."""
EVICTIONS = 2
"""Retries of a workload whose pods do not become ready: more would not help a missing image, and nodes cost money."""

FRAMEWORKS = ("batch/job", "ray.io/raycluster", "ray.io/rayjob")
"""Kinds that Kueue manages. Each kind has a webhook, without which no object of the kind can be created."""

RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}

_QUANTITY = re.compile(r"(\d+)(|k|M|G|T|Ki|Mi|Gi|Ti|Pi)")
_LARGER = {"": "k", "k": "M", "M": "G", "G": "T", "Ki": "Mi", "Mi": "Gi", "Gi": "Ti", "Ti": "Pi"}


def configuration(args: QueueArgs) -> dict[str, Any]:
    """Return Kueue's complete configuration, which the chart takes as one text. Omitted fields have their defaults."""
    mapping = {"name": NICS, "deviceClassNames": [args.device_class]}
    return {
        "apiVersion": KUEUE_CONFIG_API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": WEBHOOK_PORT},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 300, "burst": 500},
        "waitForPodsReady": {
            # Counts from admission. If nodes are created after admission, it includes the wait for them: an eviction
            # would lose the place in the cloud's queue.
            "timeout": f"{args.wait_s + PULL_S}s",
            "requeuingStrategy": {"backoffLimitCount": EVICTIONS},
        },
        "integrations": {"frameworks": list(FRAMEWORKS)},
        **({} if args.device_class is None else {"resources": {"deviceClassMappings": [mapping]}}),
    }


def resource_flavors(args: QueueArgs) -> list[dict[str, Any]]:
    """Return the flavor of the CPU nodes and those of the GPU nodes.

    They have no tolerations: pods have their own, and Kueue's additions to a template would show as a change.
    """
    system = Flavor(name=SYSTEM_FLAVOR, labels=args.system_labels)
    return [
        _object(
            "ResourceFlavor",
            flavor.name,
            {"nodeLabels": dict(flavor.labels), **({"topologyName": TOPOLOGY} if flavor.topology else {})},
        )
        for flavor in (system, *args.flavors)
    ]


def topology(args: QueueArgs) -> dict[str, Any] | None:
    """Return the Topology, highest level first; None if Kueue does not choose nodes by topology."""
    if not args.topology:
        return None
    return _object("Topology", TOPOLOGY, {"levels": [{"nodeLabel": label} for label in args.topology]})


def provisioning(args: QueueArgs) -> list[dict[str, Any]]:
    """Return the ProvisioningRequestConfig and the AdmissionCheck that uses it; empty if no flavor is queued."""
    if not args.provisioned:
        return []
    config = {
        "provisioningClassName": PROVISIONING_CLASS,
        # GKE accepts one pod set per request; the head requests no GPU and is therefore not in it (ray #57839).
        "managedResources": [GPU],
        # Merge pod sets with the same requests into one.
        "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements",
        # Each job runs only on the nodes of its request: those of another request end at another time (as
        # AI-Hypercomputer/xpk: recipes, 367c8382, 2026-06-25). A webhook of GKE adds the same selector to pods
        # (GoogleCloudPlatform/cluster-autoscaler: autoprovisioning/injection.go, 7d25050), but it is not public.
        "podSetUpdates": {
            "nodeSelector": [{"key": REQUEST_LABEL, "valueFromProvisioningClassDetail": "ResizeRequestName"}]
        },
        "retryStrategy": {
            "backoffLimitCount": RETRIES,
            "backoffBaseSeconds": RETRY_BASE_S,
            "backoffMaxSeconds": RETRY_MOST_S,
        },
    }
    parameters = {
        "apiGroup": KUEUE_API.partition("/")[0],
        "kind": "ProvisioningRequestConfig",
        "name": PROVISIONING_CONFIG,
    }
    check = {"controllerName": PROVISIONING_CONTROLLER, "parameters": parameters}
    return [
        _object("ProvisioningRequestConfig", PROVISIONING_CONFIG, config),
        _object("AdmissionCheck", ADMISSION_CHECK, check),
    ]


def cluster_queue(args: QueueArgs, team: Team | None = None) -> dict[str, Any]:
    """Return the ClusterQueue of a team, or of the stack's own Ray, which has what the teams do not have.

    With teams, all of them are one cohort: a workload borrows what is unused, and a ClusterQueue takes its nominal
    quota back from borrowers (apis/kueue/v1beta2: ClusterQueuePreemption, reclaimWithinCohort).

    It has one resource group, so a pod gets everything from one flavor. The group covers every resource that a pod
    requests: Kueue never admits a pod with a resource that no group covers (pkg/scheduler/flavorassigner).
    """
    worker = worker_resources(args)
    own = team is None
    # Kueue evicts borrowers only for a workload that itself borrows nothing (pkg/scheduler/preemption, 0.19.2; seen
    # 2026-11-29), so a job needs a head within its team's quota.
    of_teams = HEADS_PER_TEAM * len(args.teams), nodes_of(args.teams)
    heads, nodes = (HEADS_PER_TEAM, team.quota) if team else (args.heads - of_teams[0], args.nodes - of_teams[1])
    cpu = [(args.head, heads), *([(args.cpu_worker, args.cpu_workers)] if own and args.cpu_workers else [])]
    system = {
        name: total(*((each[name], count) for each, count in cpu)) if name in args.head else "0" for name in worker
    }
    gpu = {name: times(amount, nodes) for name, amount in worker.items()}
    quotas = [_quota(SYSTEM_FLAVOR, system), *(_quota(flavor.name, gpu) for flavor in args.flavors)]
    spec: dict[str, Any] = {
        # Explicit, since {} would admit workloads of every namespace.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace_of(team)}},
        **({"cohortName": COHORT, "preemption": RECLAIM} if args.teams else {}),
        "resourceGroups": [{"coveredResources": list(worker), "flavors": quotas}],
    }
    if args.provisioned:
        # Only on these flavors: reserved nodes need no ProvisioningRequest, and it would not find them.
        checks = [{"name": ADMISSION_CHECK, "onFlavors": args.provisioned}]
        spec["admissionChecksStrategy"] = {"admissionChecks": checks}
    return _object("ClusterQueue", team.name if team else CLUSTER_QUEUE, spec)


def local_queue(team: Team | None = None) -> dict[str, Any]:
    """Return the LocalQueue of a team or of the stack's own Ray, without its namespace."""
    return _object("LocalQueue", LOCAL_QUEUE, {"clusterQueue": team.name if team else CLUSTER_QUEUE})


def admission_marks(queue: str | None, max_run_s: int | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations with which a RayCluster, RayJob or Job enters a LocalQueue."""
    if queue is None:
        return {}, {}
    return {QUEUE_LABEL: queue}, {} if max_run_s is None else {MAX_RUN_ANNOTATION: str(max_run_s)}


def worker_resources(args: QueueArgs) -> dict[str, str]:
    """Return the requests and claimed devices of one worker, by resource name.

    Resources that GKE's webhook adds to pods are not included: Kueue reads templates, which do not have them.
    """
    requested = {str(name): str(amount) for name, amount in args.pod.resources["requests"].items()}
    return {**requested, **({NICS: str(args.nics)} if args.nics else {})}


def times(quantity: str, count: int) -> str:
    """Return a quantity times a whole number as Kubernetes writes it: 2048Gi is 2Ti, and 1000 is 1k.

    Kueue reads these objects and writes them back; another spelling would then show as a change.
    """
    return total((quantity, count))


def total(*parts: tuple[str, int]) -> str:
    """Return the sum of quantities of one unit, each times a whole number, in the spelling of `times`."""
    matches = [(_QUANTITY.fullmatch(quantity), quantity, count) for quantity, count in parts]
    amount, units = 0, set()
    for match, quantity, count in matches:
        if match is None:
            raise ValueError(f"{quantity} is not a whole quantity such as 8, 16Gi or 2k")
        amount += int(match[1]) * count
        units.add(match[2])
    [unit] = units
    step = 1024 if unit.endswith("i") else 1000
    while amount and amount % step == 0 and unit in _LARGER:
        amount, unit = amount // step, _LARGER[unit]
    return f"{amount}{unit if amount else ''}"


def _quota(flavor: str, amounts: Mapping[str, str]) -> dict[str, Any]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    return {"name": flavor, "resources": resources}


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": KUEUE_API, "kind": kind, "metadata": {"name": name}, "spec": spec}
