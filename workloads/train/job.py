"""The job of `rdma-ray train`."""

from __future__ import annotations

from workloads.client.kinds import JOBS_RESULT, Kind, writer
from workloads.terminal.console import Terminal
from workloads.train import report
from workloads.train.result import Result


def train(*_: object) -> Kind:
    """Return the kind of a training."""
    return Kind(
        driver="workloads.train.driver",
        view=report.TrainView(Terminal(stderr=True)),
        read=lambda found, _: Result.of(found, JOBS_RESULT),
        show=report.show,
        write=writer("workloads.train.plot"),
    )
