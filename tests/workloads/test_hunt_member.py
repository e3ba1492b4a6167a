"""One rank of a hunt by itself: a group of one, the burn, and the planted faults, without Ray."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from workloads.nccl.collectives import Place
from workloads.nccl.hunt.member import SLOW_S, Member, Order


@pytest.fixture
def member() -> Iterator[Member]:
    yield Member(use_gpu=False)
    assert not dist.is_initialized(), "a test left its process group behind"


def order(member: Member, fault: str | None = None) -> Order:
    port = member.serve("127.0.0.1", 20)
    return Order(Place(0, 1, 1), "127.0.0.1", port, "127.0.0.1", 20, 65536, iterations=2, samples=3, fault=fault)


def test_groups_come_one_after_the_other(member: Member) -> None:
    for _ in range(3):
        report = member.take_part(order(member))
        assert report.wrong == 0
        assert len(report.samples) == 3
        assert all(sample > 0 for sample in report.samples)


def test_planted_faults_show(member: Member) -> None:
    assert member.take_part(order(member, "corrupt-node")).wrong == 1
    assert min(member.take_part(order(member, "slow-node")).samples) >= SLOW_S
    assert min(member.take_part(order(member, "slow-rail")).samples) >= SLOW_S
    assert member.take_part(order(member)).wrong == 0


def test_the_burn_is_verified_and_a_slow_one_shows(member: Member) -> None:
    healthy, slow = member.burn(3, None), member.burn(1, "slow-burn")
    assert healthy.wrong == slow.wrong == 0
    assert len(healthy.samples) == 3
    assert slow.samples[0] < 0.5 * max(healthy.samples)
