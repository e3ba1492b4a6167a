"""nccl-tests as a Kubernetes Job without Ray: an Indexed Job whose pod 0 runs mpirun over sshd on the others.

Pure. This module says what such a Job is and what it cannot be; `nccl_job_manifest` writes it down, and the folder
`nccl_job_pod` is what runs in its pods. It is not part of a stack: `pulumi up` must not occupy GPUs. It follows a Job
that has run (saltysoup/gke-h200-dws-example, read 2026-08), with its faults mended: names that resolve, and an exit
code that is mpirun's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from infra.catalog.capacity import promised_s
from infra.fabric import GpuPod
from infra.kubernetes.nccl_images import IMAGES, PROGRAMS, NcclImage
from infra.kubernetes.queue_facts import LOCAL_QUEUE
from infra.kubernetes.ray_manifest import NAMESPACE
from infra.plan import plan
from infra.settings import LocalSettings, Settings

JOB_NAME = "batch.kubernetes.io/job-name"
"""The label that every pod of a Job gets (Kubernetes docs, concepts/workloads/controllers/job; since 1.27)."""

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
"""The label with a pod's index (the same page; since 1.28)."""

MAX_RUN_S = 604_800
"""The longest that queued machines are lent, seven days (GKE docs provisioningrequest, 2026-04-08)."""

HOST_NAME_ROOM = 64
"""The most characters of a host name in Linux; a pod whose full name is longer does not start (Kubernetes docs,
concepts/services-networking/dns-pod-service, setHostnameAsFQDN; read 2026-11)."""

DOMAIN = "svc.cluster.local"
"""The domain that clusters have unless somebody chose another; the pods read theirs from their own host name."""

START_S = 900
"""Seconds that a pod with a node may need before its script runs: 6 min 41 s were seen (the same source's log)."""

FIRST_OP: Mapping[str, str] = {"gke": "all_gather", "eks": "all_reduce"}
"""The operation that most published figures of a cloud's machines are of (`infra.catalog.baselines`)."""

_SIZE = re.compile(r"([1-9]\d*)([KMGT]?)")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What nccl-tests measures: its own options, spelt as it spells them. `split` is world or rails.

    Sizes are bytes with K, M, G (powers of 1024, as nccl-tests reads them). `iterations` are timed, `warmup` are not.
    """

    op: str = "all_gather"
    begin: str = "1K"
    end: str = "8G"
    factor: int = 2
    iterations: int = 100
    warmup: int = 5
    split: Literal["world", "rails"] = "world"


@dataclass(frozen=True, kw_only=True)
class NcclJob:
    """What an NCCL Job is shaped by.

    nodes: pods, one per node. gpus: of a node, and ranks per pod. wait_s: seconds that pods with a node wait for each
    other. run_s: seconds that mpirun may take. nodes_s: seconds that the way to get machines may take. queue: Kueue's
    LocalQueue, None for none; lent: whether the queue gets its machines by a request for so many seconds. net: the
    value of NCCL_NET, which makes a fall-back to sockets an error; None where no name of it is sure.
    """

    name: str
    image: NcclImage
    nodes: int
    gpus: int
    sweep: Sweep
    wait_s: int
    run_s: int
    nodes_s: int
    queue: str | None
    lent: bool
    net: str | None
    pod: GpuPod

    @property
    def labels(self) -> dict[str, str]:
        """What every pod of the Job carries, and no other pod."""
        return {JOB_NAME: self.name}

    @property
    def key_secret(self) -> str:
        """The Secret with the key pair of its sshd; needed where the image has none."""
        return f"{self.name}-ssh"

    @property
    def pod_s(self) -> int:
        """Seconds that a pod may live from the moment that it has a node."""
        return START_S + self.wait_s + self.run_s

    @property
    def first(self) -> str:
        """The selector of pod 0, whose log has the results."""
        return f"{JOB_NAME}={self.name},{JOB_INDEX}=0"

    def problems(self) -> list[str]:
        """What is wrong with it, each with its option, value and fix; empty where nothing is."""
        return [text for text in (self._nodes(), self._name(), self._sizes(), self._loan()) if text]

    def _name(self) -> str:
        if not _LABEL.fullmatch(self.name):
            return f"--name {self.name}: use lower-case letters, digits and dashes, beginning with a letter"
        last = f"{self.name}-{self.nodes - 1}.{self.name}.{NAMESPACE}.{DOMAIN}"
        if len(last) <= HOST_NAME_ROOM:
            return ""
        most = (HOST_NAME_ROOM - len(last)) // 2 + len(self.name)
        return (
            f"--name {self.name}: the last pod's host name would be {last}, {len(last)} characters of at most "
            f"{HOST_NAME_ROOM}; choose a name of at most {most}"
        )

    def _nodes(self) -> str:
        return "" if self.nodes >= 2 else f"--nodes {self.nodes}: a network has two ends; take at least 2"

    def _sizes(self) -> str:
        sweep = self.sweep
        if sweep.op not in PROGRAMS:
            return f"--op {sweep.op}: nccl-tests measures {', '.join(PROGRAMS)}"
        for option, text in (("-b", sweep.begin), ("-e", sweep.end)):
            if not _SIZE.fullmatch(text):
                return f"{option} {text}: write bytes as nccl-tests does, such as 64, 1K, 512M or 8G"
        if size(sweep.begin) > size(sweep.end):
            return f"-b {sweep.begin}: larger than -e {sweep.end}, so nothing would be measured"
        return ""

    def _loan(self) -> str:
        if not self.lent or self.pod_s <= MAX_RUN_S:
            return ""
        return f"--wait and --timeout: {self.pod_s} s in all; queued machines are lent for at most {MAX_RUN_S} s"


def size(text: str) -> int:
    """Bytes of a size as nccl-tests writes it."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not a size such as 1K or 8G")
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ")


def nccl_job(
    settings: Settings,
    sweep: Sweep,
    *,
    nodes: int = 2,
    name: str | None = None,
    queue: str | None = None,
    image: str | None = None,
    wait_s: int = 1800,
    run_s: int = 3600,
) -> NcclJob:
    """The Job of a stack's settings. Raises `ValueError`, with every problem, where it cannot be run there.

    Without a queue it is admitted by the stack's own, where there is one: past Kueue it would take nodes that Kueue
    counts as free, and of queued machines it would get none.
    """
    planned = plan(settings)
    if isinstance(settings, LocalSettings) or planned.machine is None or planned.pod is None:
        raise ValueError("target local: its nodes are processes of this machine; use `rdma-ray bench nccl`")
    queue = queue or (LOCAL_QUEUE if settings.queue == "kueue" else None)
    known = IMAGES[settings.target]
    ways = settings.nodes.capacities
    made = NcclJob(
        name=name or f"nccl-{sweep.op.replace('_', '-')}",
        image=replace(known, image=image) if image else known,
        nodes=nodes,
        gpus=planned.machine.gpus,
        sweep=sweep,
        wait_s=wait_s,
        run_s=run_s,
        nodes_s=promised_s(settings.target, *ways),
        queue=queue,
        lent=queue is not None and "flex-start-queued" in ways,
        # The name of EFA's plugin has changed between releases (aws-ofi-nccl: src/nccl_ofi_interface_nvidia.cpp).
        net="gIB" if planned.fabric.transport == "gib" else None,
        pod=planned.pod,
    )
    problems = made.problems()
    if nodes > settings.nodes.max:
        problems.append(f"--nodes {nodes}: the stack has nodes.max {settings.nodes.max}; raise it, or take fewer")
    if problems:
        raise ValueError("\n".join(problems))
    return made
