"""The trainer's driver: runs on the cluster as a Ray job, hands the loop to Ray Train, prints the result.

python -m workloads.train.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import ray
import torch
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.config import FailureConfig  # ray.train.FailureConfig is typed as version 1
from ray.train.v2.api.exceptions import TrainingFailedError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError
from workloads.statistics import percentile
from workloads.train import checkpoints, digits
from workloads.train.spec import Spec

SCHEMA = "rdma-ray/train/1"


def main(text: str) -> int:
    """Train as the spec says; the process's exit code."""
    spec = Spec.from_json(text)
    result: dict[str, Any] = {"schema": SCHEMA, "started": time.time(), "spec": vars(spec)}
    try:
        result |= train(spec)
        code, reason = judge(result["accuracy"], spec.min_accuracy)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except TrainingFailedError as error:
        code, reason = Exit.ERROR, f"training failed: {str(error).strip().splitlines()[-1]}"
    result |= {"finished": time.time(), "exit_code": int(code), "reason": reason}
    emit("result", result=result)
    return code


def train(spec: Spec) -> dict[str, Any]:
    """Run Ray Train; what the run was and did."""
    found = checkpoints.exists(spec.storage, spec.name)
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
    config = digits.Config(epochs=spec.epochs)
    emit("phase", name="workers")
    trainer = TorchTrainer(
        cast(Any, digits.train_loop),  # typed as if it could return nothing
        train_loop_config={"config": config, "digits": digits.load(config.seed), "submitted": time.time()},
        torch_config=TorchConfig(backend="nccl" if spec.use_gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=spec.workers, use_gpu=spec.use_gpu),
        run_config=RunConfig(
            name=spec.name,
            storage_path=spec.storage,
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            # A start that ran out of --wait has waited long enough; by default Ray would try again for ever.
            failure_config=FailureConfig(controller_failure_limit=0),
        ),
    )
    began = time.monotonic()
    # return_value, not metrics: Ray fills metrics from checkpoints only.
    finished: Any = trainer.fit()
    record: dict[str, Any] = finished.return_value
    return summarise(record, config, total_s=time.monotonic() - began) | {
        "versions": {"ray": ray.__version__, "torch": torch.__version__},
        "backend": "nccl" if spec.use_gpu else "gloo",
    }


def summarise(record: dict[str, Any], config: digits.Config, total_s: float) -> dict[str, Any]:
    """The figures of a run: img/s counts all workers, by the slowest rank's epoch times, of this run's epochs."""
    history = record["history"]
    own = history[record["resumed_from"] or 0 :]
    seconds = [row["seconds"] for row in own]
    return {
        "config": vars(config),
        "world": record["world"],
        "device": record["device"],
        "resumed_from": record["resumed_from"],
        "epochs": history,
        "loss": history[-1]["loss"],
        "accuracy": history[-1]["accuracy"],
        "images_per_s": round(sum(row["images"] for row in own) / sum(seconds), 1) if own else None,
        "seconds": {
            "start_up": record["start_up_s"],
            "train": round(sum(seconds), 3),
            "total": round(total_s, 3),
            "epoch_p50": round(percentile(seconds, 50), 4) if own else None,
            "epoch_p95": round(percentile(seconds, 95), 4) if own else None,
        },
    }


def judge(accuracy: float, least: float) -> tuple[Exit, str]:
    """BELOW where the model knows less than it was asked to."""
    if accuracy < least:
        return Exit.BELOW, f"test accuracy {accuracy:.4f} is below the {least:.4f} asked for (--min-accuracy)"
    return Exit.OK, f"test accuracy {accuracy:.4f}, at least {least:.4f} asked for"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
