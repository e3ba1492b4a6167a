"""A run's figures: examples calculated by hand, and properties of any run."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.train.training import measured, rank
from workloads.train.figures import MOST_POINTS, communication, curve, figures, placed, stragglers, stretches
from workloads.train.options import Single
from workloads.train.result import TrainFigures


def of(*args: Any, **changes: Any) -> TrainFigures:
    found = figures(measured(*args, **changes))
    assert found is not None
    return found


def test_the_published_baseline_by_hand() -> None:
    """3.63 steps/s of 64 images on each of 16 H200: 232 images/s each, 3,717 in all, 2.16 % of the bf16 peak."""
    ranks = [rank(i, [9.0, 1 / 3.63, 1 / 3.63, 1 / 3.63], gpu="NVIDIA H200") for i in range(16)]
    found = of(ranks, batch=64 * 16, flops_per_sample=92.1e9)
    assert found.units_per_s == pytest.approx(3717, abs=1)
    assert found.units_per_s_per_worker == pytest.approx(232.3, abs=0.1)
    assert found.mfu == pytest.approx(0.0216, abs=0.0001)
    assert (found.steps, found.warm_up_steps, found.units) == (3, 1, 3 * 1024)


@pytest.mark.parametrize(
    ("gpus", "flops"),
    [
        ([None], 92.1e9),
        (["NVIDIA H200"], None),
        (["NVIDIA GeForce RTX 3090"], 92.1e9),
        (["NVIDIA H100 PCIe"], 92.1e9),
        (["NVIDIA H100 NVL"], 92.1e9),
        (["NVIDIA H200", "NVIDIA B200"], 92.1e9),
    ],
)
def test_no_mfu_where_a_figure_is_missing(gpus: list[str | None], flops: float | None) -> None:
    assert of([rank(i, [0.1] * 4, gpu=gpu) for i, gpu in enumerate(gpus)], flops_per_sample=flops).mfu is None


def test_a_peak_is_found_by_the_name_of_the_gpu() -> None:
    assert of([rank(0, [0.1] * 4, gpu="NVIDIA A100-SXM4-80GB")]).peak_flops == 312e12


def test_the_slowest_rank_decides() -> None:
    fast, slow = rank(0, [5.0, 1.0, 1.0, 1.0, 1.0]), rank(1, [4.0, 1.0, 1.5, 3.0, 0.5])
    found = of([fast, slow], batch=12)
    assert (found.units_per_s, found.units_per_s_per_worker) == (4 * 12 / 6.0, 4.0)
    # Step by step the slower of the two: 1, 1.5, 3, 1.
    assert found.step_s.model_dump() == {"mean": 1.625, "p50": 1.0, "p95": 3.0, "max": 3.0}
    assert (found.warm_up_s, found.compile_s, found.scaling) == (5.0, 7.0, None)


def test_exposed_communication_by_hand() -> None:
    # The first of each warms up. Medians: with 0.12 and 0.125 s, without 0.10 and 0.08 s.
    found = communication(
        [[9.0, 0.12, 0.11, 0.13], [9.0, 0.125, 0.125, 0.125]],
        [[9.0, 0.10, 0.09, 0.10], [0.01, 0.08, 0.08, 0.08]],
    )
    assert (found.with_s, found.without_s, found.passes) == (0.125, 0.10, 3)
    assert found.exposed == pytest.approx(0.2)


times = st.floats(1e-4, 100)
RANKS = st.integers(1, 5).flatmap(
    lambda world: st.integers(2, 30).flatmap(
        lambda steps: st.lists(st.lists(times, min_size=steps, max_size=steps), min_size=world, max_size=world)
    )
)


@given(by_rank=RANKS, waited=st.floats(0, 1), single=times)
def test_what_holds_for_any_run(by_rank: list[list[float]], waited: float, single: float) -> None:
    ranks = [rank(i, steps, wait=[waited * step for step in steps]) for i, steps in enumerate(by_rank)]
    found = of(ranks, batch=7, single=Single(units_per_s=single, file="one.json"))
    step = found.step_s
    assert step.p50 <= step.p95 <= step.max
    assert step.mean <= step.max * (1 + 1e-9)
    assert found.data_wait == pytest.approx(waited)
    assert found.units_per_s == pytest.approx(7 * found.steps_per_s)
    assert found.units_per_s == pytest.approx(found.units_per_s_per_worker * len(by_rank))
    # No step is faster than the slowest rank's, so the steps one by one give no higher rate than the ranks' sums.
    assert 7 / step.mean <= found.units_per_s * (1 + 1e-9)
    assert found.scaling is not None
    assert found.scaling.efficiency * len(by_rank) * single == pytest.approx(found.units_per_s)


@given(count=st.integers(0, 5000), most=st.integers(1, 500))
def test_stretches_cover_everything_once(count: int, most: int) -> None:
    found = stretches(count, most)
    assert [at for start, stop in found for at in range(start, stop)] == list(range(count))
    assert len(found) == min(count, most)
    assert max((stop - start for start, stop in found), default=0) - min((b - a for a, b in found), default=0) <= 1


def test_a_long_run_gives_a_short_curve_that_keeps_its_end_and_its_longest_step() -> None:
    steps: list[float] = [0.1] * 10_000
    steps[7777] = 5.0
    losses: list[Any] = [(step, 1 / step) for step in range(1, 10_001)]
    found = curve(measured([rank(0, steps)], first_step=100, losses=losses))
    assert len(found.step_s) == MOST_POINTS + 1  # and the step of the warm-up
    assert len(found.loss) == MOST_POINTS
    assert found.step_s[-1][0] == 10_099
    assert max(longest for _, _, longest in found.step_s) == 5.0
    assert found.loss[-1][0] == 10_000


def noisy(seed: int, world: int, spread: float, steps: int = 40, slow: dict[int, float] | None = None) -> list[Any]:
    """Return ranks whose own times vary by `spread` (standard deviation over mean), step by step; they end together.

    `slow` are the factors of slow ranks. A step is 100 ms of own work and then the wait for the slowest rank.
    """
    random = Random(seed)
    own = [
        [0.1 * max(0.2, random.gauss(1, spread)) * (slow or {}).get(number, 1) for _ in range(steps)]
        for number in range(world)
    ]
    ends = [max(times) + 0.01 for times in zip(*own, strict=True)]
    return [
        rank(number, ends, wait=[0.0] * steps, waiting=[end - time for end, time in zip(ends, times, strict=True)])
        for number, times in enumerate(own)
    ]


@pytest.mark.parametrize(("world", "spread"), [(2, 0.02), (2, 0.2), (3, 0.1), (16, 0.05), (64, 0.2)])
def test_noise_names_no_straggler(world: int, spread: float) -> None:
    assert [seed for seed in range(200 // world + 10) if stragglers(noisy(seed, world, spread), 5)] == []


@pytest.mark.parametrize(
    ("world", "slow", "named"),
    [
        (2, {1: 1.3}, [1]),
        (16, {3: 1.15}, [3]),
        (16, {3: 1.3, 11: 1.5}, [11, 3]),
        (16, dict.fromkeys(range(8, 16), 1.4), list(range(8, 16))),  # one node of two
        (16, {3: 1.05}, []),
        (16, dict.fromkeys(range(16), 1.4), []),
    ],
)
def test_stragglers_are_named(world: int, slow: dict[int, float], named: list[int]) -> None:
    for seed in range(10):
        found = stragglers(noisy(seed, world, 0.02, slow=slow), 5)
        assert found is not None
        assert sorted(one.rank for one in found) == sorted(named)
        assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
        for one in found:
            assert (one.host, one.cause) == (f"node-{one.rank // 8}", "compute")
            assert one.own_s / one.usual_s == pytest.approx(slow[one.rank], rel=0.05)
            assert one.share == pytest.approx((slow[one.rank] - 1) * 0.1 / (max(slow.values()) * 0.1 + 0.01), rel=0.3)


def test_rare_delays_and_short_runs_name_no_straggler() -> None:
    late = noisy(0, 4, 0.02, slow={1: 2.0})
    usual = noisy(0, 4, 0.02)
    half = [late[1].step_s[:20] + usual[1].step_s[20:], late[1].waiting_s[:20] + usual[1].waiting_s[20:]]
    assert stragglers([usual[0], rank(1, half[0], wait=[0.0] * 40, waiting=half[1]), *usual[2:]], 0) == []
    assert stragglers(noisy(0, 4, 0.02, steps=24, slow={1: 2.0}), 5) is None  # 19 steps
    assert stragglers([rank(0, [0.1] * 40)], 5) is None


def test_slow_data_is_the_cause() -> None:
    fast = rank(0, [0.1] * 30, wait=[0.001] * 30, waiting=[0.05] * 30)
    slow = rank(1, [0.1] * 30, wait=[0.045] * 30, waiting=[0.01] * 30)
    [found] = stragglers([fast, slow], 0) or []
    assert (found.rank, found.cause) == (1, "data")
    assert found.share == pytest.approx(0.4)
    worker = placed(slow, 0)
    assert (worker.data_s, worker.waiting_s) == (0.045, 0.01)
    assert worker.compute_s == pytest.approx(0.045)
