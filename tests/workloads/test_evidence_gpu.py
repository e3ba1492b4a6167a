"""Log of a real NCCL on a real GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workloads.nccl.evidence.facts import RankEvidence

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import torch
import torch.distributed as dist
from workloads.nccl.evidence.collect import Collector

collector = Collector(0, "nccl", first=True)
collector.start()
device = torch.device("cuda", 0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
dist.all_reduce(torch.ones(2**20, device=device))
torch.cuda.synchronize()
print(collector.finish(with_log=True).evidence.model_dump_json())
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
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
