"""Driver of the trainer: a Ray job on the cluster that runs the loop in Ray Train and prints the result.

python -m workloads.train.driver REQUEST_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import ray
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.config import FailureConfig  # ray.train.FailureConfig is typed as version 1
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # that of ray.train is of version 1
from ray.train.v2.api.exceptions import TrainingFailedError

from workloads.exits import Exit, WorkloadError, last_line
from workloads.gang.placement import NOT_OTHERS, GangRequest, never, read, report_waits
from workloads.loading import load
from workloads.results.events import emit
from workloads.train import journal
from workloads.train.checkpoints import RunFolder
from workloads.train.options import REQUEST, TrainRunOptions
from workloads.train.outcome import finished, judge, opened, reached
from workloads.train.result import Record


def main(text: str) -> int:
    """Train as requested, print the result and return the exit code of the process."""
    spec = REQUEST.validate_json(text)
    began = time.time()
    measured: dict[str, Any] = {}
    try:
        record = train(spec, began)
        measured = reached(record, began) | {
            "backend": "nccl" if spec.use_gpu else "gloo",
            "versions": {"ray": ray.__version__, "torch": version("torch")},
        }
        code, reason = judge(record, spec.min_accuracy)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except TrainingFailedError as error:
        folder = RunFolder(spec.checkpoint_dir, spec.name)
        reason = journal.doomed(folder, spec.submitted) or f"training failed: {last_line(error)}"
        code, reason = Exit.ERROR, "; ".join(filter(None, (reason, journal.dumped(folder, spec))))
    result = finished(spec, began, int(code), reason, measured)
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return code


def train(spec: TrainRunOptions, began: float) -> Record:
    """Run Ray Train, repeat it after every preemption that left a checkpoint, and return the record of the run."""
    check_image()
    folder = opened(spec)
    ray.init(logging_level=logging.WARNING)
    request = gang(spec)
    if reason := never(request, read(request.kind), spec.elastic):
        raise WorkloadError(reason)
    if spec.use_gpu and folder.local:
        folder.filesystem.create_dir(f"{folder.path}/{Path(spec.dumps).parent}", recursive=True)  # torch does not
    emit("phase", name="workers")
    while True:
        record = fit(spec, began)
        if not record.preempted:
            return record
        journal.write_failure(folder, True, {})
        emit("preempted", reason=record.stopped, step=record.step)


def gang(spec: TrainRunOptions) -> GangRequest:
    """Return the workers as a gang, which Ray Train places itself.

    Other workloads reserve their nodes with `launch.placement`. Ray Train has no way to take over a reservation, and is
    worth its own: it replaces workers after failures and preemptions, and keeps the checkpoints that they report. What
    its workers wait for, and whether that can ever come, is read as for the others.
    """
    return GangRequest(spec.workers, "GPU" if spec.use_gpu else "CPU", 1, spread=False)


def check_image() -> None:
    """Raise WorkloadError if the image's Ray lacks functions that the trainer calls. `task.parallel` checks torch."""
    if not hasattr(ray.train, "get_preemption_info"):
        raise WorkloadError(
            f"the image of the Ray nodes is too old to train: Ray {ray.__version__} has no"
            " ray.train.get_preemption_info; set ray.image to one with Ray 2.58 or newer"
        )


def fit(spec: TrainRunOptions, began: float) -> Record:
    """Run Ray Train once, including restarts after failures."""
    scaling = cast(Any, ScalingConfig)  # typed as version 1's
    ray_train = Trainer(
        gang(spec),
        cast(Any, work),  # typed as if it could return nothing
        train_loop_config={"spec": spec.model_dump_json(), "driver": began},
        scaling_config=scaling(num_workers=spec.workers, use_gpu=spec.use_gpu, label_selector=NOT_OTHERS),
        run_config=RunConfig(
            name=spec.name,
            storage_path=spec.checkpoint_dir,
            # controller_failure_limit: by default, Ray repeats a start that exceeded --wait forever.
            # Preemptions are counted separately, and not limited.
            failure_config=FailureConfig(max_failures=spec.max_failures, controller_failure_limit=0),
            callbacks=cast(Any, [Failures(spec)]),  # typed as version 1's
        ),
    )
    # return_value, not metrics: Ray fills metrics from checkpoints only.
    fitted: Any = ray_train.fit()
    record: Record = fitted.return_value
    return record


def work(settings: dict[str, Any]) -> Record:
    """Run a worker. Only workers import torch: this process and the controller start before them."""
    train_loop: Callable[[dict[str, Any]], Record] = load("workloads.train.trainer:train_loop")
    return train_loop(settings)


class Trainer(DataParallelTrainer):
    """Ray Train without two of its actors, whose processes would start before the workers (ray.train.v2, 2.60).

    It reports why its workers wait.
    """

    def __init__(self, request: GangRequest, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.request = request

    def _create_default_callbacks(self) -> list[Any]:
        # A run has no data sets of Ray Train, and its placement group ends with its job.
        unused = {"DatasetsCallback", "PlacementGroupCleanerCallback"}
        kept = [one for one in super()._create_default_callbacks() if type(one).__name__ not in unused]
        return [*kept, Waits(self.request)]


class Waits(WorkerGroupCallback):
    """Reports why the workers wait, in the process of Ray Train's controller."""

    def __init__(self, request: GangRequest) -> None:
        self.request = request

    @contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        """Report until the workers have started."""
        over = Event()
        Thread(target=report_waits, args=(self.request, over), daemon=True).start()
        try:
            yield
        finally:
            over.set()


class Failures(UserCallback):
    """Writes failures of attempts to the run's journal, in the process of Ray Train's controller."""

    def __init__(self, spec: TrainRunOptions) -> None:
        self.spec = spec

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Record one line of each rank's error. The errors carry whether nodes were preempted."""
        del run_context
        preemption = any(getattr(error, "preempted", False) for error in worker_exceptions.values())
        errors = {rank: (str(error).strip().splitlines() or [""])[-1] for rank, error in worker_exceptions.items()}
        folder = RunFolder(self.spec.checkpoint_dir, self.spec.name)
        journal.write_failure(folder, preemption, errors)
        emit("failure", preemption=preemption, ranks=sorted(worker_exceptions))
        if dumped := journal.dumped(folder, self.spec):
            emit("note", text=dumped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
