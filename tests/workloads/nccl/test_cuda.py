"""The NCCL path on one GPU: world size 1, CUDA events against the wall clock, CUDA graphs, the log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

from workloads.evidence.facts import RankEvidence
from workloads.nccl.answer import RowRequest
from workloads.nccl.device import Cuda
from workloads.nccl.kinds import COLLECTIVES, RankPosition
from workloads.nccl.loop import Loop
from workloads.nccl.operations import DTYPES, Operation
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


def row(op: str, dtype: str, mode: Mode, iterations: int, warmup: int) -> RowRequest:
    runs = {"iterations": iterations, "warmup": warmup, "check": 1}
    return RowRequest(op=op, variant=None, mode=mode, dtype=dtype, size=SIZE, **runs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("mode", ["throughput", "latency", "graph"])
def test_one_gpu_measures_and_every_element_is_right(op: str, mode: Mode) -> None:
    loop = Loop(Cuda())
    for name, dtype in DTYPES.items():
        if name == "uint8" and op in REDUCTIONS:
            continue
        operation = Operation(COLLECTIVES[op], RankPosition(0, 1, 1), SIZE, dtype, loop.device.torch_device)
        answer = loop.measure(operation, row(op, name, mode, 20, 5))
        assert answer.wrong == 0
        assert min(answer.timing.per_iteration) > 0
        # Only the wall clock includes the launch, so it is never much shorter.
        assert answer.timing.total <= answer.timing.wall * 1.05


def test_a_flipped_bit_on_the_gpu_is_detected() -> None:
    loop = Loop(Cuda(), fault=Fault("corrupt", 0))
    for op in OPS:
        operation = Operation(COLLECTIVES[op], RankPosition(0, 1, 1), SIZE, torch.float32, loop.device.torch_device)
        assert loop.measure(operation, row(op, "fp32", "graph", 3, 1)).wrong == 3


ROOT = Path(__file__).resolve().parents[3]
RUN = """
import torch
import torch.distributed as dist
from workloads.evidence.collect import Collector
from workloads.hardware.gpu import GpuWatch

collector = Collector(0, "nccl", first=True, gpus=GpuWatch(lambda: [torch.cuda.get_device_properties(0)]))
collector.start()
device = torch.device("cuda", 0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
dist.all_reduce(torch.ones(2**20, device=device))
torch.cuda.synchronize()
print(collector.finish(with_log=True).evidence.model_dump_json())
"""


def test_real_communicator_log_is_read() -> None:
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    found = RankEvidence.model_validate_json(done.stdout.splitlines()[-1])
    assert found.driver is not None
    assert found.log is not None
    version: Callable[[], tuple[int, ...]] = torch.cuda.nccl.version  # untyped in torch
    assert found.log.nccl_version == ".".join(map(str, version()))
    assert (found.log.nranks, found.log.nnodes, len(found.log.hosts)) == (1, 1, 1)
    assert found.log.plugin is not None
    assert not found.log.truncated
    assert found.gpus is not None
    assert found.gpus[0].after.sm_mhz is not None
