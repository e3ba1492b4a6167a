"""Top-level settings and rules that the stack files of both clouds share."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, collapse_addresses
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from infra.addresses import BaseRangeError, EksAddresses, GkeAddresses
from infra.catalog.capacity import longest_wait_s
from infra.catalog.fabrics import FABRICS, fabrics_of
from infra.catalog.machines import Machine, cpu_machine_vcpus, supported
from infra.catalog.names import LOCAL_QUEUE
from infra.settings.cluster import ClusterSettings
from infra.settings.common import (
    CloudAccess,
    CloudBudget,
    CloudKubernetes,
    CloudNetwork,
    CloudNodes,
    CloudRay,
    CloudService,
    CloudStorage,
)
from infra.settings.cost import CostRules
from infra.settings.fields import KUBERAY, Flag, Section, Text, Texts
from infra.settings.problems import CONTRACT, Finding, Findings, rule
from infra.settings.teams import Team, TeamRules, Teams, namespace_of, ray_of

ADDRESSES = "the address plan of rdma-ray (infra/addresses.py), 2026-11"
ENDPOINTS = "CVE-2023-48022; default of both clouds for public endpoints, unverified, 2026-11"
HEAD_NODE = "rdma-ray, our choice: room for Ray's autoscaler, the operators, and the node's own pods, 2026-11-27"
MACHINES = "the catalog of machines (infra/catalog/machines.py)"
SYSTEM_MACHINES = "Compute Engine docs, general-purpose machines; EC2 docs, instance types; unverified, 2026-11"
SYSTEM_TYPES = {
    "gke": "a standard or highmem type of 8 vCPUs or more, not of Arm, such as n2d-standard-8",
    "eks": "a type of family m, r or t3 from 2xlarge on, not of Graviton, such as m7i.2xlarge",
}

COMPONENTS = {
    "gke": ("kuberay",),
    "eks": ("kuberay", "cluster-autoscaler", "nvidia-device-plugin", "efa-device-plugin", "dcgm-exporter"),
}
"""What a stack installs in a cluster, and a cluster of the user's may have (`cluster.provides`)."""

VCPUS_PER_HEAD = 8
"""vCPUs of a CPU node that Ray's head (4 CPUs, 16 GiB), its autoscaler and the cluster's pods take (our choice)."""
SPARE_CPUS, SPARE_GIB, GIB_PER_VCPU = 3, 10, 4
"""What a head leaves of its node, and memory of a node's type for each vCPU, at least."""
PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
LARGEST_OWNER = 8
"""Shortest prefix of an authorized network: our choice. No organization owns a larger one."""
OWN_NETWORKS = 'your own networks, such as ["203.0.113.7/32"], or access.publicEndpoint to false'


class CloudSettings(TeamRules, CostRules, ClusterSettings, Section):
    """Stack file of a cloud."""

    target: str = Field(
        description="Where the cluster runs: local (this machine), gke (Google Cloud), eks (AWS) or kubernetes (a "
        "cluster that you have)."
    )
    location: Text = Field(
        title="a zone",
        description="The one zone of every GPU node. gke: a zone such as us-central1-b; eks: an availability zone such "
        "as us-east-1a, or its id such as use1-az1.",
    )
    nodes: CloudNodes = Field(description="Machines that run Ray workers, with GPUs or, on gke, without.")
    fabric: str = Field(
        title="fabric",
        description="How pods reach the RDMA NICs. "
        + "; ".join(
            f"{target}: {', '.join(f'{name} ({FABRICS[name].words})' for name in fabrics_of(target))}"
            for target in ("gke", "eks", "kubernetes")
        )
        + ".",
    )
    queue: Literal["none", "kueue"] = Field(
        "none",
        title="queue",
        description="Queueing system that admits workloads: `none`, or `kueue`, which starts a job when all its nodes "
        "are available.",
    )
    teams: Teams = Field(
        (),
        title="teams",
        examples=[{"name": "vision", "quota": 2, "group": "vision@example.com"}],
        description="Teams that share the GPU nodes with queue kueue. Each has a name, a quota of GPU nodes that are "
        "always the team's, a namespace (by default its name) and optionally a group, the RBAC group that may use the "
        "team's Ray. The stack makes the namespace, a ClusterQueue of the name, and a RayCluster with quota workers.",
    )
    ray: CloudRay = Field(description="The Ray cluster.")
    service: CloudService = Field(description="What ray.mode service serves.")
    storage: CloudStorage = Field(description="Folder that every Ray node sees.")
    cluster: CloudKubernetes = Field(description="Version of Kubernetes, and the CPU nodes.")
    access: CloudAccess = Field(description="Access to the cluster.")
    network: CloudNetwork = Field(description="Addresses of the stack's own networks.")
    budget: CloudBudget = Field(description="Limits of the cost per hour, and an email about the monthly cost.")
    prices: Texts = Field(
        (),
        title="machines with prices",
        examples=["p5en.48xlarge=41.61"],
        description="What your contract has instead of list prices: MACHINE=DOLLARS per hour, with all GPUs of the "
        "machine, whatever its capacity.",
    )
    monitoring: Literal["none", "google", "operator", "annotations"] = Field(
        "none",
        title="monitoring",
        description="Dashboards for Grafana, alert rules, and exporters of RDMA NICs and, on eks, of GPUs, for a "
        "Prometheus: `none`; gke: `google`, the managed one; eks and kubernetes: `operator`, one with the CRDs of the "
        "Prometheus Operator, or `annotations`, one that follows annotations.",
    )
    protect: Flag = Field(
        True, description="Deletion protection of resources that hold data or take hours to create again."
    )
    hardening: Flag = Field(
        False,
        description="Whether to add what audits require at extra cost: flow logs of the network; gke: logs of the "
        "control plane and Binary Authorization; eks: a default security group without rules.",
    )
    _team: Team | None = PrivateAttr(None)

    if TYPE_CHECKING:

        @property
        def machine(self) -> Machine:
            """Catalog row of the nodes' machine type."""

        @property
        def addresses(self) -> EksAddresses | GkeAddresses:
            """Address plan of the stack. Raises `BaseRangeError`, but not for valid settings."""

        @property
        def on_users_network(self) -> bool:
            """Whether the nodes are in a network that the user has."""

        @property
        def of_cluster(self) -> tuple[tuple[str, bool], ...]:
            """Settings of a cluster that the stack makes: path, and whether it is set."""

    def installs(self, component: str) -> bool:
        """Return whether the stack installs a component: a cluster of the user's may have it."""
        return component not in self.cluster.provides

    @property
    def own_cluster(self) -> bool:
        """Whether the stack makes the cluster."""
        return self.cluster.existing is None

    @property
    def namespace(self) -> str:
        """Namespace of Ray's objects."""
        return namespace_of(self._team)

    @property
    def team(self) -> Team | None:
        """Team of these settings (`for_team`)."""
        return self._team

    def for_team(self, team: Team) -> Self:
        """Return the settings of a team's Ray cluster (docs/decisions/0047-share-nodes-by-quotas-and-namespaces.md)."""
        parts = {"ray": ray_of(team, self.ray), "storage": {"bucket": None}, "access": {"outputs_secret": True}}
        update = {name: getattr(self, name).model_copy(update=each) for name, each in parts.items()} | {"teams": ()}
        changed = self.model_copy(update=update)
        changed._team = team
        return changed

    @property
    def local_queue(self) -> str | None:
        """LocalQueue that the stack makes."""
        return LOCAL_QUEUE if self.queue == "kueue" else None

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a worker, all of its node."""
        return self.machine.gpus

    @property
    def cpus_per_node(self) -> int | None:
        """CPUs that a worker requests; None for an unsupported machine."""
        return self.machine.pod_cpus

    @property
    def nics_per_node(self) -> int:
        """RDMA NICs of a node."""
        return self.machine.nics

    @property
    def node_wait_s(self) -> int:
        """Seconds that a pod may wait for its node: the longest of the stack's kinds of capacity."""
        return longest_wait_s(self.target, *self.nodes.capacities)

    @property
    def cpu_node_vcpus(self) -> int:
        """vCPUs of a CPU node; 0 for a machine type that is not known as one."""
        return cpu_machine_vcpus(self.target, self.cluster.system_machine)

    @property
    def cpu_node_room(self) -> tuple[int, int]:
        """CPUs and GiB of a CPU node for a head, or for workers without GPUs."""
        return self.cpu_node_vcpus - SPARE_CPUS, GIB_PER_VCPU * self.cpu_node_vcpus - SPARE_GIB

    @property
    def heads(self) -> int:
        """Ray heads that the CPU nodes have room for."""
        vcpus = self.cpu_node_vcpus
        share = max(VCPUS_PER_HEAD, 2 * self.ray.head_cpus, self.ray.head_memory_gib // 2)
        # One with less room for others than that still fits (`head_too_large`).
        return (self.cluster.system_nodes - self.cpu_worker_nodes) * max(vcpus // share, int(vcpus >= VCPUS_PER_HEAD))

    @property
    def cpu_worker_nodes(self) -> int:
        """CPU nodes that the Ray workers without GPUs take."""
        ray, (cpus, gib) = self.ray, self.cpu_node_room
        per_node = min(cpus // ray.cpu_worker_cpus, gib // ray.cpu_worker_memory_gib)
        return -(-ray.cpu_workers // max(1, per_node))

    @rule("nodes.machine", source=MACHINES)
    def machine_unsupported(self) -> Findings:
        machine = self.machine
        if machine.unsupported is not None:
            fix = f"choose one of {', '.join(supported(machine.cloud))}"
            yield Finding(f"{machine.name} is not supported: {machine.unsupported}.", fix, machine.sources["gpus"])

    @rule("nodes.capacity", "nodes.machine", source=MACHINES)
    def capacity_unavailable(self) -> Findings:
        return not_available(self.machine, self.nodes.capacity, "nodes.capacity")

    @rule("budget.monthly", "budget.email", source=CONTRACT)
    def budget_incomplete(self) -> Findings:
        if (self.budget.monthly is None) != (self.budget.email is None):
            missing = "address" if self.budget.email is None else "amount"
            fix = "set budget.monthly and budget.email, or remove both"
            yield Finding(f"The budget has no {missing}, so no email is sent.", fix)

    @rule("access.publicEndpoint", "access.authorizedNetworks", source=ENDPOINTS)
    def public_endpoint_for_the_internet(self) -> Findings:
        networks, fix = self.access.authorized_networks, f"set access.authorizedNetworks to {OWN_NETWORKS}"
        if self.access.public_endpoint and not networks:
            yield Finding(
                "Without a list of networks, the cloud opens the public endpoint to the entire Internet.", fix
            )
        widest = min(collapse_addresses(map(IPv4Network, networks)), key=lambda each: each.prefixlen, default=None)
        if self.access.public_endpoint and widest and widest.prefixlen < LARGEST_OWNER:
            share = widest.num_addresses / 2**32
            yield Finding(
                f"They contain {widest}, {share:.0%} of the Internet: there, one leaked credential is enough.", fix
            )

    @rule("cluster.systemMachine", source=SYSTEM_MACHINES)
    def system_machine_unfit(self) -> Findings:
        machine = self.cluster.system_machine
        if self.cpu_node_vcpus < VCPUS_PER_HEAD:
            yield Finding(
                f"{machine} is not known as an x86 machine with {VCPUS_PER_HEAD} vCPUs and 30 GiB, "
                "without which Ray's head and the operators may wait forever.",
                f"choose {SYSTEM_TYPES[self.target]}",
            )

    @rule("ray.headCpus", "ray.headMemoryGib", "cluster.systemMachine", source=HEAD_NODE)
    def head_too_large(self) -> Findings:
        ray, (cpus, gib) = self.ray, self.cpu_node_room
        if self.cpu_node_vcpus >= VCPUS_PER_HEAD and (ray.head_cpus > cpus or ray.head_memory_gib > gib):
            fix = (
                f"lower ray.headCpus to {cpus} and ray.headMemoryGib to {gib}, or choose a larger cluster.systemMachine"
            )
            yield Finding(
                f"A head of {ray.head_cpus} CPUs and {ray.head_memory_gib} GiB does not fit on its node.", fix
            )

    @rule("ray.cpuWorkers", "ray.cpuWorkerCpus", "ray.cpuWorkerMemoryGib", "cluster.systemNodes", source=HEAD_NODE)
    def cpu_workers_without_room(self) -> Findings:
        ray, (cpus, gib) = self.ray, self.cpu_node_room
        nodes, most = self.cpu_worker_nodes, self.cluster.system_nodes
        if not ray.cpu_workers or self.cpu_node_vcpus < VCPUS_PER_HEAD:
            return
        if ray.cpu_worker_cpus > cpus or ray.cpu_worker_memory_gib > gib:
            fix = f"lower it to {cpus} CPUs and {gib} GiB, or choose a larger cluster.systemMachine"
            size = f"{ray.cpu_worker_cpus} CPUs and {ray.cpu_worker_memory_gib} GiB"
            yield Finding(f"A CPU worker of {size} does not fit on a {self.cluster.system_machine}.", fix)
        elif nodes + 1 > most:
            fix = f"set cluster.systemNodes to {nodes + 1}, or lower ray.cpuWorkers"
            yield Finding(f"CPU workers take {nodes} CPU nodes and the head another one, but {most} are allowed.", fix)

    @rule("cluster.provides", "cluster.existing", source=CONTRACT)
    def provides_wrong(self) -> Findings:
        known = COMPONENTS[self.target]
        unknown = [each for each in self.cluster.provides if each not in known]
        if unknown:
            yield Finding(f"{unknown[0]} is no component that a stack installs.", f"choose of {', '.join(known)}")
        elif self.cluster.provides and self.own_cluster:
            yield Finding(
                "A cluster that the stack makes has none of them.", "set cluster.existing, or remove cluster.provides"
            )

    @rule("cluster.existing", "queue", source=CONTRACT)
    def queue_in_their_cluster(self) -> Findings:
        if not self.own_cluster and self.queue == "kueue":
            yield Finding(
                "Kueue is configured once for a whole cluster, so a stack does not install it in an existing cluster.",
                "set queue to none, or use target kubernetes with a LocalQueue of your Kueue",
            )

    @rule("cluster.existing", source=CONTRACT)
    def settings_of_their_cluster(self) -> Findings:
        if not self.own_cluster and (paths := [path for path, is_set in self.of_cluster if is_set]):
            yield Finding(
                f"The cluster and its network are yours, and the stack does not change them: {', '.join(paths)} would "
                "have no effect.",
                f"remove {' and '.join(paths)}",
            )

    @rule("network.baseRange", source="RFC 1918 and RFC 6598")
    def base_range_public(self) -> Findings:
        base = IPv4Network(self.network.base_range)
        if not is_private(base):
            fix = f"choose a part of {', '.join(map(str, PRIVATE_RANGES))}"
            yield Finding(f"{base} is not private: Internet hosts with these addresses would be unreachable.", fix)

    @rule("network.baseRange", "nodes.max", "cluster.systemNodes", source=ADDRESSES)
    def base_range_wrong_size(self) -> Findings:
        try:
            _ = self.addresses
        except BaseRangeError as error:
            yield Finding(error.message, error.fix)


def is_private(network: IPv4Network) -> bool:
    """Return whether a network is inside a private range."""
    return any(network.subnet_of(private) for private in PRIVATE_RANGES)


def not_available(machine: Machine, capacity: str, path: str) -> Findings:
    """Find that the cloud does not offer the machine type as this capacity, which is the value of `path`."""
    if machine.unsupported is None and capacity not in machine.capacities:
        fix = f"set {path} to one of {', '.join(machine.capacities)}"
        source = machine.sources["capacities"]
        yield Finding(f"{machine.name} is not available as {capacity} capacity: no node would start.", fix, source)


def not_a_zone(location: str, zone: str, region: str, suffix: str, example: str) -> Findings:
    """Find that a location is not a zone, by the patterns of zones and regions; a region with `suffix` is a zone."""
    if re.fullmatch(region, location):
        fix = f"choose one of its zones that has the machine, such as {location}{suffix}"
        yield Finding(
            f"{location} is a region. RDMA works within one zone, so all nodes must be in the same zone.", fix
        )
    elif not re.fullmatch(zone, location):
        fix = f"write a zone such as {example}"
        yield Finding(f"{location} is not the name of a zone, so no resource could be created there.", fix)


def not_a_bucket(name: str, accepted: bool, words: str) -> Findings:
    """Find that a name cannot be a bucket's; `words` are the cloud's rule."""
    if "://" in name:
        yield Finding(f"{name} is a URL, not a name.", f"write {name.partition('://')[2].partition('/')[0]}")
    elif not accepted or re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name):
        yield Finding(f"{name} cannot be a bucket of {words}.", "correct the name, or remove it")


class NameLimit(NamedTuple):
    """A kind of resource, the maximum length of its name, and the longest suffix that we append."""

    kind: str
    characters: int
    suffix: str
    source: str

    @property
    def longest(self) -> int:
        """Maximum length of a stack's name."""
        return self.characters - len(self.suffix)


# 47 characters: the clusters of a RayJob or RayService are named after it, with a dash and five letters.
KUBERNETES_LIMITS = (NameLimit("RayJob", 47, "-ray", KUBERAY), NameLimit("RayCluster", 53, "-ray", KUBERAY))


def stack_name_rejected(stack: str, limits: tuple[NameLimit, ...]) -> Findings:
    """Find that resources cannot be named after the stack."""
    tightest = min(limits, key=lambda limit: limit.longest)
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", stack):
        yield Finding(
            f"The stack's name is {stack}, but names of clusters have only a-z, 0-9 and -, and begin with a letter.",
            f"create a stack with such a name: pulumi stack init NAME --copy-config-from {stack}",
            "; ".join(dict.fromkeys(limit.source for limit in limits)),
        )
    elif len(stack) > tightest.longest:
        name = f"{stack}{tightest.suffix}"
        yield Finding(
            f"The {tightest.kind} {name} would have {len(name)} characters, more than {tightest.characters}.",
            f"create a stack with a name of at most {tightest.longest} characters",
            tightest.source,
        )
