"""The GPU benchmark's arithmetic: rates, ratios by round, the best of timm's modes, and the report without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.train.bench_gpu import CANDIDATES, FUSED, NOT_A_MEASUREMENT, ON_CPU, Bench, judge, report
from workloads.train.checkpoints import Folder
from workloads.train.run import Run

BENCH = Bench(size="base", batch=128, device="cuda", backend="auto")


def timed(*seconds: float) -> dict[str, Any]:
    return {"first_s": 9.0, "step_s": list(seconds), "peak_memory": None, "report": {}}


FOUND = {
    "ours tuned": timed(0.05, 0.10, 0.05),
    "ours baseline": timed(0.50, 1.20, 0.45),
    "timm bfloat16": timed(0.06, 0.12, 0.07),
    "timm bfloat16 compiled": timed(0.055, 0.11, 0.06),
}


def test_ratios_are_taken_within_rounds() -> None:
    """The second round is slow for all candidates, which does not change its ratio."""
    found = judge(FOUND, BENCH, 989e12)
    assert found["images_per_s"]["ours tuned"]["median"] == pytest.approx(2560)
    assert found["images_per_s"]["ours tuned"]["mfu"] == pytest.approx(2560 * 92.128e9 / 989e12, rel=1e-4)
    assert found["tuned_over"]["ours baseline"]["median"] == pytest.approx(10)
    assert found["tuned_over"]["ours baseline"]["max"] == pytest.approx(12)


@pytest.mark.parametrize(
    ("fused", "use"),
    [
        pytest.param((0.045, 0.09, 0.045), "fused", id="faster in every round"),
        pytest.param((0.02, 0.11, 0.05), "eager", id="faster in one round only"),
    ],
)
def test_fused_kernels_are_used_where_they_are_faster_in_most_rounds(fused: tuple[float, ...], use: str) -> None:
    found = judge(FOUND | {FUSED: timed(*fused)}, BENCH, 989e12)
    assert found["kernels"]["use"] == use
    asked = {"size": "base", "batch": 128, "rounds": 3, "steps": 20}
    machine = {"gpu": "NVIDIA H200", "versions": {"torch": "2.15.0", "timm": "1.0.31"}}
    text = report({"machine": machine, "asked": asked, "date": "2026-11-23", **found})
    assert f"on this GPU, use --set kernels={use}" in text


def _steps(_rank: int, _world: int, storage: str) -> tuple[list[int], list[int], str]:
    """Take twelve steps of `ours baseline` in two turns: the trainer's steps, its looks, the class of its model."""
    steps, looks = Mock(wraps=Run._step), Mock(wraps=Run._look)
    with patch.object(Run, "_step", lambda *call: steps(*call)), patch.object(Run, "_look", lambda *call: looks(*call)):
        train, _ = CANDIDATES["ours baseline"](Bench("tiny", 2, "cpu", "aot_eager", storage))
        train(8)
        train(4)
    numbers = [[call.args[1] for call in made.call_args_list] for made in (steps, looks)]
    return numbers[0], numbers[1], type(steps.call_args.args[0].wrapped).__name__


def test_ours_is_the_trainers_own_loop_without_ddp(tmp_path: Path) -> None:
    assert on_ranks(_steps, 1, str(tmp_path)) == [(list(range(12)), [10], "ConvNeXt")]
    [run] = tmp_path.iterdir()
    assert "journal" in " ".join(Folder(str(tmp_path), run.name).names())


def test_report_names_timms_fastest_mode_and_a_machine_without_a_gpu() -> None:
    result = {
        "machine": {"gpu": None, "versions": {"torch": "2.15.0", "timm": "1.0.31"}},
        "asked": {"size": "tiny", "batch": 4, "rounds": 3, "steps": 2},
        "date": "2026-11-21",
        **judge(FOUND, BENCH, None),
    }
    text = report(result)
    assert text.startswith(NOT_A_MEASUREMENT)
    assert text.count(NOT_A_MEASUREMENT) == 2
    assert "tuned ÷ best of timm (timm bfloat16 compiled): 1.10, 1.10 to 1.20" in text
    assert set(ON_CPU) < set(CANDIDATES)
