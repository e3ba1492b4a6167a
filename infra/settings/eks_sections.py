"""Sections of the stack file of a cluster on AWS: nodes, Ray, storage, cluster, access, network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.catalog import aws
from infra.catalog.aws import second_zone
from infra.catalog.machines import EKS_CATALOG, supported
from infra.catalog.pins import AWS_RAY_TRAIN, EKS, EKS_RELEASES
from infra.settings.common import CloudAccess, CloudKubernetes, CloudNetwork, CloudNodes, CloudRay, CloudStorage
from infra.settings.fields import Cidr, Derived, Flag, Minute, Number, OneOf, ReleaseInImage, Text, Texts

SMALLEST_GIB = 1200
STEP_GIB = 2400
SMALLEST_EFA_GIB = 4800


class EksNodes(CloudNodes):
    """Node group of GPU machines."""

    machine: Annotated[str, OneOf(tuple(EKS_CATALOG))] = Field(examples=supported("eks"))
    capacity: Literal["on-demand", "spot", "reservation", "capacity-block"] = "on-demand"
    block_ends: Minute | None = Field(
        None,
        description="eks, capacity-block: when the block ends, in UTC and in quotes. The nodes are drained "
        f"{aws.BLOCK_DRAIN_MINUTES} minutes before, {aws.EVICTION_MINUTES} minutes before EC2 begins to terminate "
        "them. Without it, nothing drains them.",
    )
    placement_group: Text | None = Field(
        None,
        title="a placement group's name or id",
        examples=["training"],
        description="eks: existing cluster placement group of the nodes, by name, or another account's by id (pg-…). "
        "A reservation that was made inside one can be used from that group only. Without it, on-demand and spot nodes "
        "get a group of the stack.",
    )


class EksRay(CloudRay):
    """The Ray cluster."""

    version: ReleaseInImage
    image: Text = AWS_RAY_TRAIN
    policies: Texts = Field(
        (),
        title="ARNs of IAM policies",
        examples=["arn:aws:iam::111122223333:policy/checkpoints"],
        description="eks: ARNs of IAM policies of Ray's pods, such as access to s3:// checkpoints. Anyone who may "
        "submit a job has these permissions.",
    )


class EksStorage(CloudStorage):
    """Folder that every Ray node sees."""

    capacity_gib: Number = Field(
        SMALLEST_GIB,
        ge=SMALLEST_GIB,
        le=1_000_000,
        title="GiB",
        description=f"eks: size of the FSx file system of the bucket: {SMALLEST_GIB}, or a multiple of {STEP_GIB}.",
    )
    efa: Flag = Field(
        False,
        description=f"eks: whether the file system also answers over EFA. It needs {SMALLEST_EFA_GIB} GiB and can be "
        "chosen at creation only (docs/eks.md).",
    )
    export_deletions: Flag = Field(
        False,
        description="eks: whether a file that is deleted or renamed in the folder is also deleted in the bucket. Turn "
        "on the bucket's versioning first: otherwise one rm -rf empties it for good.",
    )


class EksKubernetes(CloudKubernetes):
    """Version of Kubernetes, and the CPU nodes."""

    version: Annotated[str, OneOf(tuple(EKS_RELEASES))] = Field(
        EKS,
        description="eks: version of Kubernetes, in quotes, with the node images, add-ons and autoscaler that are "
        "pinned for it. A newer one replaces every node.",
    )
    system_machine: Text = "m6i.2xlarge"


class EksAccess(CloudAccess):
    """Access to the cluster's control plane."""

    administrators: Texts = Field(
        (),
        title="ARNs of IAM roles or users",
        examples=["arn:aws:iam::111122223333:role/ops"],
        description="eks: ARNs of additional IAM roles and users that administer the cluster. The identity that "
        "creates it always does and must not be in the list.",
    )
    egress: Literal["nat", "endpoints"] = "nat"
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
        Text,
        Derived(lambda v: second_zone(v["location"]), "a neighbor of location, by name"),
    ] = Field(
        title="a zone",
        description="eks: second availability zone of the region, written like location. The control plane requires "
        "subnets in two zones; no node runs there.",
    )
    subnets: Texts = Field(
        (),
        title="ids of subnets",
        examples=["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"],
        description="eks: two private subnets of your VPC. The first is in location and has all nodes, the second is "
        "in another zone, for the control plane. With cluster.existing: one private subnet of the cluster's VPC, in "
        "location, for the nodes. They are read and never changed. baseRange is not used then.",
    )
    interfaces: Literal["ip-optimised", "bandwidth-optimised"] = Field(
        "ip-optimised",
        title="interface layout",
        description="eks, p5 and p5e: ip-optimised (one interface with an address, 100 Gbit/s of IP), or "
        "bandwidth-optimised (eight of them, 800 Gbit/s, for processes on the host network: the VPC CNI gives pods no "
        "interface of another card). EFA has its full rate with both.",
    )
