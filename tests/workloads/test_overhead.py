"""Cost of the measuring loop over a bare torch.distributed loop: the tool works, and the cost is small.

The published figure comes from `make bench-overhead`, which takes minutes; a test that shares its machine with
others can only see what is grossly wrong.
"""

from __future__ import annotations

import time

import pytest

from tests.workloads import overhead
from tests.workloads.overhead import Overhead
from workloads.nccl.device import Cpu


def test_loop_against_a_bare_one_on_real_ranks() -> None:
    found = overhead.measure([2**20], pairs=9, ranks=2, iterations=10)
    assert [(each.op, each.size, len(each.ratios)) for each in found] == [(op, 2**20, 9) for op in overhead.OPERATIONS]
    for each in found:
        assert 0.5 < each.ratio < 1.6, overhead.report(found, 2, 10)


def test_the_loop_adds_microseconds_to_a_run() -> None:
    """0.02 of 1 ms, which 1 MiB takes at least on this kind of machine, are 20 µs. The quickest of many counts."""
    assert 0 < overhead.own_cost() < 5e-6
    slow = Cpu().time(lambda: time.sleep(1e-3), 5)
    assert slow.total >= 5e-3  # the clock runs


def test_the_median_of_the_pairs_is_what_counts() -> None:
    found = Overhead("all_reduce", 2**20, bare=[1.0, 2.0, 1.0, 8.0, 1.0], ours=[1.0, 2.2, 9.0, 4.0, 1.01])
    assert found.ratio == pytest.approx(1.01)
    assert found.interval == pytest.approx((0.5, 9.0))
    many = Overhead("all_reduce", 2**20, bare=[1.0] * 400, ours=[1 + index / 400 for index in range(400)])
    assert many.interval == pytest.approx((1.45, 1.55), abs=0.01)


@pytest.mark.parametrize(("ratio", "size", "code"), [(1.01, 2**20, 0), (1.03, 2**20, 2), (1.5, 2**10, 0)])
def test_too_much_from_1_mib_on_is_below_what_was_asked(
    ratio: float, size: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Overhead("all_gather", size, bare=[1.0] * 5, ours=[ratio] * 5)]
    monkeypatch.setattr(overhead, "measure", lambda *_: found)
    assert overhead.main(["--pairs", "5"]) == code
    said = capsys.readouterr()
    assert f"{ratio:.3f}" in said.out
    assert ("above 1.02" in said.err) == (code == 2)
