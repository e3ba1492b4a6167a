"""A run's figures: examples calculated by hand, and properties of any run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.training import measured, rank
from workloads.train.figures import MOST_POINTS, communication, curve, figures, stretches
from workloads.train.options import Single


def test_the_published_baseline_by_hand() -> None:
    """3.63 steps/s of 64 images on each of 16 H200: 232 images/s each, 3,717 in all, 2.16 % of the bf16 peak."""
    ranks = [rank(i, [9.0, 1 / 3.63, 1 / 3.63, 1 / 3.63], gpu="NVIDIA H200") for i in range(16)]
    found = figures(measured(ranks, batch=64 * 16, flops_per_sample=92.1e9))
    assert found is not None
    assert found.images_per_s == pytest.approx(3717, abs=1)
    assert found.images_per_s_per_worker == pytest.approx(232.3, abs=0.1)
    assert found.steps_per_s == pytest.approx(3.63)
    assert found.mfu == pytest.approx(0.0216, abs=0.0001)
    assert (found.steps, found.warm_up_steps, found.images) == (3, 1, 3 * 1024)


@pytest.mark.parametrize(
    ("gpu", "images_per_s"), [("NVIDIA A100-SXM4-80GB", 3387), ("NVIDIA H200", 10_735), ("NVIDIA B200", 24_422)]
)
def test_the_rates_at_which_a_gpu_would_be_full(gpu: str, images_per_s: float) -> None:
    """The reference's img/s at 100 %: 92.13 GFLOP an image."""
    found = figures(measured([rank(0, [100 / images_per_s] * 4, gpu=gpu)], batch=100, flops_per_sample=92.13e9))
    assert found is not None
    assert found.mfu == pytest.approx(1, abs=2e-4)


def test_no_mfu_where_a_figure_is_missing() -> None:
    for gpu, flops in ((None, 92.1e9), ("NVIDIA H200", None), ("NVIDIA GeForce RTX 3090", 92.1e9)):
        found = figures(measured([rank(0, [0.1] * 4, gpu=gpu)], flops_per_sample=flops))
        assert found is not None
        assert found.mfu is None
    mixed = [rank(0, [0.1] * 4, gpu="NVIDIA H200"), rank(1, [0.1] * 4, gpu="NVIDIA B200")]
    assert (found := figures(measured(mixed, flops_per_sample=92.1e9))) is not None
    assert found.mfu is None


def test_the_slowest_rank_decides() -> None:
    fast, slow = rank(0, [5.0, 1.0, 1.0, 1.0, 1.0]), rank(1, [4.0, 1.0, 1.5, 3.0, 0.5])
    found = figures(measured([fast, slow], batch=12))
    assert found is not None
    assert found.images_per_s == 4 * 12 / 6.0
    assert found.images_per_s_per_worker == 4.0
    # Step by step the slower of the two: 1, 1.5, 3, 1.
    assert found.step_s.model_dump() == {"mean": 1.625, "p50": 1.0, "p95": 3.0, "max": 3.0}
    assert found.warm_up_s == 5.0
    assert found.compile_s == 7.0


def test_the_rank_that_waited_most() -> None:
    ranks = [
        rank(0, [9.0, 1.0, 1.0], wait=[9.0, 0.1, 0.1]),
        rank(1, [9.0, 1.0, 1.0], wait=[0.0, 0.5, 0.3]),
    ]
    found = figures(measured(ranks))
    assert found is not None
    assert found.data_wait == pytest.approx(0.4)


def test_peak_memory_is_the_fullest_gpus() -> None:
    ranks = [rank(0, [1.0, 1.0], memory=7), rank(1, [1.0, 1.0], memory=9)]
    found = figures(measured(ranks))
    assert found is not None
    assert found.peak_memory == 9
    without = figures(measured([rank(0, [1.0, 1.0])]))
    assert without is not None
    assert without.peak_memory is None


def test_scaling_against_one_worker() -> None:
    ranks = [rank(i, [1.0, 0.5, 0.5]) for i in range(4)]
    found = figures(measured(ranks, batch=40, single=Single(images_per_s=25.0, file="one.json")))
    assert found is not None
    assert found.scaling is not None
    assert found.scaling.efficiency == 0.8  # 80 img/s of 4 × 25
    alone = figures(measured(ranks, batch=40))
    assert alone is not None
    assert alone.scaling is None


def test_nothing_measured_is_no_figure_and_no_zero() -> None:
    assert figures(measured([rank(0, [1.0])])) is None
    assert figures(measured([])) is None


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
    found = figures(measured(ranks, batch=7, single=Single(images_per_s=single, file="one.json")))
    assert found is not None
    step = found.step_s
    assert step.p50 <= step.p95 <= step.max
    assert step.mean <= step.max * (1 + 1e-9)
    assert found.data_wait == pytest.approx(waited)
    assert found.images_per_s == pytest.approx(7 * found.steps_per_s)
    assert found.images_per_s == pytest.approx(found.images_per_s_per_worker * len(by_rank))
    # No step is faster than the slowest rank's, so the steps one by one give no higher rate than the ranks' sums.
    assert 7 / step.mean <= found.images_per_s * (1 + 1e-9)
    assert found.scaling is not None
    assert found.scaling.efficiency * len(by_rank) * single == pytest.approx(found.images_per_s)


@given(by_rank=RANKS, factor=st.floats(0.1, 10))
def test_a_clock_that_runs_n_times_as_fast_gives_a_rate_of_one_nth(by_rank: list[list[float]], factor: float) -> None:
    one = figures(measured([rank(i, steps) for i, steps in enumerate(by_rank)]))
    other = figures(measured([rank(i, [factor * s for s in steps]) for i, steps in enumerate(by_rank)]))
    assert one is not None
    assert other is not None
    assert other.images_per_s * factor == pytest.approx(one.images_per_s)


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
