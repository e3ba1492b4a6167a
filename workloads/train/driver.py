"""The trainer's driver: runs on the cluster as a Ray job, hands the loop to Ray Train, prints the result.

python -m workloads.train.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.config import FailureConfig  # ray.train.FailureConfig is typed as version 1
from ray.train.v2.api.exceptions import TrainingFailedError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError, last_line
from workloads.train import journal, trainer
from workloads.train.checkpoints import Folder
from workloads.train.conclude import fields, single_of
from workloads.train.failures import Failures
from workloads.train.faults import Fault
from workloads.train.goodput import goodput
from workloads.train.records import Record
from workloads.train.result import SCHEMA
from workloads.train.spec import Spec


def main(text: str) -> int:
    """Train as the spec says; the process's exit code."""
    spec = Spec.from_json(text)
    began = time.time()
    result: dict[str, Any] = {"schema": SCHEMA, "started": began, "spec": asdict(spec), "model": spec.task}
    try:
        record = train(spec, began)
        if record["losses"]:
            result |= fields(record, time.time() - began, single_of(spec.extra))
        result |= {
            "backend": "nccl" if spec.use_gpu else "gloo",
            "versions": {"ray": ray.__version__, "torch": torch.__version__},
        }
        code, reason = judge(record, spec.min_accuracy)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except TrainingFailedError as error:
        code, reason = Exit.ERROR, f"training failed: {last_line(error)}"
        reason = journal.doomed(Folder(spec.storage, spec.name), submitted(spec, began)) or reason
    result |= survived(spec)
    result |= {"finished": time.time(), "exit_code": int(code), "reason": reason}
    emit("result", result=result)
    return code


def train(spec: Spec, began: float) -> Record:
    """Run Ray Train, again for every preemption that left a checkpoint; what the run was and did."""
    folder = Folder(spec.storage, spec.name)
    folder.check_writable()
    if spec.plan.fault:
        Fault.parse(spec.plan.fault)
    found = folder.checkpoints()
    if spec.resume and not found:
        raise WorkloadError(
            f"no run {spec.name!r} with a checkpoint in {spec.storage}: start it with --name {spec.name}"
        )
    if found and not spec.resume:
        raise WorkloadError(f"run {spec.name!r} exists in {spec.storage}: go on with --resume {spec.name}, or rename")

    ray.init(logging_level=logging.WARNING)
    kind = "GPU" if spec.use_gpu else "CPU"
    resources: Callable[[], dict[str, float]] = ray.cluster_resources  # untyped in Ray
    slots = int(resources().get(kind, 0))
    if slots < spec.workers and not spec.elastic:
        raise WorkloadError(
            f"{spec.workers} workers need a {kind} each, and the cluster has {slots}: use --workers {slots}"
        )
    emit("phase", name="workers")
    while True:
        record = fit(spec, began)
        if not record["preempted"]:
            return record
        failure = journal.Failure(time.time(), True, {})
        journal.write(folder, "failure", failure.time, asdict(failure))
        emit("preempted", reason=record["stopped"], step=record["step"])


def fit(spec: Spec, began: float) -> Record:
    """One run of Ray Train, restarts after failures included."""
    config = TorchConfig(backend="nccl" if spec.use_gpu else "gloo")
    ray_train = TorchTrainer(
        cast(Any, trainer.train_loop),  # typed as if it could return nothing
        train_loop_config={
            "spec": spec.to_json(),
            "submitted": submitted(spec, began),
            "driver": began,
        },
        torch_config=config,
        scaling_config=ScalingConfig(num_workers=spec.workers, use_gpu=spec.use_gpu),
        run_config=RunConfig(
            name=spec.name,
            storage_path=spec.storage,
            # A start that ran out of --wait has waited long enough; by default Ray would try again for ever.
            # Preemptions are counted apart, and not limited.
            failure_config=FailureConfig(max_failures=spec.max_failures, controller_failure_limit=0),
            callbacks=cast(Any, [Failures(spec.storage, spec.name)]),  # typed as version 1's
        ),
    )
    # return_value, not metrics: Ray fills metrics from checkpoints only.
    finished: Any = ray_train.fit()
    record: Record = finished.return_value
    return record


def submitted(spec: Spec, began: float) -> float:
    """When the user asked for the run: by the client's clock, or else when the driver began."""
    return float(spec.extra.get("submitted", began))


def survived(spec: Spec) -> dict[str, Any]:
    """Goodput and what the run has been through, all its jobs included; nothing where no worker ever started."""
    try:
        attempts, failures = journal.read(Folder(spec.storage, spec.name))
    except (OSError, WorkloadError):
        return {}
    if not attempts:
        return {}
    found = goodput(attempts, failures)
    return {
        "goodput": {
            "share": found.goodput,
            "wall_s": found.wall_s,
            "parts_s": {"productive": found.productive_s} | found.bad,
        },
        "survival": {
            "attempts": found.attempts,
            "jobs": found.jobs,
            "failures": found.failures,
            "preemptions": found.preemptions,
            "lost_steps": found.lost_steps,
            "mttr_s": found.mttr_s,
            "between_jobs_s": found.between_jobs_s,
            "errors": [asdict(failure) for failure in failures],
            "injected_fault": spec.plan.fault,
        },
    }


def judge(record: Record, least: float | None) -> tuple[Exit, str]:
    """BELOW where the model knows less than it was asked to, and where the run had to stop before its end."""
    if record["error"] is not None:
        return Exit(record["code"]), record["error"]
    if record["stopped"] is not None:
        return Exit.BELOW, f"{record['stopped']}: {record['step']} of {record['steps']} steps are done"
    if least is None:
        return Exit.OK, f"{record['steps']} steps, loss {record['losses'][-1][1]:.4f}"
    accuracy = record["evaluation"]["accuracy"]
    if accuracy < least:
        return Exit.BELOW, f"test accuracy {accuracy:.4f} is below the {least:.4f} asked for (--min-accuracy)"
    return Exit.OK, f"test accuracy {accuracy:.4f}, at least {least:.4f} asked for"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
