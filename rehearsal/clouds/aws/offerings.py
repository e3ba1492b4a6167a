"""Offerings of AWS: zones, instance types, EKS versions, images, add-ons, managed policies, quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.machines import EKS_CATALOG
from rehearsal.clouds.state import View

VERSIONS = ("1.36", "1.35", "1.34", "1.33", "1.32", "1.31", "1.30")
"""Kubernetes versions, newest first: those with node images (EKS AMI releases v20260714 and v20260728)."""
DEFAULT_VERSION = "1.35"
"""Chosen by the simulation, 2026-11."""
IMAGE_DATE = "20260728"
"""Of the newest node images (awslabs/amazon-eks-ami, v20260728)."""

AMI_TYPES = frozenset(
    {
        *("AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD", "AL2023_x86_64_NVIDIA", "AL2023_ARM_64_NVIDIA"),
        *("AL2023_x86_64_NEURON", "BOTTLEROCKET_x86_64", "BOTTLEROCKET_ARM_64", "BOTTLEROCKET_x86_64_NVIDIA"),
        *("BOTTLEROCKET_ARM_64_NVIDIA", "BOTTLEROCKET_x86_64_FIPS", "BOTTLEROCKET_ARM_64_FIPS", "CUSTOM"),
    }
)
"""EKS API, AMITypes, without Windows and the AL2 types, which ended on 2025-11-26."""

ADDONS: Mapping[str, tuple[str, bool]] = {
    "vpc-cni": ("v1.23.0-eksbuild.1", False),
    "kube-proxy": ("v{version}.0-eksbuild.2", False),
    "eks-pod-identity-agent": ("v1.3.10-eksbuild.2", False),
    "eks-node-monitoring-agent": ("v1.4.3-eksbuild.1", False),
    "coredns": ("v1.14.3-eksbuild.11", True),
    "metrics-server": ("v0.8.0-eksbuild.6", True),
    "aws-ebs-csi-driver": ("v1.55.0-eksbuild.1", True),
    "aws-efs-csi-driver": ("v2.3.0-eksbuild.1", True),
    "aws-fsx-csi-driver": ("v1.9.0-eksbuild.1", True),
    "aws-mountpoint-s3-csi-driver": ("v2.3.0-eksbuild.1", True),
    "snapshot-controller": ("v8.4.0-eksbuild.1", True),
    "cert-manager": ("v1.19.2-eksbuild.1", True),
    "amazon-cloudwatch-observability": ("v4.10.0-eksbuild.1", True),
    "adot": ("v0.141.0-eksbuild.1", True),
    "aws-guardduty-agent": ("v1.12.1-eksbuild.2", False),
    "prometheus-node-exporter": ("v1.10.2-eksbuild.4", False),
    "kube-state-metrics": ("v2.18.0-eksbuild.1", True),
    "external-dns": ("v0.20.0-eksbuild.3", True),
}
"""Add-ons: default version, and whether one of their pods needs a node before they become ACTIVE.

vpc-cni and coredns as eksctl 0.230.0 bundles them, 2026-08; aws-fsx-csi-driver 1.9.0, read 2026-08; the other versions
and the list are unverified, 2026-11. Requested versions are checked by format only.
"""

MANAGED_POLICIES = frozenset(
    {
        *("AmazonEKSClusterPolicy", "AmazonEKSServicePolicy", "AmazonEKSVPCResourceController"),
        *("AmazonEKSComputePolicy", "AmazonEKSBlockStoragePolicy", "AmazonEKSLoadBalancingPolicy"),
        *("AmazonEKSNetworkingPolicy", "AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"),
        *("AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"),
        *("AmazonEC2ContainerRegistryPowerUser", "AmazonSSMManagedInstanceCore", "CloudWatchAgentServerPolicy"),
        *("AmazonFSxFullAccess", "AmazonFSxReadOnlyAccess", "AmazonS3FullAccess", "AmazonS3ReadOnlyAccess"),
        *("service-role/AmazonEBSCSIDriverPolicy", "service-role/AmazonEFSCSIDriverPolicy", "AdministratorAccess"),
        *("AWSXrayWriteOnlyAccess", "ReadOnlyAccess", "PowerUserAccess", "AutoScalingFullAccess"),
    }
)
"""AWS managed policies that clusters use (unverified, 2026-11)."""

ACCESS_POLICIES = frozenset(
    {
        *("AmazonEKSClusterAdminPolicy", "AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSEditPolicy"),
        *("AmazonEKSViewPolicy", "AmazonEKSAutoNodePolicy", "AmazonEKSBlockStoragePolicy", "AmazonEKSNetworkingPolicy"),
        *("AmazonEKSLoadBalancingPolicy", "AmazonEKSComputePolicy", "AmazonEKSHybridPolicy"),
    }
)
"""EKS docs, access policies; unverified, 2026-11."""

INTERFACE_SERVICES = frozenset(
    {
        *("ec2", "ecr.api", "ecr.dkr", "sts", "logs", "monitoring", "ssm", "ssmmessages", "ec2messages", "eks"),
        *("eks-auth", "elasticloadbalancing", "autoscaling", "fsx", "kms", "secretsmanager", "s3", "sqs", "xray"),
    }
)
GATEWAY_SERVICES = frozenset({"s3", "dynamodb"})
"""Services with endpoints: the HyperPod list of the project's EKS reference, 2026-08; the rest unverified, 2026-11."""

_ROOMY = {"p4d.24xlarge": 15, "p4de.24xlarge": 15, "p5.48xlarge": 2, "p5e.48xlarge": 2}
INTERFACES_PER_CARD = {name: _ROOMY.get(name, 4) for name in EKS_CATALOG}
"""Interfaces that fit on a network card (EC2 DescribeInstanceTypes, karpenter zz_generated.vpclimits.go, 2026-08)."""

_FAMILY = re.compile(
    r"(?P<family>[a-z]+)(?P<generation>\d+)(?P<extra>[a-z]*)(-[a-z0-9]+)?\."
    r"(nano|micro|small|medium|large|xlarge|(?P<times>\d+)xlarge|metal(-\d+xl)?)"
)
_GPU_FAMILIES = ("p", "g", "gr", "dl", "inf", "trn", "vt")
_KNOWN_FAMILIES = ("m", "c", "r", "t", "x", "i", "im", "is", "d", "h", "hpc", "z", "a", "u", *_GPU_FAMILIES)


@dataclass(frozen=True)
class InstanceType:
    """Properties of an instance type that rules need. `accelerated`: it has GPUs or other accelerators."""

    name: str
    cards: int
    per_card: int
    efa_max: int
    card_zero_efa: bool
    accelerated: bool
    arm: bool
    vcpus: int
    capacity_blocks: bool


def instance_type(name: str) -> InstanceType | None:
    """Return an instance type of the catalog with all facts, or one of another known family with defaults."""
    row = EKS_CATALOG.get(name)
    if row is not None:
        return InstanceType(
            name=name,
            cards=row.network_cards,
            per_card=INTERFACES_PER_CARD[name],
            efa_max=row.nics,
            card_zero_efa=row.card_zero_efa,
            accelerated=True,
            arm=row.arch == "arm64",
            vcpus=row.vcpus or 0,
            capacity_blocks="capacity-block" in row.capacities,
        )
    found = _FAMILY.fullmatch(name)
    # The large sizes of these families exist in the catalog only.
    if found is None or found["family"] not in _KNOWN_FAMILIES or name.startswith(("p4", "p5", "p6")):
        return None
    vcpus = 4 * int(found["times"] or 1) if name.endswith("xlarge") else 2
    return InstanceType(
        name=name,
        cards=1,
        per_card=4,
        efa_max=0,
        card_zero_efa=False,
        accelerated=found["family"] in _GPU_FAMILIES,
        arm="g" in found["extra"] or found["family"] == "a",
        vcpus=vcpus,
        capacity_blocks=False,
    )


def zones(region: str) -> list[str]:
    """Return the zones of a region: three, as most have. us-east-1 has six (unverified, 2026-11)."""
    return [
        f"{region}{letter}"
        for letter in ("abcdef" if region == "us-east-1" else "abcd" if region == "us-west-2" else "abc")
    ]


def zone_id(zone: str) -> str:
    """Return the id of a zone ("usw2-az2"); the mapping of names to ids differs between accounts."""
    region, letter = zone[:-1], zone[-1]
    area, direction, number = region.rsplit("-", 2)
    short = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}.get(direction, direction[0])
    return f"{area.replace('-', '')}{short}{number}-az{ord(letter) - ord('a') + 1}"


def offered(name: str, zone: str, state: View) -> bool:
    """Return whether a zone has an instance type: every zone, unless the setting "offers" names others.

    No source lists the zones of the large GPU types, and they differ between accounts.
    """
    places = state.setting("offers", {}).get(name)
    return places is None or zone in places


def quota(state: View, name: str) -> int | None:
    """Return a limit of the account ("VPC", "EIP", "P" vCPUs), if the rehearsal sets one."""
    limit = state.setting("quota", {}).get(name)
    return None if limit is None else int(limit)


def key(version: str) -> tuple[int, ...]:
    """Return the sort key of a Kubernetes version: "1.34" or "1.34.2-20260728"."""
    return tuple(int(part) for part in re.split(r"[.-]", version) if part.isdigit())


def release(version: str, date: str = IMAGE_DATE) -> str:
    """Return the release of a node image for a Kubernetes version."""
    return f"{version}.2-{date}"


def node_family(name: str) -> str:
    """Return the quota bucket of an instance type: "P", "G", or "standard"."""
    return "P" if name.startswith("p") else "G" if name.startswith("g") else "standard"
