"""A job as a row of `rdma-ray list` and as JSON, and following a job until its end."""

from __future__ import annotations

import time
from typing import Any

from workloads.client.api import Job, JobsApi
from workloads.client.connection import Connection
from workloads.client.follow import lines_of
from workloads.client.kept_jobs import KeptJob
from workloads.client.kinds import JobKind, kind_of
from workloads.client.output import LineOptions, RunView, output_of
from workloads.client.run import Ended, attend, conclude, ended_of, reader
from workloads.terminal.console import write_json

STOP = "stop"
OWN = ("monitor", "doctor", "pip", STOP)
"""Kinds of jobs that `top`, `doctor`, `run --pip` and `stop` start."""
LONGEST_TEXT = 1_000  # characters of a kind or a name


def rows_of(api: JobsApi) -> list[dict[str, Any]]:
    """Return the rows of the cluster's jobs, newest first, without those that commands start for themselves."""
    return [row for row in map(row_of, api.jobs()) if row["kind"] not in OWN]


def row_of(job: Job) -> dict[str, Any]:
    """Return {id, kind, name, status, exit_code, started, seconds} of a job. Times in seconds."""
    ended = job.ended if job.terminal else time.time()
    return {
        "id": job.id,
        "kind": job.metadata.get("workload", "other")[:LONGEST_TEXT],
        "name": job.metadata.get("name", "")[:LONGEST_TEXT],
        "status": job.status,
        "exit_code": job.exit_code,
        "started": job.started,
        "seconds": round(ended - job.started, 1) if job.started and ended else None,
    }


def show_run(stack: Connection, job: Job, lines: LineOptions, json_file: str | None, *, tail: int | None = None) -> int:
    """Follow a job to its end, show its lines and its result, and return its exit code. Ctrl-C leaves the job running.

    Args:
        tail: Number of existing lines to show; None for all.
    """
    kind = kind_of(job.metadata, lines, output_of(json_file))
    view, history = kind.view, 0
    if isinstance(view, RunView) and tail is not None:
        history = stack.api.logs(job).count("\n")
        if history:
            view.hold(tail)
    nodes = stack.outputs.nodes if isinstance(view, RunView) and not view.gang else None
    ended = attend(
        *(stack.api, job.id, view),
        stop_on_interrupt=False,
        has_result=kind.read is not None,
        history=history,
        nodes=nodes,
    )
    return _concluded(stack.outputs.ray.cluster, stack.outputs.machine, ended, kind, json_file)


def show_kept(kept: KeptJob, lines: LineOptions, json_file: str | None, *, tail: int | None = None) -> int:
    """Show a kept job as `show_run` does."""
    kind, results = kind_of(kept.job.metadata, lines, output_of(json_file)), list[dict[str, Any]]()
    view, history = kind.view, 0
    if isinstance(view, RunView) and tail is not None:
        history = kept.log.count("\n")
        if history:
            view.hold(tail)
    with view:
        read = reader(view, results, history=history)
        for line in lines_of(kept.log):
            read(line)
    if not kept.whole:
        view.note(f"the storage keeps the log of job {kept.job.id} only in part, up to here")
    ended = ended_of(view, kept.job, results, kind.read is not None)
    return _concluded(kept.cluster, kept.machine, ended, kind, json_file)


def _concluded(cluster: str, machine: str | None, ended: Ended, kind: JobKind, json_file: str | None) -> int:
    if kind.read is None and json_file:
        row = {"schema": "rdma-ray/job/1", "cluster": cluster, **row_of(ended.job)}
        write_json(row | {"exit_code": ended.code}, json_file)
    return conclude(cluster, machine, ended, kind, json_file)
