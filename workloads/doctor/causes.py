"""Causes that messages of Kubernetes components name: why a pod has no node, and why a node cannot set it up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from infra.catalog.names import EFA, GPU
from workloads.doctor.check import Severity


@dataclass(frozen=True)
class Cause:
    """A cause of a pod's state. `pattern` matches messages of the component in `source`."""

    name: str
    pattern: str
    text: str
    cure: str
    source: str
    severity: Severity = "error"


_GKE = "GoogleCloudPlatform/cluster-autoscaler: pkg/events, read 2026-11"
_AUTOSCALER = "kubernetes/autoscaler: cluster-autoscaler, events and status ConfigMap, read 2026-11"
_AWS = "EC2 Auto Scaling, scaling activities in public reports, read 2026-11"
_SCHEDULER = "kubernetes 1.36.1: pkg/scheduler/framework/plugins"

CAUSES = (
    Cause(
        "quota",
        r"GCE quota exceeded|QUOTA_EXCEEDED|QuotaExceeded|VcpuLimitExceeded|Quota '\S+' exceeded",
        "the cloud refuses the nodes: the quota of the project or account is used up",
        "request more quota for the GPUs of this machine type (docs/gke.md, docs/eks.md), or lower nodes.max",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "stockout",
        r"GCE out of resources|ZONE_RESOURCE_POOL_EXHAUSTED|ResourcePoolExhausted|InsufficientInstanceCapacity"
        r"|UnfulfillableCapacity|placeholder-cannot-be-fulfilled|cannot provision any more instances",
        "the zone has no such machines now",
        "wait, or use another zone (location) or kind of capacity (nodes.capacity)",
        f"{_GKE}; {_AUTOSCALER}; {_AWS}",
    ),
    Cause(
        "reservation",
        r"Reservation (?:not ready|capacity exceeded|not found|incompatible)|Invalid Reservation"
        r"|ReservationCapacityExceeded|InvalidCapacityReservation",
        "the reservation does not serve these nodes",
        "compare nodes.reservation with the reservation's zone, machine type, dates and free machines",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "addresses",
        r"IP space exhausted|InsufficientFreeAddressesInSubnet",
        "the subnet has no addresses left for nodes or pods",
        "use a larger range for the stack's networks (infra/addresses.py)",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "late-nodes",
        r"failed to appear in time|failed to register within",
        "machines were started and did not become nodes in time",
        "read the serial console or system log of one: the network, the image or its start script keeps it away",
        f"{_GKE}; {_AUTOSCALER}",
    ),
    Cause(
        "claim",
        r"cannot allocate all claims|resourceclaim in use|resource claim|device class \S+ does not exist",
        "no node has the devices that the pod claims",
        "kubectl get resourceslices,deviceclasses: is the DRA driver of the NICs there, are the devices taken?",
        _SCHEDULER,
    ),
    Cause(
        "volume",
        r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ not found"
        r"|didn't find available persistent volumes|bound to non-existent pv",
        "its volume is not available",
        "kubectl -n ray describe pvc: does the file system or bucket behind it exist?",
        _SCHEDULER,
    ),
    Cause(
        "full-pool",
        r"max node group size reached|max cluster .{1,20}limit reached",
        "the node pool is at its maximum",
        "raise nodes.max, or wait for the other pods",
        _AUTOSCALER,
    ),
    Cause(
        "nics",
        rf"Insufficient (?:{re.escape(EFA)}|networking\.gke\.io\.networks/\S+)",
        "no node has all its RDMA NICs free",
        "see the nodes' allocatable NICs: a device plugin or a network is missing, or another pod holds them",
        _SCHEDULER,
    ),
    Cause(
        "taint",
        r"untolerated taint",
        "the fitting nodes have a taint that the pod does not tolerate",
        "kubectl describe node shows it: remove the taint, or wait if the cloud set it for maintenance",
        _SCHEDULER,
    ),
    Cause(
        "gpus",
        rf"Insufficient {re.escape(GPU)}",
        "every GPU node is taken",
        "wait, or raise nodes.max; `rdma-ray list` shows the jobs that run",
        _SCHEDULER,
    ),
    Cause(
        "resources",
        r"Insufficient (?:cpu|memory|ephemeral-storage)|Too many pods",
        "no node has enough CPUs, memory or disk",
        "compare the pod's requests with `kubectl describe node`",
        _SCHEDULER,
    ),
    Cause(
        "selector",
        r"didn't match Pod's node affinity/selector",
        "no node has the labels that the pod selects",
        "compare the pod's nodeSelector with the node pool: `make up` sets both",
        _SCHEDULER,
    ),
)
"""Causes by precedence: the first one that matches any message explains the others."""

_GCSFUSE = "GoogleCloudPlatform/gcs-fuse-csi-driver"
_MOUNTS = f"{_GCSFUSE}: docs/troubleshooting.md"

CREATE_OBJECTS = "make up creates the stack's objects; you create those that ray.secrets and ray.volumes name"
"""Cure of a pod that names an object that does not exist."""

MOUNTING = (
    Cause(
        "no-sidecar",
        r"failed to find the sidecar container|failed to inject the sidecar|sidecar container was not injected",
        "the bucket's sidecar is not in the pod",
        "the sidecar is added when a pod is created: delete the pod. If the new one has none either, make up restores"
        " the annotation gke-gcsfuse/volumes, and the add-on's webhook must run",
        f"{_GCSFUSE}#153, #283",
    ),
    Cause(
        "bucket-missing",
        r"bucket (?:\S+ )?(?:does ?n[o']t|not) exist|code = NotFound|[Uu]nknown bucket|NoSuchBucket",
        "the bucket does not exist",
        "compare storage.bucket with the project's buckets, then make up",
        _MOUNTS,
    ),
    Cause(
        "bucket-refused",
        r"code = (?:PermissionDenied|Unauthenticated)|\b40[13]\b.*(?:Forbidden|Unauthorized|denied|access)"
        r"|does not have storage\.|getAccessToken|default credentials|AccessDenied",
        "the pods may not use the bucket",
        "make up grants the pods' Kubernetes ServiceAccount the role on storage.bucket (Workload Identity); the owner"
        " of a bucket in another project must grant it the same role",
        f"{_GCSFUSE}#56; GoogleCloudPlatform/ai-on-gke#488",
    ),
    Cause(
        "metadata-server",
        r"169\.254\.169\.254|metadata server|storage service manager failed to setup service",
        "the node's metadata server does not answer, so the bucket's driver gets no token",
        "kubectl -n kube-system get pods -o wide: the DaemonSet gke-metadata-server on that node, and see `daemons`",
        f"{_GCSFUSE}#1445, #56",
    ),
    Cause(
        "no-driver",
        r"driver name \S+ not found in the list of registered CSI drivers|csi\.sock: connect"
        r"|no such file or directory.*csi\.sock",
        "the volume's CSI driver does not run on the node",
        "see `daemons`: the driver's DaemonSet (gcsfusecsi-node, fsx-csi-node) must run there; make up installs it",
        f"{_GCSFUSE}#38; kubernetes-sigs/aws-fsx-csi-driver#366",
    ),
    Cause(
        "sidecar-failed",
        r"the sidecar container (?:failed|terminated)|gcsfuse (?:exited|failed)|signal: (?:killed|terminated)",
        "the bucket's sidecar ended",
        "kubectl -n ray logs POD -c gke-gcsfuse-sidecar; killed for memory: raise gke-gcsfuse/memory-limit",
        f"{_GCSFUSE}#113, #314",
    ),
    Cause(
        "lustre",
        r"mount\.lustre|mount -t lustre|Could not mount \W?fs-|fsx\.csi\.aws\.com|type lustre",
        "the node cannot mount the Lustre file system",
        "the security group must admit ports 988 and 1018 to 1023 between nodes and file system, and the node needs a"
        " Lustre client of the file system's version; aws fsx describe-file-systems shows whether it is AVAILABLE",
        "FSx for Lustre docs, cannot-create-fs (ports); kubernetes-sigs/aws-fsx-csi-driver#32, #35, #181",
    ),
    Cause(
        "no-object",
        r"(?:secret|configmap|persistentvolumeclaim)\b.*not found|references non-existent (?:secret|config) key",
        "a Secret, ConfigMap or claim that it mounts is missing",
        CREATE_OBJECTS,
        "kubernetes 1.36.1: pkg/volume/{secret,configmap}, read 2026-11-26",
    ),
    Cause(
        "claim-prepare",
        r"NodePrepareResources|FailedPrepareDynamicResources|[Pp]repare dynamic resources",
        "the DRA driver of the node cannot prepare the pod's devices",
        "see `daemons`: the driver's pod on that node (networking-dra-driver, dranet) and its log",
        "kubernetes 1.36.1: pkg/kubelet/cm/dra/manager.go, pkg/kubelet/events, read 2026-11-26",
    ),
    Cause(
        "sandbox-addresses",
        r"failed to assign an IP|no IP addresses available|IP space",
        "the node has no address for the pod",
        "use a larger range for the stack's networks (infra/addresses.py)",
        "aws/amazon-vpc-cni-k8s: FailedCreatePodSandBox in public reports, read 2026-11-26",
    ),
)
"""Causes of a pod that its node cannot set up, by precedence: messages such as those of FailedMount in public reports,
read 2026-11-26."""


def first(causes: Iterable[Cause], texts: list[str]) -> Cause | None:
    """Return the first of these causes that a text names; None if they name none."""
    return next((cause for cause in causes if any(re.search(cause.pattern, text) for text in texts)), None)
