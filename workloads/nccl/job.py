"""The jobs of `rdma-ray bench`."""

from __future__ import annotations

from workloads.client.kinds import JOBS_RESULT, JobKind, writer
from workloads.nccl import report
from workloads.nccl.hunt import report as hunt_report
from workloads.nccl.hunt.result import HuntResult
from workloads.nccl.judge.verdict import judged
from workloads.nccl.result import BenchResult, MultiGpuResult
from workloads.terminal.console import Terminal


def nccl(*_: object) -> JobKind:
    """Return the kind of a benchmark of the network, which the client judges."""
    return JobKind(
        driver="workloads.nccl.driver",
        view=report.BenchView(Terminal(stderr=True)),
        read=lambda found, machine: judged(BenchResult.of(found, JOBS_RESULT), machine),
        show=report.show,
        write=writer("workloads.nccl.page.page"),
    )


def multigpu(*_: object) -> JobKind:
    """Return the kind of a benchmark of one node's GPUs."""
    return JobKind(
        driver="workloads.nccl.multigpu",
        view=report.BenchView(Terminal(stderr=True)),
        read=lambda found, _: MultiGpuResult.of(found, JOBS_RESULT),
        show=report.show_multigpu,
    )


def hunt(*_: object) -> JobKind:
    """Return the kind of a search for the slow node, NIC or link."""
    return JobKind(
        driver="workloads.nccl.hunt.driver",
        view=hunt_report.HuntView(Terminal(stderr=True)),
        read=lambda found, _: HuntResult.of(found, JOBS_RESULT),
        show=hunt_report.show,
        write=lambda found, folder: [f"written: {file}" for file in hunt_report.write(found, folder)],
    )
