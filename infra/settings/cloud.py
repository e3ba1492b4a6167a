"""Top-level settings and rules that the stack files of both clouds share."""

from __future__ import annotations

import re
import shlex
from ipaddress import IPv4Network, collapse_addresses
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from infra.addresses import BaseRangeError, EksAddresses, GkeAddresses
from infra.catalog.fabrics import FABRICS, Fabric, fabrics_of
from infra.catalog.machines import CATALOG, Machine, cpu_machine_vcpus
from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE, RAY_IN
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
from infra.settings.fields import KUBERAY, Flag, Section, Text
from infra.settings.pods import LAYOUT, VCPUS_PER_HEAD, PodRules, not_a_mount_path
from infra.settings.problems import CONTRACT, Finding, Findings, rule
from infra.settings.service import ServiceRules

ADDRESSES = "the address plan of rdma-ray (infra/addresses.py), 2026-11"
BLACKWELL = "NVIDIA docs, Blackwell Compatibility Guide, 2025-05: CUDA before 12.8 has no code for sm_100"
ENDPOINTS = "CVE-2023-48022; default of both clouds for public endpoints, unverified, 2026-11"
HTTP_MODE = "ray-project/kuberay: HTTPMode submits the entry point to the head, v1.6.2"
JOB_SIZE = (
    "Kubernetes docs, concepts/workloads/controllers/job, read 2026-11; ray-project/kuberay: rayjob_controller.go "
    "(preRunningDeadlineSeconds ends with a cluster that is ready), v1.6.2"
)
MACHINES = "the catalog of machines (infra/catalog/machines.py)"
RAY_IMAGES = "ray-project/ray: ray-images.json and image_tags_lib.py, read 2026-08"
RAY_VERSIONS = "ray-project/kuberay: samples, rayVersion is the image's Ray, v1.7.0"
SYSTEM_MACHINES = "Compute Engine docs, general-purpose machines; EC2 docs, instance types; unverified, 2026-11"
SYSTEM_TYPES = {
    "gke": "a standard or highmem type of 8 vCPUs or more, not of Arm, such as n2d-standard-8",
    "eks": "a type of family m, r or t3 from 2xlarge on, not of Graviton, such as m7i.2xlarge",
}
WHOLE_NODE = "GKE docs gke-ai-hypercompute-custom, 2026-04-06: an RDMA pod takes every GPU and NIC of its node"

BLACKWELL_GPUS = ("B200", "B300", "GB200")
BLACKWELL_CUDA = 128
PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
WITHOUT = {
    "rayproject/ray": ("rdma-ray", "torchrun"),
    **{image.partition(":")[0]: ("rdma-ray",) for image in (RAY_IMAGE, AWS_RAY_TRAIN)},
}
"""Commands that others' images lack, whatever the tag, by repository (ray-project/ray: docker/base-deps; AWS' as in
pins.py). Without torchrun there is no torch."""
OWN_IMAGE = "build this project's image with `rdma-ray image build --push`, which sets ray.image (docs/images.md)"
LARGEST_OWNER = 8
"""Shortest prefix of an authorized network: our choice. No organization owns a larger one."""
OWN_NETWORKS = 'your own networks, such as ["203.0.113.7/32"], or access.publicEndpoint to false'


class CloudSettings(PodRules, ServiceRules, Section):
    """Stack file of a cloud."""

    target: str = Field(description="Where the cluster runs: local (this machine), gke (Google Cloud) or eks (AWS).")
    location: Text = Field(
        title="a zone",
        description="The one zone of every GPU node. gke: a zone such as us-central1-b; eks: an availability zone such "
        "as us-east-1a, or its id such as use1-az1.",
    )
    nodes: CloudNodes = Field(description="GPU machines that run Ray workers.")
    fabric: str = Field(
        title="fabric",
        description="How pods reach the RDMA NICs. "
        + "; ".join(
            f"{target}: {', '.join(f'{name} ({FABRICS[name].words})' for name in fabrics_of(target))}"
            for target in ("gke", "eks")
        )
        + ".",
    )
    queue: Literal["none", "kueue"] = Field(
        "none",
        title="queue",
        description="Queueing system that admits workloads: `none`, or `kueue`, which starts a job when all its nodes "
        "are available.",
    )
    ray: CloudRay = Field(description="The Ray cluster.")
    service: CloudService = Field(description="What ray.mode service serves.")
    storage: CloudStorage = Field(description="Folder that every Ray node sees.")
    cluster: CloudKubernetes = Field(description="Version of Kubernetes, and the CPU nodes.")
    access: CloudAccess = Field(description="Access to the cluster's control plane.")
    network: CloudNetwork = Field(description="Addresses of the stack's own networks.")
    budget: CloudBudget = Field(description="Email about the stack's monthly cost.")
    protect: Flag = Field(
        True, description="Deletion protection of resources that hold data or take hours to create again."
    )
    hardening: Flag = Field(
        False,
        description="Whether to add what audits require at extra cost: flow logs of the network; gke: logs of the "
        "control plane and Binary Authorization; eks: a default security group without rules.",
    )

    @property
    def fabric_row(self) -> Fabric:
        """Catalog row of the fabric."""
        return FABRICS[self.fabric]

    if TYPE_CHECKING:

        @property
        def addresses(self) -> EksAddresses | GkeAddresses:
            """Address plan of the stack. Raises `BaseRangeError`, but not for valid settings."""

    @property
    def heads(self) -> int:
        """Ray heads that the CPU nodes have room for."""
        vcpus = cpu_machine_vcpus(self.target, self.cluster.system_machine)
        share = max(VCPUS_PER_HEAD, 2 * self.ray.head_cpus, self.ray.head_memory_gib // 2)
        # One with less room for others than that still fits (`PodRules.head_too_large`).
        return self.cluster.system_nodes * max(vcpus // share, int(vcpus >= VCPUS_PER_HEAD))

    @rule("nodes.machine", source=MACHINES)
    def machine_unsupported(self) -> Findings:
        machine = self.machine
        if machine.unsupported is not None:
            fix = f"choose one of {', '.join(supported(machine.cloud))}"
            yield Finding(f"{machine.name} is not supported: {machine.unsupported}.", fix, machine.sources["gpus"])

    @rule("nodes.capacity", "nodes.machine", source=MACHINES)
    def capacity_unavailable(self) -> Findings:
        return not_available(self.machine, self.nodes.capacity, "nodes.capacity")

    @rule("nodes.min", "nodes.max", source=CONTRACT)
    def nodes_min_above_max(self) -> Findings:
        least, most = self.nodes.min, self.nodes.max
        if least > most:
            fix = f"raise nodes.max to {least}, or lower nodes.min"
            yield Finding(f"The cluster cannot have at least {least} and at most {most} nodes.", fix)

    @rule("nodes.maxHours", "nodes.min", source=CONTRACT)
    def permanent_nodes_have_no_limit(self) -> Findings:
        least = self.nodes.min
        if self.nodes.max_hours and least > 0:
            fix = "set nodes.min to 0, or remove nodes.maxHours"
            yield Finding(f"nodes.maxHours does not limit the bill: nodes.min keeps {least} idle nodes up.", fix)

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

    @rule("storage.mountPath", source=LAYOUT)
    def mount_path_hides_system(self) -> Findings:
        return not_a_mount_path(self.storage.mount_path)

    @rule("cluster.systemMachine", source=SYSTEM_MACHINES)
    def system_machine_unfit(self) -> Findings:
        machine = self.cluster.system_machine
        if cpu_machine_vcpus(self.target, machine) < VCPUS_PER_HEAD:
            yield Finding(
                f"{machine} is not known as an x86 machine with {VCPUS_PER_HEAD} vCPUs and 30 GiB, "
                "without which Ray's head and the operators may wait forever.",
                f"choose {SYSTEM_TYPES[self.target]}",
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

    @rule("ray.maxWorkers", "nodes.max", source=WHOLE_NODE)
    def workers_above_nodes(self) -> Findings:
        workers, nodes = self.ray.max_workers, self.nodes.max
        if workers > nodes:
            fix, extra = f"lower ray.maxWorkers to {nodes}, or raise nodes.max", workers - nodes
            yield Finding(f"A Ray worker takes a whole node: {extra} of {workers} workers would wait forever.", fix)

    @rule("ray.minWorkers", "ray.maxWorkers", source=KUBERAY)
    def workers_min_above_max(self) -> Findings:
        least, most = self.ray.min_workers, self.ray.max_workers
        if least > most:
            fix = f"raise ray.maxWorkers to {least}, or lower ray.minWorkers"
            yield Finding(f"KubeRay rejects a worker group of at least {least} and at most {most} workers.", fix)

    @rule("ray.image", "ray.version", source=RAY_VERSIONS)
    def image_runs_another_ray(self) -> Findings:
        version, inside = self.ray.version, RAY_IN.get(self.ray.image)
        named = [inside] if inside else re.findall(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", _tag(self.ray.image))
        if "@sha256:" in self.ray.image or _tag(self.ray.image).endswith("-gpu") or version in named:
            return
        actual = f"the image runs {inside}" if inside else f"the tag names {named[0] if named else 'no Ray version'}"
        fix = f'set ray.version to "{inside}"' if inside else f"use an image whose tag contains {version}"
        yield Finding(
            f"KubeRay would probe and start this image as Ray {version}, but {actual}: no worker would become ready.",
            f"{fix}, or pin the image by digest (@sha256:…)",
        )

    @rule("ray.image", source=RAY_IMAGES)
    def image_is_gpu_alias(self) -> Findings:
        if _tag(self.ray.image).endswith("-gpu"):
            fix = f"choose a tag with the CUDA version, such as {self.ray.version}-py311-cu128"
            yield Finding("A tag that ends with -gpu means CUDA 12.1, which is too old for H200 and B200 GPUs.", fix)

    @rule("ray.image", "nodes.machine", source=BLACKWELL)
    def image_too_old_for_blackwell(self) -> Findings:
        gpu, cuda = self.machine.gpu, re.search(r"(?:^|[-_.])cu(\d{3})(?:$|[-_.])", _tag(self.ray.image))
        if gpu in BLACKWELL_GPUS and not self.machine.unsupported and cuda and int(cuda[1]) < BLACKWELL_CUDA:
            fix = "use an image for CUDA 12.8 or later, such as a tag with -cu128"
            yield Finding(f"CUDA {cuda[1][:2]}.{cuda[1][2:]} has no code for {gpu} GPUs: the first kernel fails.", fix)

    @rule("ray.image", source=RAY_IMAGES, warning=True)
    def image_has_no_torch(self) -> Findings:
        if "torchrun" in _missing(self.ray.image):
            needs = self.fabric_row.transport.needs
            lacks = f"neither torch nor {needs}" if needs else "no torch"
            yield Finding(
                f"This image has {lacks}: benchmarks and training fail, and so does your code unless it brings them.",
                OWN_IMAGE,
            )

    @rule("ray.image", "ray.entrypoint", source=RAY_IMAGES)
    def entrypoint_is_not_in_the_image(self) -> Findings:
        command = (self.ray.entrypoint or "").split()[:1]
        if command and command[0] in _missing(self.ray.image):
            yield Finding(f"This image has no {command[0]}, so the job would fail on nodes that cost money.", OWN_IMAGE)

    @rule("ray.entrypoint", "ray.mode", source=CONTRACT)
    def entrypoint_without_job(self) -> Findings:
        mode, job = self.ray.mode, self.ray.mode in ("job", "indexed-job")
        if not job and self.ray.entrypoint is not None:
            fix = "set ray.mode to job or indexed-job, or remove ray.entrypoint"
            other = " and submit it with `ray job submit`" if mode == "cluster" else ""
            yield Finding(f"Mode {mode} has no entry point, so nothing would run this one.", fix + other)
        elif job and self.ray.entrypoint is None:
            fix = 'set ray.entrypoint, such as "python /app/train.py", or ray.mode to cluster'
            yield Finding(f"Mode {mode} runs one entry point and ends with it, but none is set.", fix)

    @rule("ray.minWorkers", "ray.maxWorkers", "ray.mode", source=JOB_SIZE)
    def job_size_not_fixed(self) -> Findings:
        mode, least, most = self.ray.mode, self.ray.min_workers, self.ray.max_workers
        if mode in ("job", "indexed-job") and least != most:
            fix = f"set ray.minWorkers to {most} (or remove it), or ray.mode to cluster"
            yield Finding(f"Mode {mode} always has ray.maxWorkers nodes ({most}) and cannot start with {least}.", fix)

    @rule("ray.entrypoint", "ray.mode", "ray.maxWorkers", source="rdma-ray: docs/indexed-job.md")
    def torchrun_not_on_every_pod(self) -> Findings:
        line, others = self.ray.entrypoint or "", self.ray.max_workers - 1
        if not _runs_torchrun(line):
            return
        if self.ray.mode == "job":
            fix = "set ray.mode to indexed-job, which runs torchrun on every node, or write rdma-ray run -- torchrun …"
            yield Finding("A job's entry point runs on the head only, which has no GPU for torchrun.", fix, HTTP_MODE)
        elif self.ray.mode == "indexed-job" and others and line.split()[0] != "torchrun":
            fix = "begin it with torchrun, and move the preceding commands into the image or the program"
            yield Finding(f"It begins without torchrun, so one pod runs it; {others} more idle at full cost.", fix)


def is_private(network: IPv4Network) -> bool:
    """Return whether a network is inside a private range."""
    return any(network.subnet_of(private) for private in PRIVATE_RANGES)


def supported(cloud: str) -> list[str]:
    """Return the machine types that a cloud has and this program builds."""
    return [row.name for row in CATALOG.values() if row.cloud == cloud and row.unsupported is None]


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


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _missing(image: str) -> tuple[str, ...]:
    """Return the commands that are known to be missing in an image."""
    repository = image.partition("@")[0].removeprefix("index.").removeprefix("docker.io/")
    return WITHOUT.get(repository.removesuffix(f":{_tag(image)}"), ())


def _runs_torchrun(line: str) -> bool:
    """Return whether a shell command line runs torchrun, by any path or as a module.

    Source: PyTorch docs, elastic/run, read 2026-11.
    """
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(reader)
    except ValueError:
        # An unterminated quote; the shell reports it.
        return False
    begins = True
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        module = words[at + 1 : at + 3] == ["-m", "torch.distributed.run"]
        if begins and (name == "torchrun" or (name.startswith("python") and module)):
            return True
        # A command begins after an operator, and after leading assignments and wrappers.
        begins = set(word) <= set("();<>|&") or (begins and ("=" in word or word in ("env", "exec", "time", "nohup")))
    return False


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
