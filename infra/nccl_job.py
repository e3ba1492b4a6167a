"""nccl-tests as a Kubernetes Job without Ray: an Indexed Job whose pod 0 runs mpirun over the sshd of the others.

This module describes such a Job and checks it; `workloads/nccl/job_manifest.py` writes its objects, and the folder
`nccl_job_pod` runs in its pods. It is not part of a stack: `pulumi up` must not occupy GPUs. It follows a Job that has
run (saltysoup/gke-h200-dws-example, read 2026-08), with two faults corrected: host names resolve, and the exit code is
that of mpirun. Imports no Pulumi.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from infra.catalog.capacity import MAX_RUN_HOURS
from infra.catalog.names import JOB_INDEX, JOB_NAME
from infra.catalog.pins import EFA_NCCL_TESTS_IMAGE, GIB_DIAGNOSTIC_IMAGE
from infra.fabric import GpuPod
from infra.kubernetes.pods import SCRIPTS
from infra.plan import plan
from infra.settings import CloudSettings, LocalSettings, Settings

MAX_RUN_S = 3600 * MAX_RUN_HOURS
"""Longest run of queued nodes (GKE docs provisioningrequest, 2026-04-08)."""

HOST_NAME_ROOM = 64
"""Maximum length of a host name in Linux; a pod with a longer FQDN does not start (Kubernetes docs,
concepts/services-networking/dns-pod-service, setHostnameAsFQDN; read 2026-11)."""

DOMAIN = "svc.cluster.local"
"""Default domain of a cluster; the pods read theirs from their own host name."""

START_S = 900
"""Limit in seconds from scheduling to the start of the script: 6 min 41 s were seen (the same source's log)."""

FIRST_OP: Mapping[str, str] = {"gke": "all_gather", "eks": "all_reduce"}
"""Operation of most published figures of a cloud's machines (`infra.catalog.baselines`)."""

SSH_PORT = 222
"""Port of sshd in GKE's image, and in ours: it is privileged, so only root can serve logins there."""

PROGRAMS: Mapping[str, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "sendrecv": "sendrecv_perf",
}
"""Program of each operation (NVIDIA/nccl-tests: src/Makefile, a0b82b22)."""

NODES, WAIT_S, RUN_S = 2, 1800, 3600
"""Defaults: nodes, and the limits in seconds of the wait for each other and of the measurement."""

_SIZE = re.compile(r"([1-9]\d*)([KMGT]?)")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class NcclImage:
    """A container image with nccl-tests, Open MPI and sshd.

    The fabric's plugin comes with the node on GKE (gIB, mounted) and with the image on EKS (aws-ofi-nccl).

    Args:
        tests: Folder of all_gather_perf and the others.
        mpirun: Command; with its full path, the other nodes find its programs there (mpirun(1), Open MPI 4.1:
            the same as --prefix).
        sshd: Command that serves logins on `SSH_PORT`, in the foreground.
        own_keys: Whether the image contains a key pair, which is then public.
        prepare: Command that its examples run first; "" for none.
        unset: Variables of the image that conflict with ours.
    """

    image: str
    tests: str
    mpirun: str
    sshd: str
    own_keys: bool
    prepare: str
    unset: tuple[str, ...]
    source: str


_EFA_IMAGE = NcclImage(
    image=EFA_NCCL_TESTS_IMAGE,
    tests="/opt/nccl-tests/build",
    mpirun="/opt/amazon/openmpi/bin/mpirun",
    # Our own sshd, with the Job's key and no other (`nccl_job_pod/sshd_config`).
    sshd=f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {SCRIPTS}/sshd_config",
    own_keys=False,
    prepare="",
    # Open MPI accepts either a list of interfaces to use or a list to exclude; the image sets the second.
    unset=("OMPI_MCA_btl_tcp_if_exclude",),
    source="awslabs/awsome-distributed-ai: micro-benchmarks/nccl-tests/nccl-tests.Dockerfile, 0b55ba5f, and "
    "kubernetes/nccl-tests-gb200.yaml, c428b24b, read 2026-11",
)

IMAGES: Mapping[str, NcclImage] = {
    "gke": NcclImage(
        image=GIB_DIAGNOSTIC_IMAGE,
        tests="/third_party/nccl-tests/build",
        mpirun="mpirun",
        sshd="/scripts/container_entry.sh daemon",
        own_keys=True,
        # The image's library cache was written before the node's driver was mounted.
        prepare="/sbin/ldconfig",
        unset=(),
        source="GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma/nccl-test-managed-rdma.yaml, "
        "2433eeed (the tag); saltysoup/gke-h200-dws-example and gke-ai-hypercompute-custom, 2026-04-06 (the rest)",
    ),
    "eks": _EFA_IMAGE,
    # It has its own NCCL, Open MPI and sshd, and needs nothing of the node.
    "kubernetes": _EFA_IMAGE,
}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Parameters of nccl-tests.

    Args:
        op: Operation, a key of `PROGRAMS`.
        begin: Smallest size in bytes, with K, M or G for powers of 1024.
        end: Largest size.
        factor: Step between sizes.
        iterations: Timed runs of each size.
        warmup: Untimed runs before them.
        split: All ranks in one communicator, or one communicator per rail.
    """

    op: str = "all_gather"
    begin: str = "1K"
    end: str = "8G"
    factor: int = 2
    iterations: int = 100
    warmup: int = 5
    split: Literal["world", "rails"] = "world"

    def problem(self) -> str:
        """Return the first problem with its option, value and fix; empty if there is none."""
        if self.op not in PROGRAMS:
            return f"--op {self.op}: nccl-tests measures {', '.join(PROGRAMS)}"
        for option, text in (("-b", self.begin), ("-e", self.end)):
            if not _SIZE.fullmatch(text):
                return f"{option} {text}: write bytes as nccl-tests does, such as 64, 1K, 512M or 8G"
        if size(self.begin) > size(self.end):
            return f"-b {self.begin}: larger than -e {self.end}, so nothing would be measured"
        return ""


@dataclass(frozen=True, kw_only=True)
class NcclJob:
    """An NCCL Job.

    Args:
        namespace: Namespace of its objects.
        nodes: Pods, one per node.
        gpus: GPUs of a node, and ranks per pod.
        wait_s: Seconds that scheduled pods wait for each other.
        run_s: Maximum run time of mpirun, in seconds.
        nodes_s: Maximum wait of pods for nodes, in seconds.
        queue: Kueue's LocalQueue; None without one.
        provisioned: Whether a ProvisioningRequest creates the nodes for the Job.
        pod: Requirements of a pod that owns the GPUs and NICs of its node.
        pull_secrets: Secrets of the namespace with which nodes pull the image.
    """

    name: str
    namespace: str
    image: NcclImage
    nodes: int
    gpus: int
    sweep: Sweep
    wait_s: int
    run_s: int
    nodes_s: int
    queue: str | None
    provisioned: bool
    pod: GpuPod
    pull_secrets: Sequence[str] = ()

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify the pods of the Job."""
        return {JOB_NAME: self.name}

    @property
    def key_secret(self) -> str:
        """Name of the Secret with the key pair of its sshd, if the image has none."""
        return f"{self.name}-ssh"

    @property
    def pod_s(self) -> int:
        """Maximum run time of a scheduled pod, in seconds."""
        return START_S + self.wait_s + self.run_s

    @property
    def first(self) -> str:
        """Selector of pod 0, whose log has the results."""
        return f"{JOB_NAME}={self.name},{JOB_INDEX}=0"

    def problems(self) -> list[str]:
        """Return every problem with its option, value and fix."""
        nodes = "" if self.nodes >= 2 else f"--nodes {self.nodes}: a network has two ends; use at least 2"
        time = ""
        if self.provisioned and self.pod_s > MAX_RUN_S:
            time = f"--wait and --timeout: {self.pod_s} s in total; queued nodes run for at most {MAX_RUN_S} s"
        return [text for text in (nodes, self._name(), self.sweep.problem(), time) if text]

    def _name(self) -> str:
        if not _LABEL.fullmatch(self.name):
            return f"--name {self.name}: use lower-case letters, digits and dashes, beginning with a letter"
        last = f"{self.name}-{self.nodes - 1}.{self.name}.{self.namespace}.{DOMAIN}"
        if len(last) <= HOST_NAME_ROOM:
            return ""
        most = (HOST_NAME_ROOM - len(last)) // 2 + len(self.name)
        return (
            f"--name {self.name}: the last pod's host name would be {last}, {len(last)} characters of at most "
            f"{HOST_NAME_ROOM}; choose a name of at most {most}"
        )


def size(text: str) -> int:
    """Return the bytes of a size as nccl-tests writes it."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not a size such as 1K or 8G")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def nccl_job(
    settings: Settings,
    sweep: Sweep,
    *,
    nodes: int = NODES,
    name: str | None = None,
    queue: str | None = None,
    image: str | None = None,
    wait_s: int = WAIT_S,
    run_s: int = RUN_S,
) -> NcclJob:
    """Return the Job for a stack.

    Without `queue` the stack's own queue admits the Job, if there is one. A Job outside Kueue would take nodes that
    Kueue counts as free, and would get no queued nodes.

    Raises:
        ValueError: The Job cannot run on this stack; the message contains every problem.
    """
    planned = plan(settings)
    if isinstance(settings, LocalSettings) or planned.pod is None:
        raise ValueError("target local: its nodes are processes of this machine; use `rdma-ray bench nccl`")
    queue = queue or settings.local_queue
    if not settings.gpus_per_node:
        where = f"nodes.machine {settings.machine.name}" if isinstance(settings, CloudSettings) else "nodes.gpus 0"
        raise ValueError(f"{where}: nccl-tests needs GPUs; use `rdma-ray bench nccl`")
    if planned.machine is not None and not planned.machine.rdma:
        name = planned.machine.name
        raise ValueError(
            f"nodes.machine {name}: the Job measures RDMA NICs, and it has none; use `rdma-ray bench nccl`"
        )
    known = IMAGES[settings.target]
    job = NcclJob(
        name=name or f"nccl-{sweep.op.replace('_', '-')}",
        namespace=settings.namespace,
        image=replace(known, image=image) if image else known,
        nodes=nodes,
        gpus=settings.gpus_per_node,
        sweep=sweep,
        wait_s=wait_s,
        run_s=run_s,
        nodes_s=settings.node_wait_s,
        queue=queue,
        provisioned=queue is not None
        and isinstance(settings, CloudSettings)
        and "flex-start-queued" in settings.nodes.capacities,
        # The name of EFA's plugin has changed between releases (aws-ofi-nccl: src/nccl_ofi_interface_nvidia.cpp).
        pod=planned.pod,
        pull_secrets=settings.ray.pull_secrets,
    )
    problems = job.problems()
    if nodes > settings.nodes.max:
        problems.append(f"--nodes {nodes}: the stack has nodes.max {settings.nodes.max}; raise it, or use fewer nodes")
    if problems:
        raise ValueError("\n".join(problems))
    return job
