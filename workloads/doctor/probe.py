"""Probe of every Ray node, as a Ray job: one task without CPUs or GPUs per node, which reads and changes nothing.

python -m workloads.doctor.probe [LIBRARY …]
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes.util import find_library
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workloads.doctor.node_facts import KIND, NodeFacts, ProbedGpu
from workloads.exits import last_line
from workloads.gang.actors import answers
from workloads.gang.placement import usable_nodes
from workloads.hardware import nic
from workloads.hardware.gpu import GpuWatch
from workloads.results.events import emit

ANSWER_S = 90
"""Seconds that a node has to start a process and to answer: a new one unpacks the job's files and imports Ray."""

PLUGIN = "libnccl-net*.so"
"""Network plugins of NCCL: gIB's is libnccl-net.so, aws-ofi-nccl's libnccl-net-ofi.so (public logs, read 2026-11)."""
LUSTRE_DRIVERS = ("ksocklnd", "kefalnd")
"""Kernel modules by which Lustre's client sends: over TCP, and over EFA (FSx docs, configure-efa-clients)."""
IPC_LOCK = 14
"""Bit of CAP_IPC_LOCK (Linux: include/uapi/linux/capability.h), with which no limit of locked memory applies."""
HEAD_NAME = "FQ_RAY_IP"
"""Variable with the name of the head's Service in pods of KubeRay (ray-operator/controllers/ray/utils/constant.go)."""


def probe(node_id: str, ip: str, libraries: Sequence[str]) -> dict[str, Any]:
    """Return this node's facts as JSON; `libraries` are those to look for."""
    started = time.time()
    watch = GpuWatch(tuple)
    readings = watch.read_all()
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    head, head_error = head_name()
    return NodeFacts(
        node_id=node_id,
        ip=ip,
        host=socket.gethostname(),
        started=started,
        versions={
            "ray": package("ray"),
            "python": platform.python_version(),
            "torch": package("torch"),
            "nccl": nccl(),
        },
        libraries={name: loads(name) for name in libraries},
        plugin=plugin(os.environ.get("LD_LIBRARY_PATH", "")),
        shm=_read(lambda: shutil.disk_usage("/dev/shm").total),
        memlock=-1 if soft == resource.RLIM_INFINITY else soft,
        ipc_lock=has_capability(IPC_LOCK),
        lustre=lustre_drivers(),
        head=head,
        head_error=head_error,
        driver=nic.driver(),
        nics=nic.nics(),
        gpus=[ProbedGpu(uuid=uuid, **reading.model_dump()) for uuid, reading in readings.items()],
        missing=watch.missing,
        ended=time.time(),
    ).model_dump()


def package(name: str) -> str | None:
    """Return the version of an installed package, without importing it: torch takes seconds."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def nccl() -> str | None:
    """Return the version of NCCL: that of the package that torch installs, or of the library on the node."""
    for major in (13, 12):
        if found := package(f"nvidia-nccl-cu{major}"):
            return found
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    # 2.30.7 is 23007 (nccl: src/nccl.h.in, NCCL_VERSION, from 2.9 on).
    return f"{number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}"


def loads(library: str) -> bool:
    """Return whether the loader finds a library and all that it needs."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def plugin(path: str) -> str | None:
    """Return the first NCCL plugin in a library path, as `NAME 3f9a1c0b22d4`, otherwise that of the loader's cache."""
    for file in (file for folder in filter(None, path.split(":")) for file in sorted(Path(folder).glob(PLUGIN))):
        with suppress(OSError):
            return f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    return find_library("nccl-net-ofi") or find_library("nccl-net")


def head_name() -> tuple[str | None, str | None]:
    """Return the name of the head's Service, and why it does not resolve; None where the head has no name."""
    name = os.environ.get(HEAD_NAME)
    if not name:
        return None, None
    try:
        socket.getaddrinfo(urlsplit(f"//{name}").hostname, None)
    except OSError as error:
        return name, str(error)
    return name, None


def has_capability(bit: int, status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process has a capability."""
    lines = _read(lambda: status.read_text(encoding="utf-8").splitlines()) or []
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> bit & 1)


def lustre_drivers(proc: Path = Path("/proc")) -> list[str] | None:
    """Return which of LUSTRE_DRIVERS the kernel has loaded; None without a Lustre file system among the mounts."""
    mounts, modules = (
        [line.split() for line in _read(lambda file=file: (proc / file).read_text("utf-8").splitlines()) or []]  # type: ignore[misc]
        for file in ("self/mounts", "modules")
    )
    if not any(len(mount) > 2 and mount[2] == "lustre" for mount in mounts):
        return None
    loaded = {module[0] for module in modules if module}
    return [each for each in LUSTRE_DRIVERS if each in loaded]


def _read(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError:
        return None


def main() -> int:
    """Probe every live node but those with other GPUs, and emit an event for each: its Probe, or why there is none."""
    ray.init(log_to_driver=False)
    remote: Any = ray.remote(num_cpus=0, max_retries=0)(probe)
    alive = usable_nodes()
    calls: dict[Any, tuple[str, str, float]] = {}
    for node_id, ip in ((each["NodeID"], each["NodeManagerAddress"]) for each in alive):
        here = NodeAffinitySchedulingStrategy(node_id, soft=False)
        calls[remote.options(scheduling_strategy=here).remote(node_id, ip, sys.argv[1:])] = node_id, ip, time.time()
    silent = {node_id: ip for node_id, ip, _ in calls.values()}
    for (node_id, ip, sent), answer in answers(calls, ANSWER_S):
        del silent[node_id]
        if isinstance(answer, RayError):
            emit(KIND, ip=ip, error=last_line(answer))
        else:
            emit(KIND, probe=answer | {"sent": sent, "answered": time.time()})
    for ip in silent.values():
        emit(KIND, ip=ip, error=f"no answer within {ANSWER_S} s")
    emit("result", result={"nodes": len(alive)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
