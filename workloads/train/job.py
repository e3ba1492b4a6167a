"""The job of `rdma-ray train`."""

from __future__ import annotations

from workloads.client.kinds import JOBS_RESULT, JobKind, writer
from workloads.terminal.console import Terminal
from workloads.train import report
from workloads.train.result import TrainResult


def train(*_: object) -> JobKind:
    """Return the kind of a training."""
    return JobKind(
        driver="workloads.train.driver",
        view=report.TrainView(Terminal(stderr=True)),
        read=lambda found, _: TrainResult.of(found, JOBS_RESULT),
        show=report.show,
        write=writer("workloads.train.plot"),
    )
