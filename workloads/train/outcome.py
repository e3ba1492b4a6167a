"""Start and end of a run, regardless of its launcher: its folder, its exit code, its result. Imports no torch."""

from __future__ import annotations

import time
from typing import Any

from workloads.exits import Exit, WorkloadError, last_line
from workloads.train import faults, journal
from workloads.train.checkpoints import RunFolder
from workloads.train.options import TrainRunOptions
from workloads.train.result import Outcome, Record, TrainResult


def opened(spec: TrainRunOptions, restarted: bool = False) -> RunFolder:
    """Return the folder of a run that may begin now. WorkloadError if it exists and is not resumed, or vice versa.

    Args:
        restarted: The launcher starts the same command again after a failure, so that an existing run continues.
    """
    folder = RunFolder(spec.checkpoint_dir, spec.name)
    folder.check_writable()
    if spec.inject_fault:
        faults.parse(spec.inject_fault)
    found = folder.checkpoints()
    if spec.resume and not found:
        raise WorkloadError(
            f"no run {spec.name!r} with a checkpoint in {spec.checkpoint_dir}: start it with --name {spec.name}"
        )
    if found and not spec.resume and not restarted:
        raise WorkloadError(
            f"run {spec.name!r} exists in {spec.checkpoint_dir}: continue with --resume {spec.name}, or use another"
            " name"
        )
    return folder


def reached(record: Record, began: float) -> dict[str, Any]:
    """Return the result's fields that a record has; none of a run that could not begin."""
    if record.loss is None:
        return {}
    fields = {name: getattr(record, name) for name in Outcome.model_fields}
    return fields | {"seconds": (record.seconds or {}) | {"total": round(time.time() - began, 3)}}


def finished(spec: TrainRunOptions, began: float, code: int, reason: str, measured: dict[str, Any]) -> TrainResult:
    """Return the result of a run that ends now."""
    return TrainResult(
        started=began,
        finished=time.time(),
        spec=spec,
        model=spec.task,
        exit_code=code,
        reason=reason,
        **measured,
        **survived(spec),
    )


def survived(spec: TrainRunOptions) -> dict[str, Any]:
    """Return the result's goodput and survival over all jobs of the run, or nothing if no worker ever started."""
    try:
        attempts, failures = journal.read(RunFolder(spec.checkpoint_dir, spec.name))
        if not attempts:
            return {}
        share, survival = journal.goodput(attempts, failures, spec.inject_fault)
    except (ArithmeticError, LookupError, OSError, WorkloadError) as error:
        print(f"no goodput: the run's journal cannot be read ({last_line(error)})", flush=True)
        return {}
    return {"goodput": share, "survival": survival}


def judge(record: Record, least: float | None) -> tuple[Exit, str]:
    """Return exit code and reason: BELOW for less accuracy than requested, and for a run that stopped early."""
    if record.error is not None:
        return Exit(record.code), record.error
    if record.stopped is not None:
        return Exit.BELOW, f"{record.stopped}: {record.step} of {record.steps} steps are done"
    if least is None:
        held_out = (record.evaluation or {}).get("validation_loss")
        more = "" if held_out is None else f", validation loss {held_out:.4f}"
        return Exit.OK, f"{record.steps} steps, loss {record.loss:.4f}{more}"
    assert record.accuracy is not None
    if record.accuracy < least:
        return Exit.BELOW, f"test accuracy {record.accuracy:.4f} is below the requested {least:.4f} (--min-accuracy)"
    return Exit.OK, f"test accuracy {record.accuracy:.4f}, at least {least:.4f} requested"
