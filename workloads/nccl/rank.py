"""Ray actor of one rank: joins the process group and measures rows."""

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

from workloads.evidence.collect import Collected, Collector
from workloads.hardware.gpu import GpuWatch
from workloads.nccl.answer import RankAnswer, RowRequest
from workloads.nccl.device import Cpu, Cuda, Device
from workloads.nccl.kinds import RankPosition, kind_of
from workloads.nccl.loop import Loop
from workloads.nccl.operations import DTYPES, Operation
from workloads.nccl.options import Fault
from workloads.nccl.result import Member, RowKey
from workloads.rendezvous import connect, open_store, own_address, publish_rank, select_interface

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Rank:
    """One rank, in its actor (`gang.actors`). `abort` and `evidence` are called while another call hangs."""

    def __init__(self, use_gpu: bool) -> None:
        self.use_gpu = use_gpu
        self.device: Device = Cuda() if use_gpu else Cpu()
        self.place = RankPosition(0, 1, 1)
        self.loop = Loop(self.device)
        self.store: TCPStore | None = None
        self.collector = Collector(0, self.device.backend, first=True)

    def describe(self) -> Member:
        """Return this process and its host. The gang sets `rank` and `node`."""
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU")
        return Member(
            rank=0,
            node=0,
            host=socket.gethostname(),
            machine=BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node(),
            ip=own_address(),
            node_id=context.get_node_id(),
            device=self.device.name,
            gpu=gpus[0] if gpus else None,
            pid=os.getpid(),
        )

    def serve(self, address: str, timeout_s: float) -> int:
        """Open the rendezvous of rank 0, and return its port."""
        self.store = open_store(address, timeout_s)
        return int(self.store.port)

    def join(
        self, place: RankPosition, address: str, port: int, own_ip: str, timeout_s: float, fault: Fault | None
    ) -> None:
        """Join the process group as rank `place.rank`, with the rendezvous at address:port."""
        self.loop.fault = fault
        self._collect(place, own_ip)
        bound = self.use_gpu and _device_id_is_safe()
        self.form(place, address, port, timeout_s, self.device.torch_device if bound else None)
        dist.barrier()

    def form(
        self, place: RankPosition, address: str, port: int, timeout_s: float, device_id: torch.device | None = None
    ) -> None:
        """Form a process group, bound to `device_id`. Rank 0 has opened the rendezvous (see `serve`)."""
        self.place = place
        publish_rank(place.rank, place.world, address, port)
        if place.rank:
            self.store = connect(address, port, timeout_s)
        dist.init_process_group(
            self.device.backend,
            store=self.store,
            rank=place.rank,
            world_size=place.world,
            timeout=timedelta(seconds=timeout_s),
            device_id=device_id,
        )

    def measure(self, row: RowRequest) -> RankAnswer:
        """Measure one row on this rank."""
        self.loop.stage = "before its first call"
        if self.loop.fault is not None and self.loop.fault.kind == "hang":
            threading.Event().wait()
        return self.loop.measure(self._operation(row), row)

    def log_choices(self, on: bool) -> bool:
        """Begin or end the log of NCCL's choices on rank 0, the only one that writes them; return whether it worked."""
        return self.place.rank == 0 and self.collector.log_choices(on)

    def run_once(self, row: RowKey) -> None:
        """Run a row's operation, and measure nothing."""
        self.loop.stage = "in an untimed run"
        self._operation(row).run()
        self.device.synchronize()

    def environment(self) -> dict[str, str]:
        """Return the communication library's variables without secrets."""
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

    def abort(self) -> str:
        """Abort the communicator while a call hangs, and return this rank's stage in its row.

        gloo has no abort; it ends with its process.
        """
        if self.device.backend == "nccl" and dist.is_initialized():
            _abort_process_group()
        return self.loop.stage

    def evidence(self, with_log: bool) -> Collected:
        """Return the evidence of how the data traveled; `with_log` includes the text of NCCL's log."""
        return self.collector.finish(with_log)

    def _operation(self, row: RowKey) -> Operation:
        kind, dtype = kind_of(row.op, row.variant), DTYPES[row.dtype]
        return Operation(kind, self.place, row.size, dtype, self.device.torch_device)

    def _collect(self, place: RankPosition, own_ip: str, backend: str | None = None) -> None:
        select_interface(own_ip)
        first = place.rank % place.per_node == 0
        gpus = GpuWatch(_device_properties) if self.use_gpu else None
        self.collector = Collector(place.rank, backend or self.device.backend, first=first, gpus=gpus)
        self.collector.start()


def _device_properties() -> list[Any]:
    return [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]


def _device_id_is_safe() -> bool:
    """Return whether binding the group to a device works; it broke collectives in torch 2.6.1 to 2.7.0 (#153960)."""
    # A TorchVersion compares by PEP 440, which knows 2.9.0a0+git1f2e and 2.8.0rc3 (pytorch: torch/torch_version.py).
    return torch.__version__ < "2.6.1" or torch.__version__ >= "2.7.1"
