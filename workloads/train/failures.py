"""What broke: Ray Train's controller tells of every attempt's end, and the run's journal keeps it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from ray.train.v2.api.callback import UserCallback

from workloads.events import emit
from workloads.train import journal
from workloads.train.checkpoints import Folder


class Failures(UserCallback):
    """Runs in the controller's process. Whether machines were taken away, the errors themselves tell."""

    def __init__(self, storage: str, name: str) -> None:
        self.storage, self.name = storage, name

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """One line of each rank's error."""
        del run_context
        failure = journal.Failure(
            time.time(),
            any(getattr(error, "preempted", False) for error in worker_exceptions.values()),
            {rank: (str(error).strip().splitlines() or [""])[-1] for rank, error in worker_exceptions.items()},
        )
        journal.write(Folder(self.storage, self.name), "failure", failure.time, asdict(failure))
        emit("failure", preemption=failure.preemption, ranks=sorted(worker_exceptions))
