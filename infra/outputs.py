"""The outputs contract: the same keys on every target; a key that does not apply is null.

The engine omits a null at the top level of a stack's outputs, so a missing key means null here; `rdma-ray outputs`
prints all keys. `workloads` reads stacks through these types, so this module imports neither Pulumi nor a cloud SDK.
At the end are the values: a new output is a field and its value on each target, and all of that is in this file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr
from pydantic.alias_generators import to_camel

from infra.catalog.baselines import BASELINES, MARGIN, Baseline
from infra.catalog.fabrics import TRANSPORTS, Transport
from infra.catalog.names import CLIENT_PORT, CPU_GROUP, DASHBOARD_PORT, HISTORY_DAYS, OTHER_GROUP, SERVE_PORT

if TYPE_CHECKING:
    from pulumi import Output

    from infra.catalog.machines import Machine
    from infra.settings.cluster import ClusterSettings
    from infra.settings.common import CloudRay
    from infra.settings.cost import Cost
    from infra.settings.local import LocalRay, LocalSettings
    from infra.settings.teams import Team

JOB_STACK = "RDMA_RAY_STACK"
"""Variable in the environment of an entry point (ray.mode job and indexed-job): its stack, by `job_stack`."""

FORWARDED = "127.0.0.1"
"""On a cloud the head has no public address: `kubectl port-forward` forwards its ports to the user's machine
(docs/gke.md, docs/eks.md)."""


class Contract(BaseModel):
    """Base of the contract's parts: frozen, and without unknown keys, so that a renamed key is an error.

    Attributes are snake_case here and camelCase in the outputs (`gpus_per_node` is `gpusPerNode`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class OtherWorkers(Contract):
    """A group of Ray workers that no gang gets: at most so many, with GPUs and CPUs of each."""

    group: str
    max: int
    gpus: int
    cpus: int


class Nodes(Contract):
    """Machines that run Ray workers, without the head, and `others` that tasks may name."""

    min: int
    max: int
    gpus_per_node: int
    cpus_per_node: int
    others: tuple[OtherWorkers, ...] = ()

    @property
    def slots_per_node(self) -> int:
        """Processes of a gang per node: one per GPU, or one per CPU without GPUs."""
        return self.gpus_per_node or self.cpus_per_node

    @property
    def default_gang(self) -> int:
        """Default number of nodes of a run: those that stay up, and at least two, so that a network is involved."""
        return max(self.min, min(2, self.max))

    @property
    def elastic(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return self.max > self.min


class Floor(Contract):
    """Minimum bus bandwidth (busbw, GB/s, decimal) of a healthy fabric, with its publication."""

    op: str
    nodes: int
    bytes: int
    busbw: float
    source: str


def _is_transport(name: str) -> str:
    if name not in TRANSPORTS:
        raise ValueError(f"{name} is not one of {', '.join(TRANSPORTS)}")
    return name


class FabricOutputs(Contract):
    """Network between nodes. `nics` and `gbpsPerNic` (Gbit/s) are null without RDMA NICs, and where they are not known.

    `transport` names a row of `infra.catalog.fabrics.TRANSPORTS`: gib, efa, ib (InfiniBand or RoCE), socket.
    """

    transport: Annotated[str, AfterValidator(_is_transport)]
    nics: int | None
    gbps_per_nic: int | None
    floors: list[Floor]

    @property
    def row(self) -> Transport:
        """Catalog row of the transport."""
        return TRANSPORTS[self.transport]

    @property
    def rdma(self) -> str | None:
        """Transport over RDMA NICs; None without any."""
        return self.transport if self.row.rdma else None

    @property
    def gbps(self) -> int | None:
        """Line rate of a node, Gbit/s each way; None without RDMA, and where it is not known."""
        return None if self.nics is None or self.gbps_per_nic is None else self.nics * self.gbps_per_nic


class Ray(Contract):
    """Addresses of Ray for clients on the user's machine.

    `cluster` is the name of the stack on `local`, and on Kubernetes that of the RayCluster, RayJob, RayService or
    Indexed Job, depending on `mode` (the setting ray.mode). Outputs of an older stack without a mode are those of a
    RayCluster.
    `serve` is the address of Ray Serve in mode service, and `serveToken` the token of its requests; null elsewhere.
    `token` is Ray's: anyone who has it can run code on the cluster.
    """

    cluster: str
    mode: Literal["cluster", "job", "indexed-job", "service"] = "cluster"
    version: str
    dashboard: str
    jobs: str
    client: str
    serve: str | None = None
    serve_token: SecretStr | None = None
    token: SecretStr


class Storage(Contract):
    """Folder that every Ray node sees under the same path. `efa`: the nodes reach its file system over EFA.

    `source` is where it is without the nodes: `gs://BUCKET`, `s3://BUCKET`, `claim:NAMESPACE/NAME` with the `image` of
    a pod that can read it, or on `local` the folder that has the kept jobs, which `down` leaves. Each job is kept for
    `historyDays` days; 0 keeps none.
    """

    path: str
    efa: bool = False
    source: str | None = None
    image: str | None = None
    history_days: int = HISTORY_DAYS

    @property
    def history(self) -> str:
        """Folder on the nodes below which jobs are kept."""
        return self.source if self.source is not None and self.source.startswith("/") else self.path


class CostOutputs(Contract):
    """List prices in US dollars per hour: absent where one is unknown.

    `idle` is without work, `most` the maximum; `node` is one worker node, and `workers` all of them. With `atMost` they
    are upper limits.
    """

    idle: float | None = None
    most: float | None = None
    node: float | None = None
    workers: float | None = None
    at_most: bool = False

    def now(self, least: int, nodes: int) -> float | None:
        """Return the cost with a number of worker nodes; `least` stay up without work."""
        return None if self.idle is None or self.node is None else self.idle + (nodes - least) * self.node


class Outputs(Contract):
    """All outputs of a stack.

    On Kubernetes there is either a `kubeconfig`, of a cluster that the stack made, or a `context` of the user's own.
    """

    target: Literal["local", "gke", "eks", "kubernetes", "slurm"]
    location: str | None = None
    machine: str | None = None
    nodes: Nodes
    fabric: FabricOutputs
    kubeconfig: SecretStr | None = None
    context: str | None = None
    namespace: str | None = None
    ray: Ray
    storage: Storage | None = None
    queue: str | None = None
    cost: CostOutputs | None = None
    teams: dict[str, Outputs] | None = None

    @property
    def on_kubernetes(self) -> bool:
        """Whether Ray runs on Kubernetes, so that ports of the head are forwarded."""
        return self.kubeconfig is not None or self.context is not None


def cluster_outputs(
    settings: ClusterSettings,
    ray_cluster: str,
    kubeconfig: Output[str] | str | None,
    token: Output[str] | str,
    *,
    context: str | None = None,
    serve_token: Output[str] | None = None,
    teams: Output[Any] | None = None,
) -> dict[str, Any]:
    """Return the outputs of a stack on Kubernetes, or of one of its teams.

    Args:
        ray_cluster: Name of the RayCluster, RayJob, RayService or Job.
        kubeconfig: Kubeconfig as JSON, secret; None for a `context` of the user's own.
        token: Ray's token, secret.
        serve_token: Token of a service's requests, secret.
        teams: The outputs of each team by its name, secret.
    """
    machine, transport, cost = settings.machine, settings.fabric_row.transport.name, settings.cost
    # A team has the nodes of its workers.
    least, most = settings.nodes.min, settings.nodes.max
    if settings.team is not None:
        least, most = settings.ray.min_workers, settings.ray.max_workers
    service = {"serve": f"http://{FORWARDED}:{SERVE_PORT}", "serveToken": serve_token}
    return {
        "target": settings.target,
        "location": settings.location,
        "machine": None if machine is None else machine.name,
        "nodes": {
            "min": least,
            "max": most,
            "gpusPerNode": settings.gpus_per_node,
            "cpusPerNode": settings.cpus_per_node,
            **_others(settings),
        },
        "fabric": fabric_outputs(transport, machine, nics=settings.nics_per_node).model_dump(by_alias=True),
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": settings.namespace,
        "ray": {
            "cluster": ray_cluster,
            "mode": settings.ray.mode,
            "version": settings.ray.version,
            "dashboard": f"http://{FORWARDED}:{DASHBOARD_PORT}",
            "jobs": f"http://{FORWARDED}:{DASHBOARD_PORT}",
            "client": f"ray://{FORWARDED}:{CLIENT_PORT}",
            **(service if settings.ray.mode == "service" else {}),
            "token": token,
        },
        "storage": _folder(settings) if settings.storage.source else None,
        "queue": settings.local_queue,
        "cost": cost and _cost(cost, settings.team).model_dump(by_alias=True, exclude_none=True),
        "teams": teams,
    }


def _others(settings: ClusterSettings) -> dict[str, Any]:
    ray, other = settings.ray, getattr(settings, "other_nodes", None)  # only kubernetes has it
    groups = [OtherWorkers(group=CPU_GROUP, max=ray.cpu_workers, gpus=0, cpus=ray.cpu_worker_cpus)]
    if other is not None:
        groups.append(OtherWorkers(group=OTHER_GROUP, max=other.max, gpus=other.gpus, cpus=other.cpus))
    found = [group.model_dump(by_alias=True) for group in groups if group.max]
    return {"others": found} if found else {}


def _cost(cost: Cost, team: Team | None) -> CostOutputs:
    """Return the cost of a stack; of a team, only that of its nodes."""
    node = cost.workers.each.dollars
    if team is None:
        return cost_outputs(cost)
    return CostOutputs(node=_cents(node), workers=_cents(node and team.quota * node), at_most=cost.at_most)


def cost_outputs(cost: Cost) -> CostOutputs:
    """Return the cost of a stack on a cloud."""
    node, nodes = cost.workers.each.dollars, cost.workers.most
    return CostOutputs(
        idle=_cents(cost.idle),
        most=_cents(cost.most),
        node=_cents(node),
        workers=_cents(node and nodes * node),
        at_most=cost.at_most,
    )


def _cents(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 2)


def _folder(settings: ClusterSettings) -> dict[str, Any]:
    over_efa: bool = getattr(settings.storage, "efa", False)  # only eks has it
    source = settings.storage.source
    if settings.target == "kubernetes":
        place = {"source": f"claim:{settings.namespace}/{source}", "image": settings.ray.image}
    else:
        place = {"source": f"{'gs' if settings.target == 'gke' else 's3'}://{source}"}
    return {"path": settings.storage.mount_path} | ({"efa": True} if over_efa else {}) | place | _days(settings.ray)


def _days(ray: CloudRay | LocalRay) -> dict[str, int]:
    return {} if ray.history_days == HISTORY_DAYS else {"historyDays": ray.history_days}


def job_stack(settings: ClusterSettings, ray_cluster: str) -> str:
    """Return the stack's description for the entry point of a RayJob or Indexed Job: outputs as JSON, without secrets.

    The pods' template contains it, so it contains only what describes these pods: a change would replace the job.
    """
    outputs = cluster_outputs(settings, ray_cluster, kubeconfig=None, token="")
    outputs["nodes"] |= {"min": settings.ray.max_workers, "max": settings.ray.max_workers}
    outputs["nodes"].pop("others", None)
    outputs["fabric"] |= {"floors": []}
    outputs["storage"] = outputs["storage"] and {"path": outputs["storage"]["path"]} | _days(settings.ray)
    described = ("target", "machine", "nodes", "fabric", "ray", "storage")
    return json.dumps({name: outputs[name] for name in described}, separators=(",", ":"))


class LocalHead(Protocol):
    """Values of the Ray head node that the outputs of a local stack need."""

    dashboard: Output[str]
    jobs: Output[str]
    client: Output[str]
    storage: Output[str]


def local_outputs(
    settings: LocalSettings, stack: str, head: LocalHead, token: Output[str], history: str
) -> dict[str, Any]:
    """Return the outputs of a stack on this machine.

    Args:
        token: Ray's token, secret.
        history: Folder of the project in which jobs are kept.
    """
    nodes = settings.nodes
    return {
        "target": "local",
        "nodes": {"min": nodes.count, "max": nodes.count, "gpusPerNode": 0, "cpusPerNode": nodes.cpus},
        "fabric": fabric_outputs("socket").model_dump(by_alias=True),
        "ray": {
            "cluster": stack,
            "mode": settings.ray.mode,
            "version": settings.ray.version,
            "dashboard": head.dashboard,
            "jobs": head.jobs,
            "client": head.client,
            "token": token,
        },
        "storage": {"path": head.storage, "source": history} | _days(settings.ray),
    }


def fabric_outputs(transport: str, machine: Machine | None = None, *, nics: int | None = None) -> FabricOutputs:
    """Return the network between nodes of a type; of another type (None), only their `nics` may be known."""
    if machine is None or not TRANSPORTS[transport].rdma:
        nics = nics if TRANSPORTS[transport].rdma else None
        return FabricOutputs(transport=transport, nics=nics, gbps_per_nic=None, floors=[])
    rate, known = machine.gbps_per_nic, floors(machine.name)
    return FabricOutputs(transport=transport, nics=machine.nics, gbps_per_nic=rate, floors=known)


def floors(machine: str) -> list[Floor]:
    """Return the floors of a network of two or more nodes, in the form of the stack's outputs.

    Only figures that gate count. If a size has several, the floor follows the fastest algorithm, which a healthy NCCL
    chooses, and the lowest publication of it.
    """
    best: dict[tuple[str, int, int], Baseline] = {}
    for line in BASELINES.get(machine, ()):
        key = (line.op, line.nodes, line.size)
        if line.gates and line.nodes > 1 and (key not in best or _before(line, best[key])):
            best[key] = line
    return [
        Floor(
            op=line.op,
            nodes=line.nodes,
            bytes=line.size,
            busbw=line.floor,
            source=f"{MARGIN:.0%} of {line.busbw} GB/s: {line.source}",
        )
        for line in best.values()
    ]


def _before(line: Baseline, other: Baseline) -> bool:
    """Return whether `line` takes precedence: the lower figure of one algorithm, or the faster algorithm."""
    return line.busbw < other.busbw if line.algorithm == other.algorithm else line.busbw > other.busbw
