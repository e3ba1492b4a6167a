"""Resources of this job on this node, and those of the node: CPUs, GPUs, memory, address, ports, NICs."""

from __future__ import annotations

import errno
import os
import random
import resource
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

PORTS = range(20_000, 32_000)  # below Linux's ephemeral ports, from which Ray's own connections take theirs
NICS = Path("/sys/class/infiniband")
TEMPORARY = Path("/tmp")  # not TMPDIR: Ray's sockets are below, and the path of a socket has 107 bytes
TASK = {f"SLURM_{name}" for name in ("PROCID", "LOCALID", "NTASKS", "NPROCS", "NTASKS_PER_NODE", "TASKS_PER_NODE")}
"""Variables of srun's task, of which there is one per node. A library that finds them treats a rank as a task, such as
Lightning with SLURM_NTASKS (lightning: fabric/plugins/environments/slurm.py, read 2026-11)."""
MEMLOCK = "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, and LimitMEMLOCK=infinity for slurmd"
"""Settings that lift the limit of locked memory on the nodes."""
MIB = 2**20
STORE = 0.3  # share of the memory that is Ray's object store; its default (ray_constants.py, 2.60)
SMALLEST_STORE = 100 * MIB


def resources(slurm: Mapping[str, str]) -> list[str]:
    """Return the arguments of `ray start` for this node's part of the allocation. By default Ray takes the machine."""
    cpus, gpus = cpus_of(slurm), gpus_of(slurm)
    arguments = [f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    # 0 is the whole node. In MiB (sbatch(1), "output environment variables").
    per_node = int(slurm.get("SLURM_MEM_PER_NODE") or int(slurm.get("SLURM_MEM_PER_CPU") or 0) * cpus)
    if per_node:
        store = max(SMALLEST_STORE, int(per_node * MIB * STORE))
        arguments += [f"--object-store-memory={store}", f"--memory={max(per_node * MIB - store, MIB)}"]
    return arguments


def cpus_of(slurm: Mapping[str, str]) -> int:
    """Return the CPUs of the step on this node."""
    return int(slurm.get("SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0)))


def gpus_of(slurm: Mapping[str, str]) -> int:
    """Return the GPUs of the step on this node: those that Slurm made visible. Without GRES there are none."""
    visible = slurm.get("CUDA_VISIBLE_DEVICES", "")
    if visible and visible != "NoDevFiles":
        return len(visible.split(","))
    return int(slurm.get("SLURM_GPUS_ON_NODE") or 0)


def environment(inherited: Mapping[str, str], folder: Path, place: Path) -> dict[str, str]:
    """Return the variables of Ray and everything below: the user's, without those that would change the cluster."""
    prefixes = ("RAY_", "PULUMI_", "RDMA_RAY_")
    kept = {name: value for name, value in inherited.items() if not name.startswith(prefixes) and name not in TASK}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    if kept.get("TMPDIR", "/tmp").rstrip("/") in ("", "/tmp"):
        # What killed processes leave there goes with this node. A site's own folder is the site's to clean.
        kept["TMPDIR"] = str(place / "tmp")
    return kept | {
        "PATH": path,  # jobs of the cluster run `python`
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),  # a value in the environment is visible to other users' `ps`
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",  # it takes a line about sockets for a repeated one about the RDMA plugin
        "RAY_TMPDIR": str(place / "ray"),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # all nodes end together
        "PYTHONUNBUFFERED": "1",
        **fabric_environment(),
    }


def fabric_environment(nics: Path = NICS) -> dict[str, str]:
    """Return the variables that the node's RDMA NICs need. NCCL finds InfiniBand and RoCE NICs without any.

    EFA: "set when the application forks", as Ray and torch's loaders do, or memory registration fails with ENOMEM
    (libfabric: prov/efa, fi_efa(7); infra/catalog/fabrics.py has the same).
    """
    return {"FI_EFA_USE_HUGE_PAGE": "0"} if "efa" in drivers(nics) else {}


def drivers(nics: Path = NICS) -> set[str]:
    """Return the kernel drivers of the RDMA NICs, such as `efa` and `mlx5_core`."""
    return {path.resolve().name for path in nics.glob("*/device/driver")}


def warnings(slurm: Mapping[str, str], nics: Path = NICS, temporary: Path = TEMPORARY) -> list[str]:
    """Return the problems with this node's GPUs, RDMA and /tmp, each with its fix."""
    lines = []
    if (gpus := gpus_of(slurm)) and not slurm.get("CUDA_VISIBLE_DEVICES"):
        # Slurm only counts them (gres.conf(5), File).
        fix = "set AutoDetect=nvml, or File=/dev/nvidia[0-7], in gres.conf"
        lines.append(f"Slurm assigns {gpus} GPUs without naming them, so another job may use the same ones: {fix}")
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if drivers(nics) and locked != resource.RLIM_INFINITY:
        lines.append(f"locked memory is limited to {locked // 1024} KiB, so RDMA fails: set {MEMLOCK}")
    mode = temporary.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        lines.append(
            f"{temporary} has no sticky bit, so other users can replace this job's files: chmod 1777 {temporary}"
        )
    return lines


def free_port(address: str = "") -> int:
    """Return a TCP port on which nothing listens, chosen at random among thousands."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free TCP port between {PORTS.start} and {PORTS.stop} on this node")


def listen(address: str) -> socket.socket:
    """Return a socket that listens on a free port. Another process may take one that was free a moment ago."""
    while True:
        try:
            return socket.create_server((address, free_port(address)), backlog=socket.SOMAXCONN)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def resolve(host: str) -> str:
    """Return the IPv4 address by which other nodes reach a host. Raises OSError for a name that has none."""
    addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)]
    outside = [address for address in addresses if not address.startswith("127.")]
    if outside:
        return outside[0]
    # Debian's /etc/hosts has 127.0.1.1 for a machine's own name: the address of its way out, to which nothing is sent.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        way_out.connect(("192.0.2.1", 9))
        return str(way_out.getsockname()[0])
