"""Records and results of training runs, made up for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from workloads.train.records import RankRecord, Record


def rank(
    number: int,
    steps: Sequence[float],
    *,
    wait: Sequence[float] | None = None,
    warm_up: int = 1,
    first_step: int = 0,
    gpu: str | None = None,
    memory: int | None = None,
) -> RankRecord:
    """One rank that took these times (s); it waited a tenth of each unless told otherwise."""
    return RankRecord(
        rank=number,
        host=f"node-{number // 8}",
        node_id=f"{number // 8:04x}",
        device=f"cuda:{number % 8}" if gpu else "cpu",
        gpu=gpu,
        rows=8,
        first_step=first_step,
        warm_up=warm_up,
        step_s=list(steps),
        wait_s=list(wait) if wait is not None else [step / 10 for step in steps],
        peak_memory=memory,
    )


def record(ranks: Sequence[RankRecord], **changes: Any) -> Record:
    """A finished run of these ranks."""
    steps = len(ranks[0]["step_s"]) if ranks else 0
    whole: dict[str, Any] = {
        "world": max(1, len(ranks)),
        "device": ranks[0]["device"] if ranks else "cpu",
        "batch": 8 * max(1, len(ranks)),
        "steps": steps,
        "step": steps,
        "epoch_steps": None,
        "resumed_from": None,
        "parameters": 1000,
        "flops_per_sample": None,
        "losses": [(step, 1 / step) for step in range(1, steps + 1)],
        "history": [],
        "evaluation": {},
        "gradients": None,
        "ranks": list(ranks),
        "probe": None,
        "clock": {
            "submitted": 1000.0,
            "driver": 1010.0,
            "worker": 1030.0,
            "restored": 1031.0,
            "compiled": 1038.0,
            "first_step": 1039.0,
            "trained": 1060.0,
        },
        "task": {},
        "stopped": None,
        "error": None,
        "preempted": False,
        "code": 0,
    }
    return cast(Record, whole | changes)
