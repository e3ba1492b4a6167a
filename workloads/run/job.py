"""The job of `rdma-ray run`: ranks on several nodes, or a command on the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from workloads.client.kinds import JOBS_RESULT, JobKind
from workloads.client.output import LineOptions, RunView
from workloads.nccl.judge.expectation import has_gpu_direct, network_of
from workloads.nccl.problems import detours
from workloads.run.result import RunResult, show
from workloads.terminal.console import Terminal


def run(job: Mapping[str, str], lines: LineOptions, output: TextIO) -> JobKind:
    """Return the kind of the user's code; without ranks, it has a result only with --evidence."""
    own = job.get("workload") == "run"
    gang = own and job.get("mode") in ("torchrun", "ranks")
    view = RunView(Terminal(stderr=True), lines, gang=gang, output=output)
    driver = "workloads.run.driver"
    if not gang and not (own and job.get("evidence")):
        return JobKind(driver=driver, view=view, read=None)
    return JobKind(driver=driver, view=view, read=read, show=show, stderr=True)


def read(found: dict[str, Any], machine: str | None) -> RunResult:
    """Return a result with the findings in its evidence. WorkloadError if it is none."""
    result = RunResult.of(found, JOBS_RESULT)
    logs = [rank.log for rank in (result.evidence.ranks if result.evidence else ()) if rank.log]
    network = network_of(result.transport or "", gpu_direct=has_gpu_direct(machine))
    findings = list(detours(logs, network)) if network else []
    return result.model_copy(update={"findings": findings})
