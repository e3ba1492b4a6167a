"""Rules that only AWS has: the second zone, interfaces with addresses, ways out, the file system, administrators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.catalog.aws import is_zone_id, zone_region
from infra.catalog.capacity import BLOCKS
from infra.legality.fabric import ZONE
from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

SUBNETS = "EKS docs network-reqs: subnets in at least two availability zones; from memory, 2026-11"
INTERFACES = "EC2 docs efa-acc-inst-types, read 2026-08; ai-on-eks: efa-networkinterfaces-generator"
REGISTRIES = "KubeRay, NVIDIA and Cluster Autoscaler charts: images at quay.io, nvcr.io, registry.k8s.io; read 2026-11"
LUSTRE = "FSx for Lustre docs, deployment and storage class options; from memory, 2026-11"
LUSTRE_EFA = "FSx for Lustre docs, EFA-enabled file systems; aws-fsx-csi-driver v1.9.0 example, read 2026-08"
LUSTRE_CLIENTS = "FSx for Lustre docs, configure-efa-clients, read 2026-11"
ACCESS_ENTRIES = "EKS docs access-entries; IAM docs, ARNs; from memory, 2026-11"

BANDWIDTH_OPTIMISED = ("p5.48xlarge", "p5e.48xlarge")
WITHOUT_STORAGE_EFA = ("p4d.24xlarge", "p4de.24xlarge")
SMALLEST_GIB = 1200
STEP_GIB = 2400
SMALLEST_EFA_GIB = 4800
LUSTRE_EFA_DEVICES = 1024
LUSTRE_EFA_BY_EIGHT = ("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")


def second_zone_unfit(s: Settings) -> Problem | None:
    """The control plane's second zone is no other zone of the same region, or written in another way."""
    zone, location = s.network.second_zone, s.location
    if s.target != "eks" or zone is None or location is None or not re.fullmatch(ZONE["eks"], location):
        return None
    if zone == location:
        says = f"Both zones are {zone}, and EKS makes no control plane with subnets in one zone."
    elif not re.fullmatch(ZONE["eks"], zone):
        says = f"{zone} is not the name of a zone; nothing could be made there."
    elif is_zone_id(zone) != is_zone_id(location):
        says = f"{zone} and {location} are a name and an id; whether they are two zones, only the account knows."
    elif _region(zone) != _region(location):
        says = f"{zone} and {location} are in two regions, and a VPC has one."
    else:
        return None
    return Problem(
        settings=("network.secondZone", "location"),
        says=says,
        fix="name another zone of the region, written like location, or leave network.secondZone out",
        source=SUBNETS,
    )


def _region(zone: str) -> str | None:
    return zone.rpartition("-az")[0] if is_zone_id(zone) else zone_region(zone)


def block_end_unused(s: Settings) -> Problem | None:
    """Only a Capacity Block has an end that is known beforehand."""
    if s.target != "eks" or s.nodes.block_ends is None or s.nodes.capacity == "capacity-block":
        return None
    return Problem(
        settings=("nodes.blockEnds", "nodes.capacity"),
        says=f"{s.nodes.capacity} machines have no end; at that time they would be drained for nothing.",
        fix="remove nodes.blockEnds, or set nodes.capacity to capacity-block",
        source=BLOCKS,
    )


def interfaces_unfit(s: Settings) -> Problem | None:
    """Only p5 and p5e have a layout with more interfaces for IP."""
    if s.target != "eks" or s.network.interfaces != "bandwidth-optimised" or s.nodes.machine is None:
        return None
    if s.nodes.machine in BANDWIDTH_OPTIMISED:
        return None
    return Problem(
        settings=("network.interfaces", "nodes.machine"),
        says=f"No layout with interfaces for IP on several cards is published for {s.nodes.machine}.",
        fix=f"leave network.interfaces out, or choose one of {', '.join(BANDWIDTH_OPTIMISED)}",
        source=INTERFACES,
    )


def endpoints_without_mirror(s: Settings) -> Problem | None:
    """Nodes without a way to the Internet cannot fetch the operators' images."""
    if s.target != "eks" or s.access.egress != "endpoints" or s.access.image_mirror is not None:
        return None
    return Problem(
        settings=("access.egress", "access.imageMirror"),
        says="Endpoints lead to AWS' own services only. The images of KubeRay, of the NVIDIA device plugin and of the "
        "autoscaler lie elsewhere, so no GPU would ever be offered.",
        fix="copy them to a registry of ECR and name it in access.imageMirror, or set access.egress to nat",
        source=REGISTRIES,
    )


def image_out_of_reach(s: Settings) -> Problem | None:
    """Nodes without a way to the Internet fetch images from ECR alone."""
    image = s.ray.image
    if s.target != "eks" or s.access.egress != "endpoints" or image is None or ".dkr.ecr." in image.partition("/")[0]:
        return None
    return Problem(
        settings=("ray.image", "access.egress"),
        says="Endpoints lead to AWS' own services only, and this registry is none of them: no pod of Ray would start.",
        fix="copy the image to a private registry of ECR and name that one, or set access.egress to nat",
        source=REGISTRIES,
    )


def file_system_size(s: Settings) -> Problem | None:
    """FSx for Lustre comes in fixed sizes."""
    size = s.storage.capacity_gib
    if s.target != "eks" or size is None:
        return None
    if s.storage.efa and size < SMALLEST_EFA_GIB:
        return Problem(
            settings=("storage.capacityGib", "storage.efa"),
            says=f"A file system that answers over EFA has at least {SMALLEST_EFA_GIB} GiB; FSx refuses {size}.",
            fix=f"set storage.capacityGib to {SMALLEST_EFA_GIB}, or leave storage.efa out",
            source=LUSTRE_EFA,
        )
    if size == SMALLEST_GIB or size % STEP_GIB == 0:
        return None
    return Problem(
        settings=("storage.capacityGib",),
        says=f"FSx for Lustre has {SMALLEST_GIB} GiB, or a multiple of {STEP_GIB}; it refuses {size}.",
        fix=f"set storage.capacityGib to {-(-size // STEP_GIB) * STEP_GIB}",
        source=LUSTRE,
    )


def file_system_efa_unfit(s: Settings) -> Problem | None:
    """The machine's Lustre client does not speak EFA."""
    if s.target != "eks" or not s.storage.efa or s.nodes.machine not in WITHOUT_STORAGE_EFA:
        return None
    return Problem(
        settings=("storage.efa", "nodes.machine"),
        says=f"No Lustre client over EFA is published for {s.nodes.machine}; it would fall back to TCP, silently.",
        fix="leave storage.efa out, or choose a p5 or p6 machine",
        source=LUSTRE_EFA,
    )


def file_system_efa_out_of_reach(s: Settings) -> Problem | None:
    """Nodes without a way to the Internet cannot fetch the set-up of the Lustre client."""
    if s.target != "eks" or not s.storage.efa or s.access.egress != "endpoints":
        return None
    return Problem(
        settings=("storage.efa", "access.egress"),
        says="GPU nodes fetch AWS' set-up of the Lustre client from docs.aws.amazon.com when they start. Endpoints do "
        "not lead there: the folder would fall back to TCP, silently.",
        fix="leave storage.efa out, or set access.egress to nat",
        source=LUSTRE_CLIENTS,
    )


def file_system_efa_crowded(s: Settings) -> Problem | None:
    """A file system takes a limited number of EFA devices."""
    each = 8 if s.nodes.machine in LUSTRE_EFA_BY_EIGHT else 2
    most = LUSTRE_EFA_DEVICES // each
    if s.target != "eks" or not s.storage.efa or s.nodes.max <= most:
        return None
    return Problem(
        settings=("nodes.max", "storage.efa", "nodes.machine"),
        says=f"A file system takes {LUSTRE_EFA_DEVICES} EFA devices, and each node's Lustre client uses "
        f"{each}: those of {most} nodes.",
        fix=f"lower nodes.max to {most}, or leave storage.efa out",
        source=LUSTRE_CLIENTS,
    )


def file_system_without_bucket(s: Settings) -> Problem | None:
    """The file system is there for the bucket; without one none is made."""
    if s.target != "eks" or s.storage.bucket is not None:
        return None
    said = [("storage.efa", s.storage.efa), ("storage.capacityGib", s.storage.capacity_gib != SMALLEST_GIB)]
    path = next((path for path, differs in said if differs), None)
    if path is None:
        return None
    return Problem(
        settings=(path, "storage.bucket"),
        says="A stack makes a file system in front of a bucket only, so nothing would read this.",
        fix=f"name the bucket in storage.bucket, or remove {path}",
        source=OUR_CONTRACT,
    )


def administrator_misspelt(s: Settings) -> Problem | None:
    """An access entry is for an IAM role or user, by ARN."""
    pattern = r"arn:aws(-cn|-us-gov)?:iam::\d{12}:(role|user)/[\w+=,.@/-]+"
    wrong = [arn for arn in s.access.administrators if not re.fullmatch(pattern, arn)]
    if s.target != "eks" or not wrong:
        return None
    return Problem(
        settings=("access.administrators",),
        says=f"{wrong[0]} is not the ARN of an IAM role or user; EKS refuses an access entry for it.",
        fix="write the role's own ARN (not that of a session), such as arn:aws:iam::111122223333:role/ops",
        source=ACCESS_ENTRIES,
    )


RULES: tuple[Rule, ...] = (
    second_zone_unfit,
    block_end_unused,
    interfaces_unfit,
    endpoints_without_mirror,
    image_out_of_reach,
    file_system_size,
    file_system_efa_unfit,
    file_system_efa_out_of_reach,
    file_system_efa_crowded,
    file_system_without_bucket,
    administrator_misspelt,
)
