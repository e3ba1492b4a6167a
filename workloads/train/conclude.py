"""From a run's record to the fields of its result. Pure; the driver adds what only it knows (versions, goodput, …)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.train.figures import Single, curve, figures
from workloads.train.records import Record
from workloads.train.result import Worker
from workloads.train.timeline import from_clock


def single_of(extra: Mapping[str, Any]) -> Single | None:
    """The single worker's rate that the client found in --compare FILE, out of the specification's `extra`."""
    return Single(**extra["single"]) if extra.get("single") else None


def metrics(record: Record) -> dict[str, float]:
    """A finished run's figures as Ray Train's metrics: numbers by name, what was not measured left out."""
    told: dict[str, float | None] = {"step": record["step"], **record["evaluation"]}
    if record["losses"]:
        told["loss"] = record["losses"][-1][1]
    if (found := figures(record)) is not None:
        told |= {
            "images_per_s": found.images_per_s,
            "images_per_s_per_worker": found.images_per_s_per_worker,
            "steps_per_s": found.steps_per_s,
            "step_p50_s": found.step_s.p50,
            "step_p95_s": found.step_s.p95,
            "step_max_s": found.step_s.max,
            "mfu": found.mfu,
            "data_wait": found.data_wait,
            "exposed_communication": found.communication.exposed if found.communication else None,
            "compile_s": found.compile_s,
            "warm_up_s": found.warm_up_s,
            "peak_memory": found.peak_memory,
        }
    return {name: float(value) for name, value in told.items() if value is not None}


def fields(record: Record, total_s: float, single: Single | None = None) -> dict[str, Any]:
    """What a Result takes from a Record, as plain data; `total_s` is the driver's whole time."""
    found = figures(record, single)
    clock = record["clock"]
    timeline = from_clock(clock)
    resumed, epoch_steps, losses = record["resumed_from"], record["epoch_steps"], record["losses"]
    trained = max((sum(rank["step_s"]) for rank in record["ranks"]), default=0.0)
    return {
        "world": record["world"],
        "device": record["device"],
        "batch": record["batch"],
        "steps": record["steps"],
        "step": record["step"],
        "epoch_steps": epoch_steps,
        "resumed_at": resumed,
        "resumed_from": resumed // epoch_steps if resumed is not None and epoch_steps else None,
        "stopped": record["stopped"],
        "parameters": record["parameters"],
        "loss": losses[-1][1] if losses else None,
        "accuracy": record["evaluation"].get("accuracy"),
        "evaluation": record["evaluation"] or None,
        "epochs": record["history"],
        "gradients_equal": record["gradients"],
        "figures": found.model_dump(mode="json") if found else None,
        "curve": curve(record).model_dump(mode="json"),
        "timeline": timeline.model_dump(mode="json") if timeline else None,
        "task": record["task"],
        "workers": [
            Worker(
                rank=rank["rank"],
                host=rank["host"],
                node_id=rank["node_id"],
                device=rank["device"],
                gpu=rank["gpu"],
                rows=rank["rows"],
            ).model_dump(mode="json")
            for rank in record["ranks"]
        ],
        "seconds": {
            "start_up": round(clock["worker"] - clock["submitted"], 3),
            "train": round(trained, 3),
            "total": round(total_s, 3),
        },
    }
