"""Checks of the Ray nodes from inside, by their probes: image, memory limits, DNS, drivers, clocks, NICs, GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from workloads.doctor.check import Problem, check
from workloads.doctor.node_facts import NodeFacts
from workloads.doctor.state import State
from workloads.hardware.gpu import THROTTLING
from workloads.slurm.facts import MEMLOCK as SLURM_MEMLOCK

SHM_BYTES = 2**30
"""Minimum of /dev/shm: NCCL, torch's data loader and Ray's object store share it. A container's default is 64 MiB."""
MEMLOCK_BYTES = 2**34
"""Minimum limit of locked memory: NICs register buffers of gigabytes. A container's default is 8 MiB."""
SKEW_S = 2.0
"""Seconds of clock difference that credentials and logs tolerate."""
CAPPED = ("ApplicationsClocksSetting", *THROTTLING)
"""Reasons that keep an idle GPU's clocks down: a setting, or a fault of cooling or power (NVML)."""
POWER_SHARE = 0.95  # of the fleet's largest power limit


def workers(state: State) -> list[NodeFacts]:
    """Return the probes of the nodes on which ranks run: all but the head, which on Slurm is a worker as well."""
    if state.outputs.target == "slurm":
        return state.probes
    heads = {node["node_ip"] for node in state.ray.get("nodes") or [] if node.get("is_head_node")}
    return [probe for probe in state.probes if probe.ip not in heads]


def on_fabric(state: State) -> list[NodeFacts]:
    """Return the workers, if the stack has RDMA."""
    return [] if state.outputs.fabric.rdma is None else workers(state)


def named(probe: NodeFacts) -> str:
    """Return the node of a probe as findings name it."""
    return f"Ray node {probe.ip} ({probe.host})"


def _different(probes: list[NodeFacts], read: Callable[[NodeFacts], str | None]) -> str:
    """Return each value with its nodes, if there are several values; otherwise an empty text."""
    hosts: dict[str, list[str]] = {}
    for probe in probes:
        if (value := read(probe)) is not None:
            hosts.setdefault(value, []).append(probe.ip)
    texts = [f"{value} on {', '.join(ips[:4])}{' …' if len(ips) > 4 else ''}" for value, ips in sorted(hosts.items())]
    return "; ".join(texts) if len(texts) > 1 else ""


@check(
    "probe", "ray nodes", cure="rdma-ray status shows the node; kubectl -n ray logs POD, or its raylet's log, shows why"
)
def probe(state: State) -> Iterator[Problem]:
    """A live Ray node does not run a task."""
    for part, reason in state.unknown.items():
        if part.startswith("probe of "):
            yield Problem(f"Ray node {part.removeprefix('probe of ')}", "it does not run a task", reason)


@check(
    "image",
    "probes",
    cure="use an image with the libraries that NCCL needs: `rdma-ray image build`, images/ray-efa, docs/gke.md",
)
def image(state: State) -> Iterator[Problem]:
    """The image lacks torch, NCCL's network plugin, or a library that the plugin loads."""
    transport = state.outputs.fabric.row
    for probe in workers(state):
        lacks = [] if probe.versions.get("torch") else ["torch"]
        if transport.rdma:
            lacks += [] if probe.versions.get("nccl") else ["NCCL"]
        if transport.plugin is not None:
            lacks += [] if probe.plugin else ["NCCL's network plugin"]
        lacks += [name for name in transport.libraries if not probe.libraries.get(name)]
        if lacks:
            yield Problem(
                named(probe), f"the image lacks {', '.join(lacks)}", f"not in its process: {', '.join(lacks)}"
            )


@check("packages", "probes", cure="use one image for all nodes: pin ray.image by its digest, then make up")
def packages(state: State) -> Iterator[Problem]:
    """The nodes have different versions of Ray, Python, torch or NCCL."""
    for name in ("ray", "python", "torch", "nccl"):
        if text := _different(state.probes, lambda probe, name=name: probe.versions.get(name)):  # type: ignore[misc]
            yield Problem("Ray nodes", f"they have different versions of {name}", text)


@check("plugin", "probes", cure="delete the node with the different build: a new node gets the current one")
def plugin(state: State) -> Iterator[Problem]:
    """The nodes have different builds of NCCL's network plugin."""
    if text := _different(on_fabric(state), lambda probe: probe.plugin):
        yield Problem("Ray nodes", "they have different builds of NCCL's network plugin", text)


@check(
    "gib-nccl",
    "probes",
    cure="use an image with NCCL 2.28 or newer (`rdma-ray image build`), or gIB 1.1.2 or newer,"
    " which supports older ones (infra/catalog/pins.py, then make up)",
)
def gib_nccl(state: State) -> Iterator[Problem]:
    """NCCL is older than the installed gIB supports: it may not load the plugin, and uses sockets."""
    row, installed = state.outputs.fabric.row, _installed(state)
    if not row.plugin or (row.any_nccl and installed >= row.any_nccl):
        return
    name = f"{row.plugin} {_dotted(installed)}".strip()
    cure = None if installed else f"use an image with NCCL {_dotted(row.min_nccl)} or newer (`rdma-ray image build`)"
    for probe in on_fabric(state):
        nccl = probe.versions.get("nccl")
        if nccl and _numbers(nccl)[: len(row.min_nccl)] < row.min_nccl:
            yield Problem(named(probe), f"NCCL is older than {name} supports", f"NCCL {nccl}, {name}", cure)


def _installed(state: State) -> tuple[int, ...]:
    """Return the plugin's version of the installer's pods, or the pinned one; empty where pods' image brings it."""
    row = state.outputs.fabric.row
    if row.installer is None or row.version is None:
        return ()
    images = [
        str(each.get("image"))
        for pod in state.objects("system pods")
        for each in pod["spec"].get("initContainers") or []
        if row.installer in str(each.get("image"))
    ]
    tags = [image.partition("@")[0].rpartition(":")[2] for image in images] or [row.version]
    return min(_numbers(tag) for tag in tags)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d{1,6}", version)[:3])


@check(
    "lustre",
    "probes",
    cure="grep -i -A5 lustre /var/log/cloud-init-output.log on the node names the step that failed (docs/eks.md); when"
    " its job has ended, delete the node, and the pool replaces it",
)
def lustre(state: State) -> Iterator[Problem]:
    """The stack's folder is to be reached over EFA, and a node's Lustre client uses TCP.

    The client falls back if it was not configured for EFA (aws/aws-parallelcluster-cookbook#3251, #3262). That its
    driver is loaded does not show that it is used: nothing that a pod can read shows that.
    """
    storage = state.outputs.storage
    for probe in on_fabric(state) if storage is not None and storage.efa else []:
        if probe.lustre is not None and "kefalnd" not in probe.lustre:
            text = f"kernel modules of LNet: {', '.join(probe.lustre) or 'none'}, and not kefalnd"
            yield Problem(named(probe), "its Lustre client uses TCP instead of EFA", text)


@check("shm", "probes", cure="mount an emptyDir of medium Memory at /dev/shm, as the stack's pods do: make up")
def shm(state: State) -> Iterator[Problem]:
    """/dev/shm is too small for NCCL, data loaders and Ray's objects."""
    for probe in on_fabric(state):
        if probe.shm is not None and probe.shm < SHM_BYTES:
            yield Problem(
                named(probe),
                "/dev/shm is too small",
                f"{probe.shm / 2**20:.0f} MiB; needed: {SHM_BYTES / 2**20:.0f} MiB",
            )


@check(
    "memlock",
    "probes",
    cure="gke: the capability IPC_LOCK as root; eks: RLIMIT_MEMLOCK in NodeConfig; make up sets both, for new nodes."
    f" Slurm: {SLURM_MEMLOCK}",
)
def memlock(state: State) -> Iterator[Problem]:
    """The limit of locked memory is too low for RDMA: NCCL fails to register its buffers."""
    for probe in on_fabric(state):
        if 0 <= probe.memlock < MEMLOCK_BYTES and not probe.ipc_lock:
            text = f"RLIMIT_MEMLOCK {probe.memlock / 2**20:.0f} MiB, and no CAP_IPC_LOCK"
            yield Problem(named(probe), "the limit of locked memory is too low", text)


@check("dns", "probes", cure="kubectl -n kube-system get pods -l k8s-app=kube-dns; can the node reach them?")
def dns(state: State) -> Iterator[Problem]:
    """A node does not resolve the name of the head's Service."""
    for probe in state.probes:
        if probe.head_error is not None:
            yield Problem(named(probe), "it does not resolve the head's name", f"{probe.head}: {probe.head_error}")


@check(
    "drivers",
    "probes",
    cure="delete the older nodes, or set one node version: every node of a job needs the same driver",
)
def drivers(state: State) -> Iterator[Problem]:
    """The nodes have different GPU drivers, or different firmware on their NICs."""
    if text := _different(workers(state), lambda probe: probe.driver):
        yield Problem("Ray nodes", "they have different GPU drivers", text)

    def firmware(probe: NodeFacts) -> str | None:
        return ", ".join(sorted({nic.firmware for nic in probe.nics if nic.firmware})) or None

    if text := _different(workers(state), firmware):
        yield Problem("Ray nodes", "their NICs have different firmware", text, severity="warning")


@check(
    "nic-ports",
    "probes",
    cure="rdma link on the node; bench hunt finds a slow one; delete the node, and the pool replaces it",
)
def nic_ports(state: State) -> Iterator[Problem]:
    """A pod has fewer RDMA NICs than its machine, or a port is down or slower than its line rate."""
    fabric = state.outputs.fabric
    for probe in on_fabric(state):
        used = () if fabric.row.spare_ports else probe.nics
        down = [f"{nic.name} is {nic.state}" for nic in used if nic.state not in (None, "ACTIVE")]
        slow = [
            f"{nic.name}: {nic.rate}"
            for nic in probe.nics
            if fabric.row.port_rate and _below(nic.rate, fabric.gbps_per_nic)
        ]
        if fabric.nics is not None and len(probe.nics) < fabric.nics:
            text = f"/sys/class/infiniband: {', '.join(nic.name for nic in probe.nics) or 'empty'}"
            yield Problem(named(probe), f"{len(probe.nics)} of {fabric.nics} RDMA NICs in the pod", text)
        elif down:
            yield Problem(named(probe), "a port of an RDMA NIC is down", ", ".join(down))
        elif slow:
            yield Problem(named(probe), f"a port runs below {fabric.gbps_per_nic} Gbit/s", ", ".join(slow))


def _below(rate: str | None, gbps: int | None) -> bool:
    """Return whether a rate as the kernel writes it, `400 Gb/sec (4X NDR)`, is below the line rate."""
    parsed = re.match(r"([\d.]{1,8}) Gb/sec", rate or "")
    return parsed is not None and gbps is not None and float(parsed[1]) < gbps


@check(
    "gpu-memory",
    "probes",
    cure="drain the node and reset the GPU, or replace the node; a failed remapping needs a new GPU",
)
def gpu_memory(state: State) -> Iterator[Problem]:
    """A GPU counted uncorrected memory errors, or a remapping of its memory waits or has failed."""
    for probe in state.probes:
        for gpu in probe.gpus:
            _, _, waits, failed = gpu.remapped or (0, 0, 0, 0)
            if gpu.ecc_uncorrected:
                text = f"GPU {gpu.uuid}: {gpu.ecc_uncorrected} since the driver was loaded"
                yield Problem(named(probe), "a GPU has uncorrected memory errors", text)
            elif waits or failed:
                state_of = "has failed" if failed else "waits for a reset"
                yield Problem(named(probe), f"a remapping of a GPU's memory {state_of}", f"GPU {gpu.uuid}")


@check(
    "gpu-clocks",
    "probes",
    cure="nvidia-smi -q -d PERFORMANCE,CLOCK,POWER on the node; nvidia-smi -rgc and -rac undo settings",
)
def gpu_clocks(state: State) -> Iterator[Problem]:
    """A GPU's clocks or power are capped by a setting, heat or power supply."""
    gpus = [(probe, gpu) for probe in state.probes for gpu in probe.gpus]
    most_mhz = max((gpu.sm_max_mhz or 0 for _, gpu in gpus), default=0)
    most_w = max((gpu.power_limit_w or 0 for _, gpu in gpus), default=0)
    for probe in state.probes:
        throttled = []
        for gpu in probe.gpus:
            reasons = [reason for reason in gpu.reasons or [] if reason in CAPPED]
            throttled += [f"GPU {gpu.uuid}: {', '.join(reasons)}"] if reasons else []
            if gpu.power_limit_w is not None and gpu.power_limit_w < POWER_SHARE * most_w:
                throttled.append(f"GPU {gpu.uuid}: power limit {gpu.power_limit_w:.0f} W, others {most_w:.0f} W")
            if gpu.sm_max_mhz is not None and gpu.sm_max_mhz < most_mhz:
                throttled.append(f"GPU {gpu.uuid}: at most {gpu.sm_max_mhz} MHz, others {most_mhz} MHz")
        if throttled:
            more = f"; and {len(throttled) - 3} more" if len(throttled) > 3 else ""
            yield Problem(named(probe), "its GPUs are slowed down", "; ".join(throttled[:3]) + more, severity="warning")


@check("clock-skew", "probes", cure="chronyc tracking on the node: does it reach its time server?")
def clock_skew(state: State) -> Iterator[Problem]:
    """A node's clock differs from the head's by seconds.

    The task started after the head sent it and ended before the head had its answer. A clock that says otherwise is
    wrong by at least that much.
    """
    for probe in state.probes:
        ahead, behind = probe.ended - probe.answered, probe.sent - probe.started
        if max(ahead, behind) > SKEW_S:
            text = f"at least {max(ahead, behind):.1f} s {'ahead of' if ahead > behind else 'behind'} the head's"
            yield Problem(named(probe), "its clock is wrong", text, severity="warning")
