"""What is fixed about Kueue on any Kubernetes: names of its objects, labels, waits.

Facts and choices only, so that those who check a stack need not import what makes it. Read in the source of Kueue
0.19.2 (kubernetes-sigs/kueue, ff69552e, 2026-08-22), the version that the tests' real controller has.
"""

from __future__ import annotations

from infra.catalog.capacity import MAX_RUN_HOURS

KUEUE_NAMESPACE = "kueue-system"
KUEUE_RELEASE = "kueue"

WEBHOOK_PORT = 9443
VISIBILITY_PORT = 8082
"""Where the control plane calls Kueue's pod: for every workload that is made, and for the API that lists what waits.
While that does not answer, it cannot list all kinds, and no namespace can be deleted (charts/kueue; Kubernetes docs,
aggregated API servers, from memory, 2026-11)."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a RayCluster, a RayJob or a Job: which LocalQueue admits it. Kueue then owns its `spec.suspend`."""
MAX_RUN_ANNOTATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
"""Kueue hands it on to the ProvisioningRequest: GKE takes the machines back after so many seconds, at most seven days
(GKE docs provisioningrequest, 2026-04-08)."""
TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"

SYSTEM_FLAVOR = "system"
"""The CPU nodes, for the head."""
GPU_FLAVOR = "gpu"
"""The GPU nodes, where there is one pool of them, or a ComputeClass that hands them out."""
RESERVED_FLAVOR = "reserved"
QUEUED_FLAVOR = "queued"
"""Two pools: the reservation's, tried first, and the one with queued machines."""
CLUSTER_QUEUE = "gpu"
LOCAL_QUEUE = "gpu"
"""In Ray's namespace; a stack's output `queue`."""
TOPOLOGY = "nodes"
ADMISSION_CHECK = "dws"
PROVISIONING_CONFIG = "dws"

PROVISIONING_CONTROLLER = "kueue.x-k8s.io/provisioning-request"
PROVISIONING_CLASS = "queued-provisioning.gke.io"
"""Machines all at once, after a wait in Google's queue (GKE docs provisioningrequest, 2026-04-08)."""

NICS = "rdma-nics"
"""What the quota calls NICs that pods claim as devices. Kueue admits no claim whose device class has no such name
(pkg/dra/claims.go)."""

RETRY_BASE_S, RETRY_MOST_S = 60, 1800
RETRIES = MAX_RUN_HOURS * 3600 // RETRY_MOST_S
"""How often a request that failed is made anew, half an hour apart at most: for about as long as we wait for machines.
After Kueue's own 3 tries, within ten minutes, a job would be put aside for good, while stock-outs take days."""

PULL_S = 3600
"""Seconds that a pod with a node may need until it is ready: our choice. 6 min 41 s were seen with a small image
(`infra.kubernetes.nccl_job`), and one with torch and CUDA is several times as large. Kueue's own 30 minutes, on by
default since 0.19 (kueue #11855), could evict what is about to run."""
EVICTIONS = 2
"""How often a workload whose pods do not become ready is tried again. An image that is not there does not come by
waiting, and the nodes are paid for meanwhile."""

FRAMEWORKS = ("batch/job", "ray.io/raycluster", "ray.io/rayjob")
"""What Kueue looks at. Each further kind is a webhook that must answer before anybody may make one."""
