"""Stack file of a cluster on AWS: sections, defaults and rules."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from infra.addresses import BaseRangeError, eks_addresses
from infra.catalog.aws import is_zone_id, second_zone, zone_region
from infra.catalog.capacity import BLOCKS, TOOLKIT
from infra.catalog.machines import EKS_CATALOG
from infra.catalog.pins import AWS_RAY_TRAIN, RAY, RAY_IN
from infra.settings.common import (
    ADDRESSES,
    KUBERNETES_LIMITS,
    CloudAccess,
    CloudNetwork,
    CloudNodes,
    CloudRay,
    CloudSettings,
    CloudStorage,
    NameLimit,
    not_a_bucket,
    not_a_zone,
    supported,
)
from infra.settings.fields import Cidr, Derived, Flag, Moment, Number, OneOf, Text, Texts, Version
from infra.settings.problems import CONTRACT, Finding, Found, Rules

ACCESS_ENTRIES = "EKS docs access-entries; IAM docs, ARNs; unverified, 2026-11"
BUCKETS = "Amazon S3 docs, general purpose bucket naming rules; checked 2026-11"
DRANET = "aws/eks-charts: aws-dranet 1.0.0, 5239609, 2026-08-03; inferred from the Cluster Autoscaler"
EC2_NAMES = "EC2 API reference: launch template name at most 128, of a-z, A-Z, 0-9, ( ) . / and _; unverified, 2026-11"
EC2_RESERVATIONS = "EC2 docs, Capacity Reservations; the form of ids is unverified, 2026-11"
EFA = "EC2 docs, Elastic Fabric Adapter: EFA traffic does not leave its availability zone, read 2026-08"
EKS_NAMES = "EKS API reference: cluster name at most 100; unverified, 2026-11"
INTERFACES = "EC2 docs efa-acc-inst-types, read 2026-08; ai-on-eks: efa-networkinterfaces-generator"
LUSTRE = "FSx for Lustre docs, deployment and storage class options; unverified, 2026-11"
LUSTRE_CLIENTS = "FSx for Lustre docs, configure-efa-clients, read 2026-11"
LUSTRE_EFA = "FSx for Lustre docs, EFA-enabled file systems; aws-fsx-csi-driver v1.9.0 example, read 2026-08"
REGISTRIES = "KubeRay, NVIDIA and Cluster Autoscaler charts: images at quay.io, nvcr.io, registry.k8s.io; read 2026-11"
SUBNETS = "EKS docs network-reqs: subnets in at least two availability zones; unverified, 2026-11"

BANDWIDTH_OPTIMISED = ("p5.48xlarge", "p5e.48xlarge")
WITHOUT_STORAGE_EFA = ("p4d.24xlarge", "p4de.24xlarge")
SMALLEST_GIB = 1200
STEP_GIB = 2400
SMALLEST_EFA_GIB = 4800
LUSTRE_EFA_DEVICES = 1024
LUSTRE_EFA_BY_EIGHT = ("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")
ZONE = r"[a-z]{2}(-[a-z]+)+-\d+(-[a-z]{3}-\d)?[a-z]|[a-z]{3,5}\d(-[a-z]{3}\d)?-az\d"

EksCapacityName = Literal["on-demand", "spot", "reservation", "capacity-block"]
EksFabricName = Literal["efa", "efa-dranet"]
EgressName = Literal["nat", "endpoints"]
InterfacesName = Literal["ip-optimised", "bandwidth-optimised"]

NAME_LIMITS = (
    NameLimit("EKS cluster", 100, "", EKS_NAMES),
    # Node groups are named within their cluster; IAM roles are cut to fit (infra/eks/names.py).
    NameLimit("launch template", 128, "-system", EC2_NAMES),
    *KUBERNETES_LIMITS,
)


class EksNodes(CloudNodes):
    """Node group of GPU machines."""

    machine: Annotated[str, OneOf(tuple(EKS_CATALOG))] = Field(examples=supported("eks"))
    capacity: EksCapacityName = "on-demand"
    block_ends: Moment | None = Field(
        None,
        description="eks, capacity-block: when the block ends, in UTC and in quotes. The nodes are drained 45 minutes "
        "before, 15 minutes before EC2 begins to terminate them. Without it, nothing drains them.",
    )


class EksRay(CloudRay):
    """The Ray cluster."""

    version: Annotated[
        Version, Derived(lambda s: RAY_IN.get(s.ray.image, RAY), f"{RAY}, or the Ray of AWS' own image if that is used")
    ]
    image: Text = AWS_RAY_TRAIN


class EksStorage(CloudStorage):
    """Folder that every Ray node sees."""

    capacity_gib: Number = Field(
        SMALLEST_GIB,
        ge=1200,
        le=1_000_000,
        title="GiB",
        description="eks: size of the FSx file system in front of the bucket: 1200, or a multiple of 2400.",
    )
    efa: Flag = Field(
        False,
        description="eks: whether the file system also answers over EFA. It takes 4800 GiB and can be chosen at "
        "creation only. The GPU nodes then fetch and run AWS' own set-up of the Lustre client when they start "
        "(docs/eks.md).",
    )


class EksAccess(CloudAccess):
    """Who reaches the cluster's control plane."""

    administrators: Texts = Field(
        (),
        title="ARNs of IAM roles or users",
        examples=["arn:aws:iam::111122223333:role/ops"],
        description="eks: ARNs of further IAM roles and users that administer the cluster. The identity that creates "
        "it always does and must not be in the list.",
    )
    egress: EgressName = "nat"
    image_mirror: Text | None = Field(
        None,
        title="a registry",
        description="eks: registry that has the operators' images under their own paths, such as "
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror. Required with egress endpoints.",
    )


class EksNetwork(CloudNetwork):
    """Addresses of the stack's own networks."""

    base_range: Cidr = "10.64.0.0/16"
    second_zone: Annotated[
        Text, Derived(lambda s: second_zone(s.location) or s.location, "a neighbor of location, by name")
    ] = Field(
        title="a zone",
        description="eks: second availability zone of the region, written like location. The control plane requires "
        "subnets in two zones; no node runs there.",
    )
    interfaces: InterfacesName = Field(
        "ip-optimised",
        title="interface layout",
        description="eks, p5 and p5e: ip-optimised (one interface with an address, 100 Gbit/s of IP), or "
        "bandwidth-optimised (eight of them, 800 Gbit/s). EFA has its full rate with both.",
    )


class EksSettings(CloudSettings):
    """Stack file of a cluster on AWS."""

    target: Literal["eks"]
    nodes: EksNodes
    fabric: EksFabricName = "efa"
    ray: EksRay
    storage: EksStorage
    access: EksAccess
    network: EksNetwork


RULES = Rules()
rule = RULES.add


@rule("location", source=EFA)
def location_not_a_zone(s: EksSettings) -> Finding:
    """EFA does not leave a zone, so the location is a zone."""
    return not_a_zone(s.location, ZONE, r"[a-z]{2}(-[a-z]+)+-\d+", "a", "us-east-1a, or its id such as use1-az1")


@rule("nodes.reservation", "nodes.capacity", source=BLOCKS)
def reservation_missing(s: EksSettings) -> Finding:
    """The capacity is a reservation or a Capacity Block, and none is named."""
    if s.nodes.capacity in ("reservation", "capacity-block") and s.nodes.reservation is None:
        yield Found(
            f"Capacity {s.nodes.capacity} needs the reservation's id; without it the nodes would be bought on demand "
            "or never start.",
            "set nodes.reservation to the reservation's id, cr-…",
        )


@rule("nodes.reservation", "nodes.capacity", source=TOOLKIT)
def reservation_unused(s: EksSettings) -> Finding:
    """A reservation is named, but the capacity is another one."""
    if s.nodes.capacity not in ("reservation", "capacity-block") and s.nodes.reservation is not None:
        yield Found(
            f"{s.nodes.capacity} nodes do not use a reservation, so this one would be paid for and idle.",
            "remove nodes.reservation, or set nodes.capacity to reservation",
        )


@rule("nodes.reservation", source=EC2_RESERVATIONS)
def reservation_malformed(s: EksSettings) -> Finding:
    """The id cannot be a reservation's."""
    if s.nodes.reservation is not None and not re.fullmatch(r"cr-[0-9a-f]{8,17}", s.nodes.reservation):
        yield Found(
            f"{s.nodes.reservation} cannot be the id of a reservation; AWS would not find it.",
            "write an id such as cr-0123456789abcdef0",
        )


@rule("nodes.min", "nodes.capacity", "fabric", source=BLOCKS)
def capacity_block_not_static(s: EksSettings) -> Finding:
    """A Capacity Block has no machine before it begins."""
    if s.nodes.capacity == "capacity-block" and s.nodes.min > 0:
        yield Found(
            f"A Capacity Block has no machine before it begins and after it ends; EKS cannot create a node group with "
            f"at least {s.nodes.min} nodes.",
            "set nodes.min to 0" + (", and fabric to efa, which scales up from 0 nodes" * (s.fabric == "efa-dranet")),
        )


@rule("nodes.blockEnds", "nodes.capacity", source=BLOCKS)
def block_end_without_block(s: EksSettings) -> Finding:
    """Only a Capacity Block has an end."""
    if s.nodes.capacity != "capacity-block" and s.nodes.block_ends is not None:
        yield Found(
            f"{s.nodes.capacity} machines have no end; at that time they would be drained without need.",
            "remove nodes.blockEnds, or set nodes.capacity to capacity-block",
        )


@rule("fabric", "nodes.min", "nodes.capacity", source=DRANET)
def claims_from_zero_nodes(s: EksSettings) -> Finding:
    """An EFA pool with claims does not scale up from 0 nodes."""
    if s.fabric == "efa-dranet" and s.nodes.min == 0:
        yield Found(
            "The autoscaler learns a node's devices from a node that runs. With 0 nodes it sees none that could serve "
            "a claim, and never adds one.",
            "set fabric to efa" if s.nodes.capacity == "capacity-block" else "set nodes.min to 1, or fabric to efa",
        )


@rule("network.secondZone", "location", source=SUBNETS)
def second_zone_wrong(s: EksSettings) -> Finding:
    """The control plane's second zone is another zone of the same region, written the same way."""
    zone, location = s.network.second_zone, s.location
    if not re.fullmatch(ZONE, location):
        return
    fix = "set network.secondZone to another zone of the region, written like location, or remove it"
    if zone == location:
        yield Found(f"Both zones are {zone}; EKS rejects a control plane with subnets in one zone.", fix)
    elif not re.fullmatch(ZONE, zone):
        yield Found(f"{zone} is not the name of a zone; no resource could be created there.", fix)
    elif is_zone_id(zone) != is_zone_id(location):
        yield Found(f"{zone} and {location} are a name and an id; they may be the same zone of your account.", fix)
    elif _region(zone) != _region(location):
        yield Found(f"{zone} and {location} are in two regions, and a VPC has one.", fix)


def _region(zone: str) -> str | None:
    return zone.rpartition("-az")[0] if is_zone_id(zone) else zone_region(zone)


@rule("network.interfaces", "nodes.machine", source=INTERFACES)
def interfaces_unavailable(s: EksSettings) -> Finding:
    """Only p5 and p5e have a layout with more interfaces for IP."""
    if s.network.interfaces == "bandwidth-optimised" and s.nodes.machine not in BANDWIDTH_OPTIMISED:
        yield Found(
            f"AWS publishes no layout with IP interfaces on several cards for {s.nodes.machine}.",
            f"remove network.interfaces, or choose one of {', '.join(BANDWIDTH_OPTIMISED)}",
        )


@rule("network.baseRange", "nodes.max", source=ADDRESSES)
def base_range_wrong_size(s: EksSettings) -> Finding:
    """Every node and interface needs an address, and a VPC has a largest size."""
    try:
        eks_addresses(IPv4Network(s.network.base_range), s.nodes.max)
    except BaseRangeError as error:
        yield Found(error.says, error.fix)


@rule("access.egress", "access.imageMirror", source=REGISTRIES)
def endpoints_without_mirror(s: EksSettings) -> Finding:
    """Nodes without a route to the Internet cannot pull the operators' images."""
    if s.access.egress == "endpoints" and s.access.image_mirror is None:
        yield Found(
            "Endpoints reach AWS services only. The images of KubeRay, of the NVIDIA device plugin and of the "
            "autoscaler are in other registries, so no node would offer a GPU.",
            "copy them to an ECR registry and set access.imageMirror to it, or set access.egress to nat",
        )


@rule("ray.image", "access.egress", source=REGISTRIES)
def image_out_of_reach(s: EksSettings) -> Finding:
    """Nodes without a route to the Internet pull images from ECR only."""
    if s.access.egress == "endpoints" and ".dkr.ecr." not in s.ray.image.partition("/")[0]:
        yield Found(
            "Endpoints reach AWS services only, and this registry is not one of them: no Ray pod would start.",
            "copy the image to a private ECR registry and set ray.image to that copy, or set access.egress to nat",
        )


@rule("access.administrators", source=ACCESS_ENTRIES)
def administrator_malformed(s: EksSettings) -> Finding:
    """An access entry is for an IAM role or user, by ARN."""
    pattern = r"arn:aws(-cn|-us-gov)?:iam::\d{12}:(role|user)/[\w+=,.@/-]+"
    for arn in s.access.administrators:
        if not re.fullmatch(pattern, arn):
            yield Found(
                f"{arn} is not the ARN of an IAM role or user; EKS rejects an access entry for it.",
                "write the role's own ARN (not that of a session), such as arn:aws:iam::111122223333:role/ops",
            )


@rule("storage.bucket", source=BUCKETS)
def bucket_malformed(s: EksSettings) -> Finding:
    """The name cannot be a bucket's."""
    name = s.storage.bucket or "bucket"
    accepted = re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) and ".." not in name
    accepted = accepted and not name.startswith(("xn--", "sthree-")) and not name.endswith("-s3alias")
    words = "S3: 3 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends"
    return not_a_bucket(name, bool(accepted), words)


@rule("storage.capacityGib", "storage.efa", source=LUSTRE)
def file_system_size(s: EksSettings) -> Finding:
    """FSx for Lustre has fixed sizes."""
    size = s.storage.capacity_gib
    if s.storage.efa and size < SMALLEST_EFA_GIB:
        yield Found(
            f"A file system that answers over EFA has at least {SMALLEST_EFA_GIB} GiB; FSx rejects {size}.",
            f"set storage.capacityGib to {SMALLEST_EFA_GIB}, or remove storage.efa",
            LUSTRE_EFA,
        )
    elif size != SMALLEST_GIB and size % STEP_GIB:
        yield Found(
            f"FSx for Lustre has {SMALLEST_GIB} GiB, or a multiple of {STEP_GIB}; it rejects {size}.",
            f"set storage.capacityGib to {-(-size // STEP_GIB) * STEP_GIB}",
        )


@rule("storage.efa", "nodes.machine", source=LUSTRE_EFA)
def file_system_without_efa_client(s: EksSettings) -> Finding:
    """The machine's Lustre client has no EFA."""
    if s.storage.efa and s.nodes.machine in WITHOUT_STORAGE_EFA:
        yield Found(
            f"AWS publishes no Lustre client with EFA for {s.nodes.machine}; it would silently fall back to TCP.",
            "remove storage.efa, or choose a p5 or p6 machine",
        )


@rule("storage.efa", "access.egress", source=LUSTRE_CLIENTS)
def file_system_client_out_of_reach(s: EksSettings) -> Finding:
    """Nodes without a route to the Internet cannot download the set-up of the Lustre client."""
    if s.storage.efa and s.access.egress == "endpoints":
        yield Found(
            "GPU nodes download AWS' set-up of the Lustre client from docs.aws.amazon.com when they start. Endpoints "
            "do not reach it: the folder would silently fall back to TCP.",
            "remove storage.efa, or set access.egress to nat",
        )


@rule("nodes.max", "storage.efa", "nodes.machine", source=LUSTRE_CLIENTS)
def file_system_devices_exceeded(s: EksSettings) -> Finding:
    """A file system takes a limited number of EFA devices."""
    each = 8 if s.nodes.machine in LUSTRE_EFA_BY_EIGHT else 2
    if s.storage.efa and s.nodes.max * each > LUSTRE_EFA_DEVICES:
        most = LUSTRE_EFA_DEVICES // each
        yield Found(
            f"A file system takes {LUSTRE_EFA_DEVICES} EFA devices, and each node's Lustre client uses {each}: those "
            f"of {most} nodes.",
            f"lower nodes.max to {most}, or remove storage.efa",
        )


@rule("storage.bucket", "storage.efa", "storage.capacityGib", source=CONTRACT)
def file_system_without_bucket(s: EksSettings) -> Finding:
    """A stack has a file system only in front of a bucket."""
    if s.storage.bucket is None and (s.storage.efa or s.storage.capacity_gib != SMALLEST_GIB):
        path = "storage.efa" if s.storage.efa else "storage.capacityGib"
        yield Found(
            "A stack creates a file system in front of a bucket only, so nothing would use this.",
            f"name the bucket in storage.bucket, or remove {path}",
        )
