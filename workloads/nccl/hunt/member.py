"""One rank of a hunt: a Ray actor that joins a process group per test, measures, and leaves it again."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, yet not among torch's typed exports

from workloads.interfaces import interface_of
from workloads.nccl.collectives import AllGather, Place
from workloads.nccl.rank import Rank

INFINIBAND = Path("/sys/class/infiniband")
SLOW_S = 0.2  # what an injected slow fault adds to each run
BURN_GPU, BURN_CPU = 8192, 256  # side of the square matrices
BURN_S = {True: 2.0, False: 0.1}  # seconds that a sample of the burn takes at least, on a GPU or a CPU


@dataclass(frozen=True)
class Order:
    """One test for one rank. `fault` is the kind of a planted fault that this rank has."""

    place: Place
    address: str
    port: int
    own_ip: str
    timeout_s: float
    size: int
    iterations: int
    samples: int
    fault: str | None


@dataclass(frozen=True)
class Report:
    """What one rank measured: seconds per run of each sample (FLOP per second of a burn), elements received wrong."""

    samples: list[float]
    wrong: int


class Member(Rank):
    """The actor. Its groups come one after the other; a rank whose group broke is killed and started anew."""

    def nics(self) -> list[str]:
        """Return the names of the RDMA devices of this rank's node."""
        return sorted(entry.name for entry in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []

    def take_part(self, order: Order) -> Report:
        """One test: join, measure and verify, leave."""
        self.loop.stage = "before its first call"
        if order.fault == "hang-node":
            threading.Event().wait()
        self._form(order)
        try:
            return self._measure(order)
        finally:
            self.loop.stage = "leaving the group"
            self.leave()

    def burn(self, samples: int, fault: str | None) -> Report:
        """Matrix products on this device alone: bf16 on a GPU, fp32 on a CPU."""
        side = BURN_GPU if self.use_gpu else BURN_CPU
        dtype = torch.bfloat16 if self.use_gpu else torch.float32
        left = torch.ones(side, side, dtype=dtype, device=self.device.torch_device)
        product = left @ left  # the first one is not timed: it loads what it needs
        self.device.synchronize()
        rates = []
        for _ in range(samples):
            runs, began = 0, time.perf_counter()
            while time.perf_counter() - began < BURN_S[self.use_gpu]:
                if fault == "slow-burn":
                    time.sleep(SLOW_S)
                torch.matmul(left, left, out=product)
                self.device.synchronize()
                runs += 1
            rates.append(2 * side**3 * runs / (time.perf_counter() - began))
        # Every element of a product of ones is the side, which both types hold exactly.
        return Report(rates, int((product != side).sum().item()))

    def _form(self, order: Order) -> None:
        self.loop.stage = "forming the group"
        self.place = order.place
        if (interface := interface_of(order.own_ip)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        timeout = timedelta(seconds=order.timeout_s)
        if order.place.rank:
            self.store = TCPStore(order.address, order.port, is_master=False, timeout=timeout)
        dist.init_process_group(
            self.device.backend,
            store=self.store,
            rank=order.place.rank,
            world_size=order.place.world,
            timeout=timeout,
        )

    def _measure(self, order: Order) -> Report:
        operation = AllGather(order.place, order.size, torch.float32, self.device.torch_device)

        def run() -> None:
            if order.fault in ("slow-node", "slow-rail"):
                time.sleep(SLOW_S)
            operation.run()

        self.loop.stage = "in the verification"
        operation.fill(1)
        operation.run()  # the warm-up as well: NCCL builds its channels here
        self.device.synchronize()
        if order.fault == "corrupt-node":
            operation.received[0] = -1  # the pattern holds no negative number
        wrong = operation.wrong()
        self.loop.stage = "in the timed runs"
        samples = []
        for salt in range(order.samples):
            operation.prepare(salt + 2)
            self.device.synchronize()
            dist.barrier()
            # The median of the runs: one that the operating system disturbed says nothing about the network.
            samples.append(median(self.device.time(run, order.iterations).per_iteration))
        return Report(samples, wrong + operation.left_wrong())
