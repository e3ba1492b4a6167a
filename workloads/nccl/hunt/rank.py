"""A rank of a hunt: it forms a process group for each test, measures and verifies in it, or computes alone."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from workloads.hardware.gpu import address
from workloads.hardware.nic import nearest
from workloads.nccl.gang import EXTRA_PATIENCE_S
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Report
from workloads.nccl.kinds import COLLECTIVES, RankPosition
from workloads.nccl.operations import Operation
from workloads.nccl.rank import Rank

BURN_GPU, BURN_CPU = 8192, 256  # side of the square matrices
BURN_S = {True: 2.0, False: 0.1}  # minimum seconds of a burn's sample, on a GPU or a CPU


class HuntRank(Rank):
    """Actor of one rank. It forms one group after another; a rank whose group broke is killed and replaced."""

    def nics(self) -> list[str]:
        """Return the RDMA devices with the shortest PCI path to this rank's GPU; empty if the path identifies none."""
        gpu = pci_address(torch.cuda.get_device_properties(0)) if self.use_gpu else None
        return nearest(gpu) if gpu else []

    def watch(self, place: RankPosition, own_ip: str) -> None:
        """Start collecting this process's evidence: NCCL reads its settings once, before its first communicator."""
        self._collect(place, own_ip)

    def take_part(self, options: HuntOptions, samples: int, place: RankPosition, address: str, port: int) -> Report:
        """Run one test: join its group at address:port, measure and verify, leave."""
        self.loop.stage = "forming its group"
        # Longer than the driver waits: the driver names the silent ranks, while NCCL's watchdog would end this process.
        self.form(place, address, port, options.timeout_s + EXTRA_PATIENCE_S)
        try:
            return self._measure(options, samples)
        finally:
            dist.destroy_process_group()

    def burn(self, samples: int) -> Report:
        """Multiply random matrices on this device alone, bf16 on a GPU and fp32 on a CPU, and compare every product.

        Random data draws the power of real work; equal values do not, and throttling would not show (Horace He,
        "Strangely, matrix multiplications on GPUs run faster when given predictable data", 2024). The products must
        be equal bit for bit: a cuBLAS routine gives the same bits in every run on one device with one stream (cuBLAS
        manual, "Results Reproducibility", read 2026-11). A device that is wrong in the same way each time passes.
        """
        side = BURN_GPU if self.use_gpu else BURN_CPU
        dtype, bits = (torch.bfloat16, torch.int16) if self.use_gpu else (torch.float32, torch.int32)
        device = self.device.torch_device
        random = torch.Generator(device).manual_seed(0)
        left, right = (torch.randn(side, side, dtype=dtype, device=device, generator=random) for _ in range(2))
        product = torch.empty_like(left)
        torch.matmul(left, right, out=product)  # not timed: it loads the library
        expected = product.clone()
        self.device.synchronize()
        rates, wrong = [], 0
        for _ in range(samples):
            runs, seconds = 0, 0.0
            while seconds < BURN_S[self.use_gpu]:
                began = time.perf_counter()
                torch.matmul(left, right, out=product)
                self.device.synchronize()
                seconds += time.perf_counter() - began
                runs += 1
                wrong += int((product.view(bits) != expected.view(bits)).sum().item())
            rates.append(2 * side**3 * runs / seconds)
        return Report(rates, wrong)

    def _measure(self, options: HuntOptions, count: int) -> Report:
        gather, device = COLLECTIVES["all_gather"], self.device.torch_device
        operation = Operation(gather, self.place, options.bytes, torch.float32, device)
        self.loop.stage = "in the first all_gather"
        operation.fill(1)
        operation.run()  # also the warm-up: NCCL builds its channels here
        self.device.synchronize()
        wrong = operation.wrong()
        samples = []
        for salt in range(count):
            self.loop.stage = f"in sample {salt + 1} of {count}"
            operation.fill(salt + 2)
            self.device.synchronize()
            dist.barrier()
            # The median ignores runs that the operating system delayed.
            samples.append(median(self.device.time(operation.run, options.iterations or 1).per_iteration))
        return Report(samples, wrong + operation.wrong())


def pci_address(gpu: Any) -> str | None:
    """Return a GPU's address in /sys/bus/pci/devices; None for an older torch, whose properties lack it."""
    return address(gpu, domain=4) if hasattr(gpu, "pci_bus_id") else None
