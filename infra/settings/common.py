"""What the stack files of both clouds share: sections, defaults and rules. `gke` and `eks` add their own.

The rules about Ray are in `ray`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from infra.catalog.machines import CATALOG
from infra.catalog.pins import RAY
from infra.settings.fields import Cidr, Derived, Flag, Number, Section, Text, Version
from infra.settings.problems import CONTRACT, Finding, Found, Problem, Rules

ADDRESSES = "the address plan of rdma-ray (infra/addresses.py), 2026-11"
ACCESS_CONTROL = "CVE-2023-48022; default of both clouds for public endpoints, unverified, 2026-11"
MACHINES = "the catalog of machines (infra/catalog/machines.py)"
KUBERAY = "ray-project/kuberay: ray-operator/controllers/ray/utils/validation.go, v1.7.0"
LAYOUT = "Filesystem Hierarchy Standard 3.0; rayproject images keep Ray in /home/ray"
PRIVATE = "RFC 1918 and RFC 6598"

PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
RAY_HOME = "/home/ray"
SYSTEM_FOLDERS = re.compile(r"/(bin|boot|dev|etc|lib|lib32|lib64|opt|proc|root|run|sbin|sys|tmp|usr|var)(/|$)")

RayModeName = Literal["cluster", "job", "indexed-job"]
QueueName = Literal["none", "kueue"]


class CloudNodes(Section):
    """Node pool of GPU machines, which carry Ray workers. The Ray head runs elsewhere and is not counted."""

    machine: str = Field(
        title="machine type",
        description="Machine type of every worker node, a row of the catalog (infra/catalog/machines.py).",
    )
    capacity: str = Field(
        title="capacity",
        description="How the machines are obtained. gke: flex-start, flex-start-queued, spot, reservation, on-demand; "
        "eks: on-demand, spot, reservation, capacity-block.",
    )
    reservation: Text | None = Field(
        None,
        title="a reservation's name",
        description="Reservation to use, with capacity reservation or capacity-block only. gke: its name or "
        "projects/P/reservations/R[/reservationBlocks/B]; eks: its id, cr-….",
    )
    min: Number = Field(0, ge=0, le=1000, title="nodes", description="Fewest nodes; they stay up without work.")
    max: Number = Field(2, ge=1, le=1000, title="nodes", description="Most nodes: the bound of the cluster's cost.")

    @property
    def capacities(self) -> tuple[str, ...]:
        """Kinds of capacity in the order in which they are tried."""
        return (self.capacity,)


class CloudRay(Section):
    """The Ray cluster."""

    mode: RayModeName = Field(
        "cluster",
        title="Ray mode",
        description="How Ray runs: as a cluster that stays up and takes jobs (cluster), as a RayJob, whose cluster of "
        "maxWorkers workers runs one entry point and ends with it (job), or as one Kubernetes Job of maxWorkers pods "
        "that runs it without an operator (indexed-job).",
    )
    entrypoint: Text | None = Field(
        None,
        title="a command",
        description="Shell command that a job or indexed-job runs: on the head or the first pod, with RAY_ADDRESS set; "
        "in an indexed-job, a command that begins with torchrun runs on every pod, with the rendezvous set. Its code "
        "is in the image or the shared folder.",
    )
    version: Version = Field(
        RAY, title="a Ray release", description="Ray release of head, workers and autoscaler, in quotes."
    )
    image: Text = Field(
        title="an image",
        description="Container image of head and workers. Its tag names the Ray version, or a digest pins it. gke: "
        "torch built for the GPU, libnl-3-200 and libnl-route-3-200; eks: libfabric and aws-ofi-nccl.",
    )
    min_workers: Annotated[
        Number,
        Derived(
            lambda s: (
                s.ray.max_workers
                if s.queue == "kueue" or s.ray.mode != "cluster"
                else min(s.nodes.min, s.ray.max_workers)
            ),
            "as nodes.min, but at most ray.maxWorkers; with queue kueue or a mode other than cluster as ray.maxWorkers",
        ),
    ] = Field(ge=0, le=1000, title="Ray workers", description="Fewest Ray workers. A worker takes a whole node.")
    max_workers: Annotated[Number, Derived(lambda s: s.nodes.max, "as nodes.max")] = Field(
        ge=1, le=1000, title="Ray workers", description="Most Ray workers, at most nodes.max."
    )
    idle_minutes: Number = Field(
        15,
        ge=1,
        le=10_080,
        title="minutes",
        description="Minutes without work after which Ray releases a worker and its node. A new GPU node may take "
        "hours to arrive; an idle one costs by the minute.",
    )


class CloudStorage(Section):
    """Folder that every Ray node sees under the same path."""

    bucket: Text | None = Field(
        None,
        title="a bucket's name",
        description="Existing bucket. gke: Cloud Storage, mounted by GCS FUSE; eks: S3, behind FSx for Lustre. Without "
        "it the cluster has no shared folder.",
    )
    mount_path: Text = Field(
        "/bucket", title="a path", description="Absolute path of the shared folder on head and workers."
    )


class CloudAccess(Section):
    """Who reaches the cluster's control plane."""

    authorized_networks: tuple[Cidr, ...] = Field(
        (),
        title="IPv4 ranges",
        examples=["203.0.113.7/32"],
        description='IPv4 ranges that may reach the control plane\'s public endpoint, such as ["203.0.113.7/32"]. '
        "eks without a public endpoint: ranges outside the VPC that may reach the private one, over your own VPN.",
    )
    public_endpoint: Flag = Field(
        False, description="Whether the control plane has a public address, which answers authorizedNetworks only."
    )
    egress: str = Field(
        title="egress",
        description="How nodes reach services outside their network: nat (a gateway to the Internet), or on eks "
        "endpoints (AWS services only, without a route to the Internet).",
    )


class CloudNetwork(Section):
    """Addresses of the stack's own networks."""

    base_range: Cidr = Field(
        description="Private IPv4 range from which every network of the stack is cut (infra/addresses.py). Choose one "
        "that your other networks do not use, if you may connect them later."
    )


class CloudSettings(Section):
    """Stack file of a cloud."""

    target: str = Field(description="Where the cluster runs: local (this machine), gke (Google Cloud) or eks (AWS).")
    location: Text = Field(
        title="a zone",
        description="The one zone of every GPU node. gke: a zone such as us-central1-b; eks: an availability zone such "
        "as us-east-1a, or its id such as use1-az1.",
    )
    nodes: CloudNodes = Field(description="GPU machines that carry Ray workers.")
    fabric: str = Field(
        title="fabric",
        description="How pods reach the RDMA NICs. gke: multi-network (Network objects and annotations), dranet "
        "(claims, networks of the stack), managed-dranet (claims, networks of GKE); eks: efa (device plugin), "
        "efa-dranet (claims).",
    )
    queue: QueueName = Field(
        "none",
        title="queue",
        description="Queueing system that admits workloads: `none`, or `kueue`, which starts a job when all its nodes "
        "are available.",
    )
    ray: CloudRay = Field(description="The Ray cluster.")
    storage: CloudStorage = Field(description="Folder that every Ray node sees.")
    access: CloudAccess = Field(description="Who reaches the cluster's control plane.")
    network: CloudNetwork = Field(description="Addresses of the stack's own networks.")
    protect: Flag = Field(True, description="Deletion protection of what holds data or takes hours to create again.")


RULES = Rules()
"""Rules of both clouds; those about Ray are in `ray`."""
rule = RULES.add


def supported(cloud: str) -> list[str]:
    """Return the machine types that a cloud has and this program builds."""
    return [row.name for row in CATALOG.values() if row.cloud == cloud and row.unsupported is None]


def not_available(machine: str, capacity: str, path: str) -> Finding:
    """Find that the cloud does not offer the machine type as this capacity, which is the value of `path`."""
    row = CATALOG[machine]
    if row.unsupported is None and capacity not in row.capacities:
        yield Found(
            f"{machine} is not available as {capacity} capacity: no node would start.",
            f"set {path} to one of {', '.join(row.capacities)}",
            row.sources["capacities"],
        )


@rule("nodes.machine", source=MACHINES)
def machine_unsupported(s: CloudSettings) -> Finding:
    """The catalog has the machine type, but this program does not build it."""
    machine = CATALOG[s.nodes.machine]
    if machine.unsupported is not None:
        yield Found(
            f"{machine.name} is not supported: {machine.unsupported}.",
            f"choose one of {', '.join(supported(machine.cloud))}",
            machine.sources["gpus"],
        )


@rule("nodes.capacity", "nodes.machine", source=MACHINES)
def capacity_unavailable(s: CloudSettings) -> Finding:
    """The cloud does not offer the machine type as this capacity."""
    return not_available(s.nodes.machine, s.nodes.capacity, "nodes.capacity")


@rule("nodes.min", "nodes.max", source=CONTRACT)
def nodes_min_above_max(s: CloudSettings) -> Finding:
    """The fewest nodes are more than the most."""
    if s.nodes.min > s.nodes.max:
        yield Found(
            f"The cluster cannot have at least {s.nodes.min} and at most {s.nodes.max} nodes.",
            f"raise nodes.max to {s.nodes.min}, or lower nodes.min",
        )


@rule("access.publicEndpoint", "access.authorizedNetworks", source=ACCESS_CONTROL)
def public_endpoint_without_networks(s: CloudSettings) -> Finding:
    """A public endpoint answers the networks of a list, which is empty."""
    if s.access.public_endpoint and not s.access.authorized_networks:
        yield Found(
            "Without a list of networks, the clouds open a public endpoint to the whole Internet.",
            'set access.authorizedNetworks to your own address, such as ["203.0.113.7/32"], or publicEndpoint to false',
        )


@rule("access.authorizedNetworks", "access.publicEndpoint", source=ACCESS_CONTROL)
def public_endpoint_for_the_internet(s: CloudSettings) -> Finding:
    """A public endpoint answers the whole Internet."""
    if s.access.public_endpoint and any(IPv4Network(one).prefixlen == 0 for one in s.access.authorized_networks):
        yield Found(
            "0.0.0.0/0 is the whole Internet: one leaked credential or one hole in the API server is enough.",
            'list your own networks, such as ["203.0.113.7/32"], or set access.publicEndpoint to false',
        )


@rule("storage.mountPath", source=LAYOUT)
def mount_path_hides_system(s: CloudSettings) -> Finding:
    """The shared folder would cover files of the image, or its path is not one."""
    path = s.storage.mount_path
    clean = posixpath.normpath(path)
    if not path.startswith("/"):
        yield Found(f"{path} is not an absolute path; Kubernetes rejects the mount.", f"write /{clean.lstrip('./')}")
    elif path.rstrip("/") != clean.rstrip("/") or "//" in path or ":" in path:
        yield Found(f"{path} contains .., a double slash or a colon; Kubernetes rejects it.", "write the plain path")
    elif clean in ("/", "/home", RAY_HOME) or SYSTEM_FOLDERS.match(clean):
        yield Found(
            f"The bucket would cover {clean} of the image, and with it files that Ray, CUDA or NCCL need.",
            "choose a folder of its own, such as /bucket or /mnt/bucket",
        )


@rule("network.baseRange", source=PRIVATE)
def base_range_public(s: CloudSettings) -> Finding:
    """The stack's networks must not use addresses of the Internet."""
    base = IPv4Network(s.network.base_range)
    if not any(base.subnet_of(private) for private in PRIVATE_RANGES):
        yield Found(
            f"{base} is not inside a private range; hosts on the Internet with these addresses would be unreachable.",
            f"choose a part of {', '.join(map(str, PRIVATE_RANGES))}",
        )


def not_a_zone(location: str, zone: str, region: str, suffix: str, example: str) -> Finding:
    """Find that a location is not a zone, by the patterns of zones and regions; a region with `suffix` is a zone."""
    if re.fullmatch(region, location):
        yield Found(
            f"{location} is a region. RDMA does not leave a zone, so nodes in two zones could not reach each other.",
            f"choose one of its zones that has the machine, such as {location}{suffix}",
        )
    elif not re.fullmatch(zone, location):
        yield Found(
            f"{location} is not the name of a zone; no resource could be created there.",
            f"write a zone such as {example}",
        )


def not_a_bucket(name: str, accepted: bool, words: str) -> Finding:
    """Find that a name cannot be a bucket's; `words` are the cloud's rule."""
    if "://" in name:
        yield Found(f"{name} is a URL, not a name.", f"write {name.partition('://')[2].partition('/')[0]}")
    elif not accepted or _is_address(name):
        yield Found(f"{name} cannot be a bucket of {words}.", "correct the name, or remove it")


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class NameLimit:
    """A kind of resource, the characters that its system allows in a name, and the longest suffix that we append."""

    kind: str
    characters: int
    suffix: str
    source: str


KUBERNETES_LIMITS = (
    # 47 characters: its clusters are named after it, with a dash and five letters.
    NameLimit("RayJob", 47, "-ray", KUBERAY),
    NameLimit("RayCluster", 53, "-ray", KUBERAY),
)


def longest_stack_name(limits: Iterable[NameLimit]) -> int:
    """Return the most characters that a stack's name may have."""
    return min(limit.characters - len(limit.suffix) for limit in limits)


def stack_name_problems(stack: str, limits: tuple[NameLimit, ...]) -> list[Problem]:
    """Return the problem with resource names that are made from the stack's name, if there is one."""
    longest = longest_stack_name(limits)
    source = "; ".join(dict.fromkeys(limit.source for limit in limits))
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", stack):
        says = f"The stack's name is {stack}. Its clusters and networks are named after it, and such names have a-z, "
        says += "0-9 and - only, with a letter first."
        fix = f"create a stack with such a name: pulumi stack init NAME --copy-config-from {stack}"
    elif len(stack) > longest:
        tightest = next(limit for limit in limits if limit.characters - len(limit.suffix) == longest)
        says = f"The stack's name {stack} has {len(stack)} characters. The {tightest.kind} {stack}{tightest.suffix} "
        says += f"would have {len(stack) + len(tightest.suffix)}; {tightest.characters} are allowed."
        fix, source = f"create a stack with a name of at most {longest} characters", tightest.source
    else:
        return []
    return [Problem(settings=("target",), says=says, fix=fix, source=source)]
