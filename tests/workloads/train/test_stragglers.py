"""Who waits for whom, on real gloo ranks; and the GPUs' health in the record, by a double of NVML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch.distributed as dist

from infra.local.loopback import free_ports
from tests.workloads.nccl.test_evidence_gpu import PCI, PROPERTIES, Nvml
from tests.workloads.train import train_ranks
from workloads.hardware import gpu
from workloads.train.place import TrainerRank
from workloads.train.result import Record


@pytest.mark.parametrize("slow", [None, 0, 2])
def test_rank_that_computes_more_is_named(slow: int | None, tmp_path: Path) -> None:
    """All ranks' steps take equally long; only the wait for the reduction shows which one is slow."""
    spec = train_ranks.specification(tmp_path, "slow", slow=slow, steps=45, mixing=False)
    record = train_ranks.record(spec, 3)
    assert record.figures is not None
    assert record.figures.stragglers is not None
    assert [one.rank for one in record.figures.stragglers] == ([] if slow is None else [slow])
    workers = record.workers or []
    parts = [(worker.compute_s or 0, worker.data_s or 0, worker.waiting_s or 0) for worker in workers]
    assert all(compute > 0 and data >= 0 and waiting > 0 for compute, data, waiting in parts)
    if slow is not None:
        [found] = record.figures.stragglers
        assert (found.host, found.cause) == (workers[slow].host, "compute")
        assert found.own_s > found.usual_s
        assert 0 < found.share < 1
        assert workers[slow].waiting_s == min(waiting for _, _, waiting in parts)


def test_ranks_that_wait_in_the_forward_pass_too_are_not_compared(tmp_path: Path) -> None:
    """DDP broadcasts the buffers of batch norm: rank 0 waits there for a slow rank and would look slow itself."""
    record = train_ranks.record(train_ranks.specification(tmp_path, "buffers", slow=2), 3)
    assert record.figures is not None
    assert record.figures.stragglers is None
    assert [worker.waiting_s for worker in record.workers or ()] == [None] * 3


def test_record_has_the_gpus_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    nvml.xids = [79]
    monkeypatch.setattr(TrainerRank, "gpu_properties", lambda _: [PROPERTIES])
    monkeypatch.setitem(sys.modules, gpu.BINDINGS, cast(Any, nvml))
    assert not dist.is_initialized()
    [port] = free_ports(1)
    found = train_ranks._rank(0, 1, port, train_ranks.specification(tmp_path, "one").model_dump_json())
    assert isinstance(found, Record)
    [worker] = found.workers or []
    assert worker.health is not None
    assert (worker.health.pci, worker.health.xids) == (PCI, [79])
    assert any("SwPowerCap" in reason for reason in worker.missing or [])
