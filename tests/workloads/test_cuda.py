"""The NCCL path on one GPU: world size 1, CUDA events against the wall clock, CUDA graphs. Skipped without a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

from workloads.nccl.device import Cuda
from workloads.nccl.loop import Loop, Measurement
from workloads.nccl.operations import COLLECTIVES, DTYPES, Operation, Place
from workloads.nccl.options import Fault
from workloads.nccl.presets import Mode
from workloads.nccl.units import REDUCTIONS

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
    pytest.mark.usefixtures("alone"),
]

# torch refuses to send to oneself, which a ring of one rank would do.
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SIZE = 64 * 2**20


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """Create a process group of this process only."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    Cuda()
    dist.init_process_group("nccl", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def row(op: str, dtype: str, mode: Mode, iterations: int, warmup: int) -> Measurement:
    runs = {"iterations": iterations, "warmup": warmup, "check": 1}
    return Measurement(op=op, variant=None, mode=mode, dtype=dtype, size=SIZE, **runs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("mode", ["throughput", "latency", "graph"])
def test_one_gpu_measures_and_every_element_is_right(op: str, mode: Mode) -> None:
    loop = Loop(Cuda())
    for name, dtype in DTYPES.items():
        if name == "uint8" and op in REDUCTIONS:
            continue
        operation = Operation(COLLECTIVES[op], Place(0, 1, 1), SIZE, dtype, loop.device.torch_device)
        answer = loop.measure(operation, row(op, name, mode, 20, 5))
        assert answer.wrong == 0
        assert min(answer.timing.per_iteration) > 0
        # Only the wall clock includes the launch, so it is never much shorter.
        assert answer.timing.total <= answer.timing.wall * 1.05


def test_a_flipped_bit_on_the_gpu_is_detected() -> None:
    loop = Loop(Cuda(), fault=Fault("corrupt", 0))
    for op in OPS:
        operation = Operation(COLLECTIVES[op], Place(0, 1, 1), SIZE, torch.float32, loop.device.torch_device)
        assert loop.measure(operation, row(op, "fp32", "graph", 3, 1)).wrong == 3
