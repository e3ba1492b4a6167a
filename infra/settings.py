"""The stack file, typed: every setting with its meaning, its default on each target, and the one place that reads them.

This is the only module that reads Pulumi's configuration, and it does so in `load` alone. It holds no rule about which
settings may go together (`infra.legality`) and no fact about machines (`infra.catalog.machines`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from infra.catalog.aws import second_zone
from infra.catalog.capacity import MAX_RUN_HOURS
from infra.catalog.machines import CATALOG
from infra.catalog.pins import AWS_RAY_TRAIN, RAY, RAY_IN
from infra.defaults import REQUIRED, ByTarget, Derived, Fixed, clouds, everywhere, same_as
from infra.problems import SettingsError, UnreadableError
from infra.readers import Choice, Cidr, Cidrs, Flag, Moment, Reader, Secret, Text, Texts, Version, Whole

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACE = "rdma-ray"

TargetName = Literal["local", "gke", "eks"]
CapacityName = Literal["flex-start", "flex-start-queued", "spot", "reservation", "on-demand", "capacity-block"]
FabricName = Literal["multi-network", "dranet", "managed-dranet", "efa", "efa-dranet"]
QueueName = Literal["none", "kueue"]
RayModeName = Literal["cluster", "job", "indexed-job"]

EgressName = Literal["nat", "endpoints"]
InterfacesName = Literal["ip-optimised", "bandwidth-optimised"]

TARGETS: tuple[TargetName, ...] = get_args(TargetName)
CAPACITIES: tuple[CapacityName, ...] = get_args(CapacityName)
FABRICS: tuple[FabricName, ...] = get_args(FabricName)
QUEUES: tuple[QueueName, ...] = get_args(QueueName)
RAY_MODES: tuple[RayModeName, ...] = get_args(RayModeName)
EGRESSES: tuple[EgressName, ...] = get_args(EgressName)
INTERFACES: tuple[InterfacesName, ...] = get_args(InterfacesName)


class Section(BaseModel):
    """A part of the settings: frozen, and strict about names and types."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise UnreadableError(name)
            return super().__getattr__(name)


class Nodes(Section):
    """The machines that carry Ray workers. The head runs elsewhere and is not counted."""

    machine: Annotated[str | None, Choice(tuple(CATALOG)), clouds(REQUIRED)] = Field(
        description="The machine type of every worker node, a row of the catalog (infra/catalog/machines.py)."
    )
    capacity: Annotated[
        CapacityName | None, Choice(CAPACITIES), ByTarget(local=Fixed(), gke="flex-start", eks="on-demand")
    ] = Field(
        description="How the machines are obtained. gke: flex-start, flex-start-queued, spot, reservation, on-demand; "
        "eks: on-demand, spot, reservation, capacity-block."
    )
    reservation: Annotated[str | None, Text("a reservation's name"), clouds(None)] = Field(
        description="The reservation to use, with capacity reservation or capacity-block only. gke: its name or "
        "projects/P/reservations/R[/reservationBlocks/B]; eks: its id, cr-…."
    )
    block_ends: Annotated[str | None, Moment("the block's end"), ByTarget(local=Fixed(), gke=Fixed(), eks=None)] = (
        Field(
            description="eks, capacity-block: when the block ends, in UTC and in quotes. The nodes are drained 45 "
            "minutes before, a quarter of an hour before EC2 begins to take them. Left out, nothing drains them."
        )
    )
    fallback: Annotated[CapacityName | None, Choice(CAPACITIES), ByTarget(local=Fixed(), gke=None, eks=Fixed())] = (
        Field(
            description="The second choice of capacity, when the first has no machine to give. Needs computeClass, or "
            "for flex-start-queued after a reservation queue kueue."
        )
    )
    min: Annotated[int, Whole(0, 1000, "nodes"), clouds(0, local=same_as("nodes.count"))] = Field(
        description="The fewest nodes that stay up, whether or not anything runs on them."
    )
    max: Annotated[int, Whole(1, 1000, "nodes"), clouds(2, local=same_as("nodes.count"))] = Field(
        description="The most nodes the cluster may grow to: the bound of its cost."
    )
    max_run_hours: Annotated[
        int | None,
        Whole(1, 100_000, "hours"),
        ByTarget(
            local=Fixed(),
            gke=Derived(
                lambda get: (
                    MAX_RUN_HOURS if "flex-start" in f"{get('nodes.capacity')} {get('nodes.fallback')}" else None
                ),
                f"{MAX_RUN_HOURS} with flex-start, else not set",
            ),
            eks=Fixed(),
        ),
    ] = Field(description="Hours until a flex-start node is taken back, at most 168 (seven days).")
    count: Annotated[int | None, Whole(1, 64, "Ray worker nodes"), ByTarget(local=2, gke=Fixed(), eks=Fixed())] = Field(
        description="local: how many Ray worker nodes to start on this machine, next to the head."
    )
    cpus: Annotated[int | None, Whole(1, 1024, "CPUs"), ByTarget(local=2, gke=Fixed(), eks=Fixed())] = Field(
        description="local: the logical CPUs that each Ray worker node offers to tasks and actors. More than the "
        "machine has is allowed; they then share."
    )


class Ray(Section):
    """The Ray cluster."""

    mode: Annotated[RayModeName, Choice(RAY_MODES), clouds("cluster", local="cluster")] = Field(
        description="How Ray runs: as a cluster that stays and takes jobs (cluster), as a RayJob, whose cluster of "
        "maxWorkers workers runs one entry point and ends with it (job), or as one Kubernetes Job of maxWorkers pods "
        "that do so without an operator (indexed-job)."
    )
    entrypoint: Annotated[str | None, Text("a command"), clouds(None)] = Field(
        description="What a job or indexed-job runs, a line for a shell: on the head or the first pod, with "
        "RAY_ADDRESS set; in an indexed-job, one that begins with torchrun runs on every pod, with the rendezvous set. "
        "Its code is in the image or the shared folder."
    )
    version: Annotated[
        str,
        Version("Ray"),
        ByTarget(
            local=RAY,
            gke=RAY,
            eks=Derived(
                lambda get: RAY_IN.get(get("ray.image"), RAY), f"{RAY}, or the Ray of AWS' own image if that is used"
            ),
        ),
    ] = Field(description="The Ray release of head, workers and autoscaler, in quotes.")
    image: Annotated[str | None, Text("an image"), ByTarget(local=Fixed(), gke=REQUIRED, eks=AWS_RAY_TRAIN)] = Field(
        description="The container image of head and workers. Its tag names the Ray version, or it is pinned by "
        "digest. gke: torch built for the GPU, libnl-3-200 and libnl-route-3-200; eks: libfabric and aws-ofi-nccl."
    )
    min_workers: Annotated[
        int,
        Whole(0, 1000, "Ray workers"),
        clouds(
            Derived(
                lambda get: (
                    get("ray.maxWorkers")
                    if get("queue") == "kueue" or get("ray.mode") != "cluster"
                    else min(get("nodes.min"), get("ray.maxWorkers"))
                ),
                "as nodes.min, but at most ray.maxWorkers; with queue kueue or another mode than cluster as "
                "ray.maxWorkers",
            ),
            local=same_as("nodes.count"),
        ),
    ] = Field(description="The fewest Ray workers. One worker takes one node whole.")
    max_workers: Annotated[
        int, Whole(1, 1000, "Ray workers"), clouds(same_as("nodes.max"), local=same_as("nodes.count"))
    ] = Field(description="The most Ray workers; never more than nodes.max.")
    idle_minutes: Annotated[int | None, Whole(1, 10_080, "minutes"), clouds(15)] = Field(
        description="Minutes without work after which a worker and its node are given back. Getting GPUs again may "
        "take hours, keeping them costs by the minute."
    )
    token: Annotated[SecretStr | None, Secret("token"), ByTarget(local=None, gke=Fixed(), eks=Fixed())] = Field(
        description="local: the secret that clients of Ray present. Leave it out and a random one is made. "
        "Set it with: pulumi config set --secret --path 'rdma-ray:ray.token' VALUE"
    )


class Storage(Section):
    """The folder that every Ray node sees under the same path."""

    bucket: Annotated[str | None, Text("a bucket's name"), clouds(None)] = Field(
        description="An existing bucket. gke: Cloud Storage, mounted by GCS FUSE; eks: S3, behind FSx for Lustre. "
        "Leave it out and the cluster has no shared folder."
    )
    mount_path: Annotated[str | None, Text("a path"), clouds("/bucket")] = Field(
        description="Where head and workers see the shared folder; an absolute path."
    )
    capacity_gib: Annotated[
        int | None, Whole(1200, 1_000_000, "GiB"), ByTarget(local=Fixed(), gke=Fixed(), eks=1200)
    ] = Field(description="eks: the size of the FSx file system in front of the bucket: 1200, or a multiple of 2400.")
    efa: Annotated[bool, Flag(), ByTarget(local=Fixed(False), gke=Fixed(False), eks=False)] = Field(
        description="eks: whether the file system also answers over EFA. It takes 4800 GiB and can be chosen at "
        "creation only. The GPU nodes then fetch and run AWS' own set-up of the Lustre client when they start "
        "(docs/eks.md)."
    )


class Access(Section):
    """Who reaches the cluster's control plane."""

    authorized_networks: Annotated[tuple[str, ...], Cidrs(), clouds((), local=())] = Field(
        description='IPv4 ranges that may reach the public endpoint of the control plane, such as ["203.0.113.7/32"]. '
        "eks without a public endpoint: those outside the VPC that may reach the private one, over your own VPN."
    )
    public_endpoint: Annotated[bool, Flag(), clouds(False, local=False)] = Field(
        description="Whether the control plane has a public address. It then answers authorizedNetworks only."
    )
    administrators: Annotated[
        tuple[str, ...],
        Texts("ARNs of IAM roles or users", "arn:aws:iam::111122223333:role/ops"),
        ByTarget(local=Fixed(()), gke=Fixed(()), eks=()),
    ] = Field(
        description="eks: ARNs of the IAM roles and users that administer the cluster, beside whoever creates it, who "
        "always does and must not be named here."
    )
    egress: Annotated[EgressName | None, Choice(EGRESSES), ByTarget(local=Fixed(), gke=Fixed("nat"), eks="nat")] = (
        Field(
            description="How nodes reach what is outside: nat (a gateway to the Internet), or on eks endpoints (AWS' "
            "own services only, without any way to the Internet)."
        )
    )
    image_mirror: Annotated[str | None, Text("a registry"), ByTarget(local=Fixed(), gke=Fixed(), eks=None)] = Field(
        description="eks: a registry that has the images of the operators under their own paths, such as "
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror. Needed with egress endpoints."
    )


class Network(Section):
    """The addresses of the stack's own networks."""

    base_range: Annotated[str | None, Cidr(), ByTarget(local=Fixed(), gke="10.64.0.0/14", eks="10.64.0.0/16")] = Field(
        description="The private IPv4 range that every network of the stack is cut from (infra/addresses.py). Choose "
        "one that nothing else in your company uses, if the networks are ever to be connected."
    )
    second_zone: Annotated[
        str | None,
        Text("a zone"),
        ByTarget(
            local=Fixed(),
            gke=Fixed(),
            eks=Derived(lambda get: second_zone(get("location")), "a neighbour of location, by name"),
        ),
    ] = Field(
        description="eks: a second availability zone of the region, written like location. The control plane wants "
        "subnets in two; no node runs there."
    )
    interfaces: Annotated[
        InterfacesName | None, Choice(INTERFACES), ByTarget(local=Fixed(), gke=Fixed(), eks="ip-optimised")
    ] = Field(
        description="eks, p5 and p5e: ip-optimised (one interface with an address, 100 Gbit/s of IP), or "
        "bandwidth-optimised (eight of them, 800 Gbit/s). EFA has its full rate either way."
    )


class Settings(Section):
    """A stack file, whole: every setting has a value, and no two of them contradict each other."""

    target: Annotated[TargetName, Choice(TARGETS), everywhere(REQUIRED)] = Field(
        description="Where the cluster runs: local (this machine), gke (Google Cloud) or eks (AWS)."
    )
    location: Annotated[str | None, Text("a zone"), clouds(REQUIRED)] = Field(
        description="The one zone of every GPU node. gke: a zone such as us-central1-b; eks: an availability zone such "
        "as us-east-1a, or its id such as use1-az1."
    )
    nodes: Nodes = Field(description="The machines that carry Ray workers.")
    fabric: Annotated[FabricName | None, Choice(FABRICS), ByTarget(local=Fixed(), gke="multi-network", eks="efa")] = (
        Field(
            description="How pods reach the RDMA NICs. gke: multi-network (Network objects and annotations), dranet "
            "(claims, own networks), managed-dranet (claims, networks by GKE); eks: efa (device plugin), efa-dranet "
            "(claims)."
        )
    )
    compute_class: Annotated[bool, Flag(), ByTarget(local=Fixed(False), gke=False, eks=Fixed(False))] = Field(
        description="gke: hand out nodes through a ComputeClass, which can try a second kind of capacity."
    )
    queue: Annotated[QueueName, Choice(QUEUES), clouds("none", local="none")] = Field(
        description="Who admits work: nobody (none), or Kueue, which lets a job in when all its nodes are to be had."
    )
    ray: Ray = Field(description="The Ray cluster.")
    storage: Storage = Field(description="The folder that every Ray node sees.")
    access: Access = Field(description="Who reaches the cluster's control plane.")
    network: Network = Field(description="The addresses of the stack's own networks.")
    protect: Annotated[bool, Flag(), ByTarget(local=False, gke=True, eks=True)] = Field(
        description="Deletion protection of what holds data or takes hours to get back."
    )


@dataclass(frozen=True)
class Leaf:
    """One setting: its dotted path in the stack file, and how it is declared."""

    path: str
    section: str | None
    name: str
    info: FieldInfo

    @cached_property
    def reader(self) -> Reader:
        """How its value is read."""
        return next(item for item in self.info.metadata if isinstance(item, Reader))

    @cached_property
    def defaults(self) -> ByTarget:
        """What holds when it is left out."""
        return next(item for item in self.info.metadata if isinstance(item, ByTarget))

    def value(self, settings: Settings) -> Any:
        """Its value in these settings. Raises `UnreadableError` if it has none."""
        return getattr(getattr(settings, self.section) if self.section else settings, self.name)


@cache
def sections() -> Mapping[str, type[Section]]:
    """The sections of a stack file by their keys."""
    found = {}
    for info in Settings.model_fields.values():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found[str(info.alias)] = kind
    return found


@cache
def leaves() -> tuple[Leaf, ...]:
    """Every setting of the contract, in the order of the contract."""
    return tuple(_leaves())


def _leaves() -> Iterator[Leaf]:
    grouped = sections()
    for name, info in Settings.model_fields.items():
        key = str(info.alias)
        if key in grouped:
            for inner, inner_info in grouped[key].model_fields.items():
                yield Leaf(f"{key}.{inner_info.alias}", name, inner, inner_info)
        else:
            yield Leaf(key, None, name, info)


def parse(
    raw: Mapping[str, Any],
    *,
    secret_keys: frozenset[str] = frozenset(),
    stack: str | None = None,
    origin: str = "The stack's configuration",
) -> Settings:
    """The settings of a stack file.

    `raw` has the keys of the namespace without it ("nodes"), as Pulumi delivers them (text and JSON) or as YAML does.
    `secret_keys` are the keys ("ray") or paths ("ray.token") that were stored encrypted. `stack` is the stack's name,
    where it is known: names of cloud resources are made from it. Raises `SettingsError` with every problem at once.
    """
    from infra.reading import read  # The reading of a file needs these types, and parsing needs the reading.

    settings, problems = read(raw, secret_keys=secret_keys, stack=stack)
    if problems or settings is None:
        raise SettingsError(problems, origin=origin)
    return settings


def load() -> Settings:
    """The settings of the stack that Pulumi is running: every key of the namespace, known or not.

    Raises `SettingsError`.
    """
    import pulumi  # Only here: everything else about settings works without Pulumi.
    from pulumi.runtime import config

    prefix = NAMESPACE + ":"
    delivered = {**config.get_config_env(), **config.CONFIG.get()}
    raw = {key.removeprefix(prefix): value for key, value in delivered.items() if key.startswith(prefix)}
    secrets = {*config.get_config_secret_keys_env(), *(key for key in delivered if config.is_config_secret(key))}
    stack = pulumi.get_stack()
    return parse(
        raw,
        secret_keys=frozenset(key.removeprefix(prefix) for key in secrets if key.startswith(prefix)),
        stack=stack,
        origin=f"The configuration of stack {stack}",
    )


def from_stack_file(path: Path) -> Settings:
    """The settings of a Pulumi.<stack>.yaml, without Pulumi: for editors, checks and plans.

    An encrypted token counts as set, with an unknown value (an empty `SecretStr`). Raises `SettingsError`, and
    `OSError` if the file cannot be read.
    """
    from infra.stack_file import read_stack_file

    raw, secret_keys, problems = read_stack_file(path)
    if problems:
        raise SettingsError(problems, origin=path.name)
    stack = path.name.removeprefix("Pulumi.").rpartition(".")[0] or None
    return parse(raw, secret_keys=secret_keys, stack=stack, origin=path.name)
