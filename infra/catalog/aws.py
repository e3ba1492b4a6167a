"""Facts about AWS and the sizes, ports and waits of every stack there: zones, nodes, endpoints, FSx for Lustre.

A zone's name (us-east-1a) is a different location in each account; its id (use1-az1) is the same location everywhere.
Only AWS knows which zones an account has. This module imports no SDK, so validation can use it.
"""

from __future__ import annotations

import re

# Zones

WITHOUT_EKS = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Ids of zones whose subnets EKS rejects (EKS docs network-reqs; unverified, 2026-11)."""


def is_zone_id(zone: str) -> bool:
    """Return whether the zone is given by its id, not by its name."""
    return re.search(r"-az\d+$", zone) is not None


def zone_region(zone: str) -> str | None:
    """Return the region of a zone or local zone given by name; None for an id, which abbreviates the region."""
    found = re.match(r"([a-z]{2}(?:-[a-z]+)+-\d+)(?:-[a-z]{3}-\d)?[a-z]$", zone)
    return found[1] if found else None


def is_local_zone(zone: str) -> bool:
    """Return whether the zone, by name or id, is a Local Zone (us-east-1-dfw-2a, use1-dfw2-az1)."""
    return re.search(r"-[a-z]{3}-?\d+(-az\d+|[a-z])$", zone) is not None


def region_of(zone: str, region: str) -> str | None:
    """Return the region of a zone, `region` if it may be that; None if an id abbreviates another one.

    An id begins with the region's abbreviation: its parts' initials, of "southeast" two (EC2 docs, zone ids; a test
    compares all regions that moto knows).
    """
    if not is_zone_id(zone):
        return zone_region(zone) or region
    country, *parts, number = region.split("-")
    initials = "".join(re.sub(r"^(n|s)\w+?(e|w)\w+$|^(\w)\w*$", r"\1\2\3", part) for part in parts)
    return region if zone.partition("-")[0] == f"{country}{initials}{number}" else None


def second_zone(location: str) -> str:
    """Return another zone of the region, in the notation of `location`: the first one, or else the second one.

    The zone is guessed from names, so a preview needs no call to AWS. If the account has no such zone, AWS rejects the
    subnet within a minute and lists the existing zones; set `network.secondZone` to one of them. Returns `location`
    itself if that is not a zone.
    """
    if is_zone_id(location):
        region, _, number = location.rpartition("-az")
        others = (f"{region}-az{other}" for other in (1, 2, 4, 3, 5, 6) if other != int(number))
        return next(zone for zone in others if zone not in WITHOUT_EKS)
    region_name = zone_region(location)
    return f"{region_name}{'b' if location == f'{region_name}a' else 'a'}" if region_name else location


# Nodes

NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""Label that EKS sets on every node, with the group's name (EKS docs, managed node groups; unverified, 2026-11)."""
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
"""The Cluster Autoscaler treats a node with this label as not ready until it offers its GPUs, and adds no second node
in the meantime (kubernetes/autoscaler: processors/customresources/gpu_processor.go, 1.35.0, read 2026-11)."""

ROOT_DEVICE = "/dev/xvda"
"""Device of AL2023's root volume (EKS docs, launch templates; unverified, 2026-11)."""
ROOT_GIB = 100
"""Size of a CPU node's root volume, GiB."""
ROOT_THROUGHPUT = 600
"""Throughput of the root volume, MiB/s. At gp3's default of 125 a node starts more slowly, and a GPU node costs about a
dollar a minute. FastImagePull needs 600 where images are on this volume (Convox docs, rack
parameter fast_image_pull_enable, read 2026-11)."""

EMPTY_MINUTES = 3
"""Minutes before an empty node is removed. Ray has already waited ray.idleMinutes before it removed the worker; a
longer wait only costs money (this project's choice, 2026-11)."""
KEY_WINDOW_DAYS = 30
"""Days during which a deleted key can be restored: the maximum of KMS (KMS docs; unverified, 2026-11)."""

TOPOLOGY = tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4))
"""Topology labels of nodes, highest level first: three of every machine of the catalog, and the fourth of P6
(`EksMachine.network_layers`). EKS sets them before the node is ready (EKS docs ml-workload-topology; EC2 docs
ec2-instance-topology-prerequisites; kubernetes/cloud-provider-aws #1100; read 2026-11-26)."""
HOST_LABEL = "kubernetes.io/hostname"

PROVISION_MINUTES = 30
"""Minutes until the autoscaler gives up on a node that does not join. A GPU node with its health checks takes longer
than the default of 15 (this project's choice, 2026-11)."""

EVICTION_MINUTES = 15
"""Minutes that EKS drains a node before it terminates the instance (EKS docs; unverified, 2026-11)."""
RECLAIM_MINUTES = 30
"""Minutes before a block's end at which EC2 begins to terminate instances (EC2 docs, capacity-blocks-monitor, read
2026-11)."""
BLOCK_DRAIN_MINUTES = RECLAIM_MINUTES + EVICTION_MINUTES

# Network

ANYWHERE = "0.0.0.0/0"
HTTPS_PORT = 443
LOG_DAYS = 30
"""Days that CloudWatch keeps the logs of the control plane and of the network (this project's choice)."""
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
"""Services that nodes, add-ons and the autoscaler call. The list up to eks-auth is that of SageMaker HyperPod's closed
network (awslabs/awsome-distributed-ai, 95b939cd, 2026-07-23); eks, fsx and autoscaling are inferred."""

# FSx for Lustre

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""TCP ports on both ends of a connection (FSx for Lustre docs, security groups; unverified, 2026-11)."""
LUSTRE_DRIVER = "fsx.csi.aws.com"
LUSTRE_EVENTS = ("NEW", "CHANGED")
LUSTRE_DELETIONS = "DELETED"
"""Events that the file system and the bucket tell each other (FSx API, AutoExportPolicy, read 2026-11)."""
LUSTRE_THROUGHPUT = 250
"""MB/s per TiB: the second of four steps (125, 250, 500, 1000), twice as fast as the cheapest (this project's choice,
2026-11)."""
LUSTRE_EFA_THROUGHPUT = 1000
"""MB/s per TiB in the published examples with EFA (aws-fsx-csi-driver v1.9.0, read 2026-08). It cannot be changed
later."""
