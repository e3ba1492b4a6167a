"""One rank: a Ray actor that joins the process group and measures one row after the other."""

from __future__ import annotations

import os
import platform
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, yet not among torch's typed exports
from torch.distributed.distributed_c10d import _abort_process_group

from workloads.interfaces import interface_of
from workloads.nccl.device import pick
from workloads.nccl.evidence.collect import Collected, Collector
from workloads.nccl.loop import Answer, Loop, Measurement
from workloads.nccl.operation import DTYPES, Place
from workloads.nccl.operations import kinds
from workloads.nccl.spec import Fault


class Rank:
    """The actor behind one rank. `abort` and `evidence` run beside a call that hangs (concurrency group `control`)."""

    def __init__(self, use_gpu: bool) -> None:
        self.use_gpu = use_gpu
        self.device = pick(use_gpu)
        self.place = Place(0, 1, 1)
        self.loop = Loop(self.device)
        self.store: TCPStore | None = None
        self.collector = Collector(0, self.device.backend, first=True)

    def describe(self) -> dict[str, Any]:
        """Who and where this process is; `machine` is the same for all containers of one kernel."""
        context = ray.get_runtime_context()
        node_ip: Callable[[], str] = ray.util.get_node_ip_address  # untyped in Ray
        gpus = context.get_accelerator_ids().get("GPU")
        boot_id = Path("/proc/sys/kernel/random/boot_id")
        return {
            "host": socket.gethostname(),
            "machine": boot_id.read_text().strip() if boot_id.exists() else platform.node(),
            "ip": node_ip(),
            "node_id": context.get_node_id(),
            "device": self.device.name,
            "gpu": gpus[0] if gpus else None,
            "pid": os.getpid(),
        }

    def serve(self, address: str, timeout_s: float) -> int:
        """Rank 0 opens the rendezvous on a free port of its node's address, and of no other one; returns the port."""
        listener = socket.create_server((address, 0))
        port = int(listener.getsockname()[1])
        # The store takes the open socket over: between finding a free port and using it nobody can come in between.
        self.store = TCPStore(
            address,
            port,
            is_master=True,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return port

    def join(self, place: Place, address: str, port: int, own_ip: str, timeout_s: float, fault: Fault | None) -> None:
        """Become rank `place.rank` of the process group whose rendezvous is at address:port."""
        self.place, self.loop.fault = place, fault
        interface = interface_of(own_ip)
        if interface is not None:
            # A host name that resolves to 127.0.0.1 would break gloo across nodes; what the image set, stays.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        self.collector = Collector(place.rank, self.device.backend, first=place.rank % place.per_node == 0)
        self.collector.start()
        timeout = timedelta(seconds=timeout_s)
        store = self.store or TCPStore(address, port, is_master=False, timeout=timeout)
        dist.init_process_group(
            self.device.backend,
            store=store,
            rank=place.rank,
            world_size=place.world,
            timeout=timeout,
            device_id=self.device.torch_device if self.use_gpu and _device_id_is_safe() else None,
        )
        dist.barrier()

    def measure(self, row: Measurement) -> Answer:
        """One row on this rank: verify, warm up, time, verify again."""
        self.loop.stage = "before its first call"
        if self.loop.fault is not None and self.loop.fault.kind == "hang":
            threading.Event().wait()
        operation = kinds(row.op, self.place)[row.index](
            self.place, row.size, DTYPES[row.dtype], self.device.torch_device
        )
        return self.loop.measure(operation, row)

    def environment(self) -> dict[str, str]:
        """The variables that steer the communication library, without what sounds like a secret."""
        return self.collector.variables()

    def versions(self) -> dict[str, str | None]:
        nccl_version: Callable[[], tuple[int, ...]] = torch.cuda.nccl.version  # untyped in torch
        nccl = nccl_version() if self.use_gpu else None
        return {
            "ray": ray.__version__,
            "torch": torch.__version__,
            "nccl": ".".join(map(str, nccl)) if nccl else None,
            "cuda": torch.version.cuda if self.use_gpu else None,
            "python": platform.python_version(),
        }

    @ray.method(concurrency_group="control")
    def abort(self) -> str:
        """Tear the communicator down under a call that hangs; where in its row this rank stands.

        gloo has no abort: there the process's end is it.
        """
        if self.device.backend == "nccl" and dist.is_initialized():
            _abort_process_group()
        return self.loop.stage

    @ray.method(concurrency_group="control")
    def evidence(self, with_log: bool) -> Collected:
        """What shows how the data travelled; the text of NCCL's log too, `with_log`."""
        return self.collector.finish(with_log)

    def leave(self) -> None:
        dist.destroy_process_group()


def _device_id_is_safe() -> bool:
    """Between torch 2.6.0 and 2.7.1 binding the group to a device broke collectives (pytorch#153960)."""
    major, minor, patch = (int(part) for part in torch.__version__.split("+")[0].split(".")[:3])
    return (major, minor, patch) <= (2, 6, 0) or (major, minor, patch) >= (2, 7, 1)
