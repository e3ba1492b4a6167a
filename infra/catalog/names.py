"""Names and ports in a cluster that both the stack and its clients use. Imports no Pulumi."""

from __future__ import annotations

# A script in a pod imports nothing of this package, so it states its own names.
from infra.kubernetes.service_pod.authorized import HEALTH as HEALTH
from infra.kubernetes.time_limit_pod import ENDED as ENDED

NAMESPACE = "ray"
LOCAL_QUEUE = CLUSTER_QUEUE = "gpu"
"""LocalQueue in Ray's namespace, the stack output `queue`; and the ClusterQueue of the stack."""

HISTORY_DAYS, LONGEST_HISTORY = 30, 3650
"""Default and greatest number of days for which the storage keeps a job (ray.historyDays)."""
LOCAL_HISTORY = "results"
"""Folder of the project in which local stacks keep their jobs, each in a folder with its name."""

GPU = "nvidia.com/gpu"
"""Resource and taint of GPUs (NVIDIA/k8s-device-plugin, README; GKE docs, GPUs; read 2026-11)."""
WORKER_TAINT = "rdma-ray/worker"
"""Taint of worker nodes without GPUs: other pods would keep an idle node up."""
EFA = "vpc.amazonaws.com/efa"
"""Resource of the EFA device plugin (aws/eks-charts: aws-efa-k8s-device-plugin; read 2026-11)."""
NODE_TYPE, RAY_CLUSTER = "ray.io/node-type", "ray.io/cluster"
"""Labels of KubeRay's pods: `head` or `worker`, and the RayCluster (ray-operator/controllers/ray/utils, v1.6.2)."""
GROUP_LABEL, NODE_GROUP = "ray.io/group", "ray.io/node-group"
"""KubeRay's label of a pod, and Ray's of a node, with its group of workers (ray-operator/controllers/ray/utils, v1.6.2;
ray: _private/resource_and_label_spec.py, 2.60)."""
WORKER_GROUP, CPU_GROUP, OTHER_GROUP = "gpu-group", "cpu-group", "other-group"
"""Groups of workers: those that own a GPU node, those without GPUs, and those with other GPUs."""
NODE_CHECK, CHECK_FAILED = "node-check", "NodeCheckFailed"
"""Init container of a worker that checks its node (`ray.check`), and the reason of its events."""
JOB_LABEL = "rdma-ray/job"
"""Label of every pod of a RayJob, an Indexed Job or a RayService. Pods of RayJob and RayService need it: their clusters
have random names."""
STACK_LABEL = "rdma-ray/stack"
"""Label of every object that a stack makes in a cluster of the user's: the stack."""
OWNER_LABEL = "rdma-ray/owner"
"""Label of every object that a stack makes in a GKE or EKS cluster of the user's: the owner (`infra.naming`)."""
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label of every pod of a Job (Kubernetes docs, concepts/workloads/controllers/job; since 1.27)."""
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
"""Label with the index of a pod of an Indexed Job (Kubernetes docs, concepts/workloads/controllers/job; since 1.28)."""

KUBERAY_NAMESPACE = "kuberay-system"
KUBERAY_NAMES = ("kuberay-operator", "kuberay")
"""Name label of the operator in KubeRay's chart (002c26b0), and in its manifests (config/manager, v1.6.2)."""
KUBERAY_LABELS = {"app.kubernetes.io/name": KUBERAY_NAMES[0]}
"""Labels of the operator's pods with the chart."""

GCS_PORT = 6379
DASHBOARD_PORT = 8265
CLIENT_PORT = 10001
SERVE_PORT = 8000
"""HTTP of Ray Serve, on every node with a replica and on the head (Ray docs, serve/http-guide, read 2026-11)."""
METRICS_PORT, AUTOSCALER_METRICS_PORT, DASHBOARD_METRICS_PORT = METRICS_PORTS = (8080, 44217, 44227)
"""Metrics of every pod, of the autoscaler and of the dashboard (Ray docs, metrics, read 2026-11)."""
NIC_METRICS_PORT = 9402
"""Metrics of a worker's NICs (`infra.kubernetes.metrics_pod`); beside that of dcgm-exporter, 9400 (our choice)."""

OUTPUTS_KEY = "outputs.json"
"""Key of the stack's outputs in their Secret."""


def outputs_secret(cluster: str) -> str:
    """Return the name of the Secret with the outputs of a stack, and of the Role to read it, by its `ray.cluster`."""
    return f"{cluster}-outputs"


def rdma_network(nic: int) -> str:
    """Return the name of the Network object of an RDMA NIC, counted from 0."""
    return f"rdma-{nic}"
