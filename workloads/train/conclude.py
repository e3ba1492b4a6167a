"""From a run's record to the fields of its result. Pure; the driver adds what only it knows (versions, goodput, …)."""

from __future__ import annotations

from typing import Any

from workloads.train.figures import Single, curve, figures
from workloads.train.records import Record
from workloads.train.result import Worker
from workloads.train.timeline import from_clock


def fields(record: Record, single: Single | None = None) -> dict[str, Any]:
    """What a Result takes from a Record, as plain data."""
    found = figures(record, single)
    timeline = from_clock(record["clock"])
    return {
        "world": record["world"],
        "device": record["device"],
        "batch": record["batch"],
        "steps": record["steps"],
        "step": record["step"],
        "epoch_steps": record["epoch_steps"],
        "resumed_from": record["resumed_from"],
        "stopped": record["stopped"],
        "parameters": record["parameters"],
        "loss": record["losses"][-1][1] if record["losses"] else None,
        "accuracy": record["evaluation"].get("accuracy"),
        "evaluation": record["evaluation"] or None,
        "epochs": record["history"],
        "gradients_equal": record["gradients"],
        "figures": found.model_dump(mode="json") if found else None,
        "curve": curve(record).model_dump(mode="json"),
        "timeline": timeline.model_dump(mode="json") if timeline else None,
        "task": record["task"],
        "workers": [
            Worker(**{name: rank[name] for name in Worker.model_fields}).model_dump(mode="json")  # type: ignore[literal-required]
            for rank in record["ranks"]
        ],
    }
