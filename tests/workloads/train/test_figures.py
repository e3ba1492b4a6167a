"""A run's figures: examples calculated by hand, and properties of any run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.train.training import measured, rank
from workloads.train.figures import MOST_POINTS, communication, curve, figures, stretches
from workloads.train.options import Single
from workloads.train.result import Figures


def of(*args: Any, **changes: Any) -> Figures:
    found = figures(measured(*args, **changes))
    assert found is not None
    return found


def test_the_published_baseline_by_hand() -> None:
    """3.63 steps/s of 64 images on each of 16 H200: 232 images/s each, 3,717 in all, 2.16 % of the bf16 peak."""
    ranks = [rank(i, [9.0, 1 / 3.63, 1 / 3.63, 1 / 3.63], gpu="NVIDIA H200") for i in range(16)]
    found = of(ranks, batch=64 * 16, flops_per_sample=92.1e9)
    assert found.images_per_s == pytest.approx(3717, abs=1)
    assert found.images_per_s_per_worker == pytest.approx(232.3, abs=0.1)
    assert found.mfu == pytest.approx(0.0216, abs=0.0001)
    assert (found.steps, found.warm_up_steps, found.images) == (3, 1, 3 * 1024)


@pytest.mark.parametrize(
    ("gpus", "flops"),
    [
        ([None], 92.1e9),
        (["NVIDIA H200"], None),
        (["NVIDIA GeForce RTX 3090"], 92.1e9),
        (["NVIDIA H200", "NVIDIA B200"], 92.1e9),
    ],
)
def test_no_mfu_where_a_figure_is_missing(gpus: list[str | None], flops: float | None) -> None:
    assert of([rank(i, [0.1] * 4, gpu=gpu) for i, gpu in enumerate(gpus)], flops_per_sample=flops).mfu is None


def test_the_slowest_rank_decides() -> None:
    fast, slow = rank(0, [5.0, 1.0, 1.0, 1.0, 1.0]), rank(1, [4.0, 1.0, 1.5, 3.0, 0.5])
    found = of([fast, slow], batch=12)
    assert (found.images_per_s, found.images_per_s_per_worker) == (4 * 12 / 6.0, 4.0)
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
    found = of(ranks, batch=7, single=Single(images_per_s=single, file="one.json"))
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
