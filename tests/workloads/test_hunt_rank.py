"""One rank of a hunt without Ray: a group of one, the burn, and the injected faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from workloads.nccl.hunt.gang import SLOW_S, HuntRank, Order
from workloads.nccl.operations import Place


@pytest.fixture
def rank() -> Iterator[HuntRank]:
    yield HuntRank(use_gpu=False)
    assert not dist.is_initialized(), "a test left its process group behind"


def order(rank: HuntRank, fault: str | None = None) -> Order:
    return Order(
        place=Place(0, 1, 1),
        address="127.0.0.1",
        port=rank.serve("127.0.0.1", 20),
        own_ip="127.0.0.1",
        timeout_s=20,
        size=65536,
        iterations=2,
        samples=3,
        fault=fault,
    )


def test_rank_forms_one_group_after_another(rank: HuntRank) -> None:
    for _ in range(3):
        report = rank.take_part(order(rank))
        assert report.wrong == 0
        assert len(report.samples) == 3
        assert all(sample > 0 for sample in report.samples)


def test_injected_faults_change_the_report(rank: HuntRank) -> None:
    assert rank.take_part(order(rank, "corrupt-node")).wrong == 1
    assert min(rank.take_part(order(rank, "slow-node")).samples) >= SLOW_S
    assert min(rank.take_part(order(rank, "slow-rail")).samples) >= SLOW_S
    assert rank.take_part(order(rank)).wrong == 0


def test_burn_is_verified_and_a_slow_burn_is_slower(rank: HuntRank) -> None:
    healthy, slow = rank.burn(3, None), rank.burn(1, "slow-burn")
    assert healthy.wrong == slow.wrong == 0
    assert len(healthy.samples) == 3
    assert slow.samples[0] < 0.5 * max(healthy.samples)
