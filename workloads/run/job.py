"""The job of `rdma-ray run`: ranks on several nodes, or a command on the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from workloads.client.kinds import JOBS_RESULT, JobKind
from workloads.client.output import LineOptions, RunView
from workloads.run.result import RunResult, show
from workloads.terminal.console import Terminal


def run(job: Mapping[str, str], lines: LineOptions, output: TextIO) -> JobKind:
    """Return the kind of the user's code; without ranks, it has no result."""
    gang = job.get("workload") == "run" and job.get("mode") in ("torchrun", "ranks")
    view = RunView(Terminal(stderr=True), lines, gang=gang, output=output)
    driver = "workloads.run.driver"
    if not gang:
        return JobKind(driver=driver, view=view, read=None)
    return JobKind(
        driver=driver, view=view, read=lambda found, _: RunResult.of(found, JOBS_RESULT), show=show, stderr=True
    )
