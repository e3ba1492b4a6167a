"""What is fixed about every stack on AWS: the CPU nodes, disks, how long nodes stay, endpoints, Lustre.

Facts and choices only, so that those who check a stack need not import what makes it.
"""

from __future__ import annotations

SYSTEM_MACHINE = "m6i.2xlarge"
"""Fits the Ray head (4 CPUs, 16 GiB), its autoscaler, KubeRay and EKS' own pods, with room: our choice, 2026-11."""
SYSTEM_MAX_NODES = 3

ACCELERATOR = "k8s.amazonaws.com/accelerator"
"""The autoscaler takes a node with this label for unfinished until it offers its GPUs, and adds no second one meanwhile
(kubernetes/autoscaler: cloudprovider/aws README; from memory, 2026-11)."""

ROOT_DEVICE = "/dev/xvda"
"""Where AL2023 has its root volume (EKS docs, launch templates; from memory, 2026-11)."""
ROOT_GB = 100
"""GB of the root volume. Images and pods' own files lie on the NVMe disks of a GPU node."""

EMPTY_MINUTES = 3
"""How long a node stays once nothing runs on it. Ray has waited ray.idleMinutes before it let its worker go; as long
again would be paid for nobody (our choice, 2026-11)."""

PROVISION_MINUTES = 30
"""How long a node may take before the autoscaler tries again; a GPU node with its checks takes longer than the 15 of
the default (our choice, 2026-11)."""

ENDPOINT_SERVICES = (
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "sts",
    "logs",
    "monitoring",
    "ssm",
    "ssmmessages",
    "ec2messages",
    "eks-auth",
    "eks",
    "fsx",
    "autoscaling",
)
"""What nodes, add-ons and the autoscaler ask for. Up to eks-auth from SageMaker HyperPod's closed network
(awslabs/awsome-distributed-ai, 95b939cd, 2026-07-23); eks, fsx and autoscaling by what runs here (inferred)."""

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""Lustre's, on both ends of a connection (FSx for Lustre docs, security groups, by the EKS reference, 2026-11)."""
LUSTRE_DRIVER = "fsx.csi.aws.com"
LUSTRE_EVENTS = ("NEW", "CHANGED", "DELETED")
"""What the file system and the bucket tell each other of: everything."""
LUSTRE_THROUGHPUT = 250
"""MB/s per TiB: the second of four steps (125, 250, 500, 1000), twice as fast as the cheapest (our choice, 2026-11)."""
LUSTRE_EFA_THROUGHPUT = 1000
"""What the published EFA examples have (aws-fsx-csi-driver v1.9.0, read 2026-08); it cannot be changed later."""
