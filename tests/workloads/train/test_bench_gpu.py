"""The GPU benchmark's arithmetic: rates, ratios by round, the best of timm's modes, and the report without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.train.bench_gpu import CANDIDATES, NOT_A_MEASUREMENT, ON_CPU, Bench, judge, report

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
