"""Records and results of training runs, made up for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from workloads.train.conclude import fields
from workloads.train.records import RankRecord, Record
from workloads.train.result import SCHEMA, Result


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


def result(found: Record, **changes: Any) -> Result:
    """The result of a run with this record, as the driver writes it and the client reads it."""
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "started": 1000.0,
        "finished": 1065.0,
        "spec": {"name": "first", "storage": "/storage/train", "extra": {"preset": "tuned", "size": "base"}},
        "exit_code": 0,
        "reason": f"{found['steps']} steps",
        "model": "convnext",
        "backend": "nccl" if found["device"].startswith("cuda") else "gloo",
        "versions": {"ray": "2.60.0", "torch": "2.15.0"},
        "goodput": {
            "share": 0.4,
            "wall_s": 60.0,
            "parts_s": {"productive": 24.0, "provisioning": 20.0, "start": 9.0, "data": 4.0, "checkpoint": 3.0},
        },
        "survival": {"attempts": 2, "failures": 1, "preemptions": 0, "lost_steps": 3},
    }
    return Result.model_validate(whole | fields(found, total_s=65.0) | changes)
