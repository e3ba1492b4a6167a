"""Records and results of training runs for tests."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.catalog.pins import RAY
from infra.outputs import Outputs
from tests.workloads import stack_outputs
from workloads.hardware.gpu import Gpu
from workloads.train.figures import AttemptTimes, RankTimes, fields
from workloads.train.options import ConvNeXtOptions
from workloads.train.result import Goodput, Outcome, Record, Survival, TrainResult, TrainWorker
from workloads.train.timeline import Clock


def outputs(gpus: int = 0) -> Outputs:
    """Return the outputs of a stack with a shared folder."""
    return stack_outputs.outputs(gpus=gpus, storage={"path": "/storage"})


def rank(
    number: int,
    steps: Sequence[float],
    *,
    wait: Sequence[float] | None = None,
    waiting: Sequence[float] | None = None,
    gpu: str | None = None,
    memory: int | None = None,
    health: Gpu | None = None,
) -> RankTimes:
    """Return one rank with these step times (s). By default a tenth of each is a wait for data, another for others."""
    device = f"cuda:{number % 8}" if gpu else "cpu"
    host = f"node-{number // 8}"
    worker = TrainWorker(rank=number, host=host, node_id=host, device=device, gpu=gpu, rows=8, health=health)
    return RankTimes(
        worker=worker,
        step_s=list(steps),
        wait_s=list(wait) if wait is not None else [step / 10 for step in steps],
        waiting_s=list(waiting) if waiting is not None else [step / 10 for step in steps],
        peak_memory=memory,
    )


def measured(ranks: Sequence[RankTimes], **changes: Any) -> AttemptTimes:
    """Return the measurements of a finished run of these ranks, with one step of warm-up by default."""
    steps = len(ranks[0].step_s)
    clock = Clock(submitted=1000.0, driver=1010.0, worker=1030.0, restored=1031.0, compiled=1038.0, first_step=1039.0)
    losses = [(step, 1 / step) for step in range(1, steps + 1)]
    whole: dict[str, Any] = {"batch": 8 * len(ranks), "first_step": 0, "warm_up": 1, "losses": losses}
    return AttemptTimes(clock=clock, ranks=list(ranks), **whole | changes)


def record(found: AttemptTimes, **changes: Any) -> Record:
    """Return the record of a finished run with these measurements."""
    steps = len(found.losses)
    whole: dict[str, Any] = {
        "world": len(found.ranks),
        "device": found.ranks[0].worker.device,
        "batch": found.batch,
        "steps": steps,
        "step": steps,
        "parameters": 1000,
    }
    return Record(**whole | fields(found) | changes)


SPEC = ConvNeXtOptions(name="first", checkpoint_dir="/storage/train", workers=4, global_batch=512)
SURVIVAL = Survival(
    attempts=2, jobs=1, failures=1, preemptions=0, lost_steps=3, mttr_s=1.0, between_jobs_s=0.0, errors=[],
    injected_fault=None,
)  # fmt: skip
GOODPUT = Goodput(
    share=0.4,
    wall_s=60.0,
    parts_s={"productive": 24.0, "provisioning": 20.0, "start": 9.0, "data": 4.0, "checkpoint": 3.0},
)


def result(found: Record, **changes: Any) -> TrainResult:
    """Return the result of a run with this record, as the driver writes it and the client reads it."""
    whole: dict[str, Any] = {
        "started": 1000.0,
        "finished": 1065.0,
        "spec": SPEC,
        "exit_code": 0,
        "reason": f"{found.steps} steps",
        "model": "convnext",
        "backend": "nccl" if (found.device or "").startswith("cuda") else "gloo",
        "versions": {"ray": RAY, "torch": "2.15.0"},
        "goodput": GOODPUT,
        "survival": SURVIVAL,
    }
    return TrainResult(**whole | {name: getattr(found, name) for name in Outcome.model_fields} | changes)


def scalars(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Return the curves in TensorBoard's files: records of length, its CRC, an Event, its CRC."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # tensorboardX ships no types

    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            for value in event.summary.value:
                found[value.tag].append((event.step, value.simple_value))
            data = data[16 + length :]
    return found
