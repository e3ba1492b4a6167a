"""One rank of a hunt without Ray: a group of one, the burn, and the injected faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from workloads.nccl.hunt.driver import SLOW_S, HuntRank, Report
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.operations import Place


@pytest.fixture
def rank() -> Iterator[HuntRank]:
    yield HuntRank(use_gpu=False)
    assert not dist.is_initialized(), "a test left its process group behind"


def take_part(rank: HuntRank, fault: str | None = None) -> Report:
    address, options = "127.0.0.1", HuntOptions(size="64K", iterations=2, timeout_s=20)
    port = rank.serve(address, options.timeout_s)
    return rank.take_part(options, 3, fault, Place(0, 1, 1), address, port, address)


def test_rank_forms_one_group_after_another(rank: HuntRank) -> None:
    for _ in range(3):
        report = take_part(rank)
        assert report.wrong == 0
        assert len(report.samples) == 3
        assert all(sample > 0 for sample in report.samples)


def test_injected_faults_change_the_report(rank: HuntRank) -> None:
    assert take_part(rank, "corrupt-node").wrong == 1
    assert min(take_part(rank, "slow-node").samples) >= SLOW_S
    assert min(take_part(rank, "slow-rail").samples) >= SLOW_S
    assert take_part(rank).wrong == 0


def test_burn_is_verified_and_a_slow_burn_is_slower(rank: HuntRank) -> None:
    healthy, slow = rank.burn(3, None), rank.burn(1, "slow-burn")
    assert healthy.wrong == slow.wrong == 0
    assert len(healthy.samples) == 3
    assert slow.samples[0] < 0.5 * max(healthy.samples)
