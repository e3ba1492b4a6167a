"""Commands that start no job: `rdma-ray status`, `list`, `logs`, `attach`, `stop`, `outputs`."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from infra.outputs import Outputs
from infra.terminal import dollars, printable
from workloads import untrusted
from workloads.client.api import Job, JobsApi, reaches
from workloads.client.connection import Connection
from workloads.client.follow import follow, lines_of
from workloads.client.kept_jobs import kept_instead, kept_job, kept_jobs, place_of
from workloads.client.kinds import kind_of
from workloads.client.output import LineOptions, RunView, output_of
from workloads.client.placement_groups import Holder, ender, left_by
from workloads.client.run import python_of, reader
from workloads.client.show import STOP, row_of, rows_of, show_kept, show_run
from workloads.client.stack import read_outputs
from workloads.client.submit import submit
from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, ResultOptions, option
from workloads.results.events import new_id
from workloads.terminal.console import present, say, write_json

JobId = Annotated[str, option(help="ID of the job: see `rdma-ray list`.", metavar="ID")]
Origin = Annotated[
    str | None,
    option(
        name="--from",
        metavar="PLACE",
        help="Storage that keeps the jobs, instead of the stack's: gs://BUCKET, s3://BUCKET, claim:NAMESPACE/NAME or a"
        " folder. It needs no stack.",
    ),
]
STOP_S = 60
"""Seconds that a stopped job may take beyond its grace period."""
LONGEST_STOP_S = 86_400.0
# The name and namespace are as in ray: dashboard/modules/job/common.py, 2.60.
STOPPER = """import json, ray, sys
from ray.dashboard.modules.job.common import JOB_ACTOR_NAME_TEMPLATE, SUPERVISOR_ACTOR_RAY_NAMESPACE
ray.init(log_to_driver=False)
name = JOB_ACTOR_NAME_TEMPLATE.format(job_id=json.loads(sys.argv[1]))
ray.get(ray.get_actor(name, SUPERVISOR_ACTOR_RAY_NAMESPACE).stop.remote())
"""


def status(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show the cluster's nodes and the jobs that run.

    --json has {cluster, ray, nodes: [{ip, role, cpus, gpus}], kept_out, cost, jobs}:
    the live nodes, the reasons of those that ray.check keeps out by name, {now, most}
    in US dollars per hour by list prices or null, and the jobs that are pending or
    running.

    Example: rdma-ray status --stack gke
    Exit codes: 0 shown, 1 error.
    """
    with Connection(options) as connection:
        answer = _status(connection.api, connection.outputs) | {"kept_out": connection.kept_out()}
    present(answer, _show_status, {"schema": "rdma-ray/status/1", **answer}, options.json_file)


def _status(api: JobsApi, outputs: Outputs) -> dict[str, Any]:
    nodes = [
        {"ip": node.ip, "role": "head" if node.head else "worker", "cpus": node.cpus, "gpus": node.gpus}
        for node in api.nodes()
        if node.alive
    ]
    return {
        "cluster": api.cluster,
        "ray": api.version(),
        "nodes": sorted(nodes, key=lambda node: (node["role"], node["ip"])),
        "cost": cost_now(outputs, nodes),
        "jobs": [row for row in rows_of(api) if row["status"] in ("PENDING", "RUNNING")],
    }


def cost_now(outputs: Outputs, nodes: list[dict[str, Any]]) -> dict[str, float | None] | None:
    """Return the list price per hour: with the worker nodes that Ray sees, and at most."""
    if outputs.cost is None:
        return None
    # Workers without GPUs beside those with GPUs run on the CPU nodes.
    workers = [
        each for each in nodes if each["role"] == "worker" and each["gpus"] >= min(1, outputs.nodes.gpus_per_node)
    ]
    return {"now": outputs.cost.now(outputs.nodes.min, len(workers)), "most": outputs.cost.most}


def jobs(
    *,
    ended: Annotated[
        bool, option(help="List the jobs that the stack's storage keeps, also after their cluster.")
    ] = False,
    origin: Origin = None,
    options: Flat[ResultOptions] = ResultOptions(),
) -> None:
    """List the jobs that the cluster remembers, newest first.

    Jobs of the commands themselves, such as those of `top`, are left out. With
    --ended, the status UNKNOWN is of a job whose end was not kept: it still runs, or
    its node was lost.

    --json has {jobs: [{id, kind, name, status, exit_code, started, seconds}], from}:
    started in seconds since 1970; from is where the jobs are kept, null for Ray.

    Example: rdma-ray list --ended --from gs://my-bucket
    Exit codes: 0 listed, 1 error.
    """
    where = None
    if ended or origin is not None:
        place = place_of(options, origin)
        where, rows = place.name, [row_of(kept.job) for kept in kept_jobs(place)]
    else:
        with Connection(options) as connection:
            rows = rows_of(connection.api)
        if teams := connection.outputs.teams:
            names = ", ".join(sorted(teams))
            print(printable(f"Jobs of teams are not listed: choose one of {names} with --team."), file=sys.stderr)
    present(rows, _show_jobs, {"schema": "rdma-ray/list/1", "jobs": rows, "from": where}, options.json_file)


def logs(
    job_id: JobId,
    /,
    *,
    lines: Flat[LineOptions] = LineOptions(),
    tail: Annotated[int | None, option(help="Show only this many of the existing lines.")] = None,
    no_follow: Annotated[bool, option(help="Show the existing lines, and do not wait for more.")] = False,
    origin: Origin = None,
    options: Flat[ResultOptions] = ResultOptions(),
) -> int:
    """Follow a job from its first line to its end, and show its result.

    Ctrl-C leaves the job running. If the cluster is gone or does not know the job,
    its log comes from the stack's storage.

    Example: rdma-ray logs run-20261123-110907-a1b2c3 --rank 3 --since 10m
    Exit codes: that of the job; 1 error, 130 Ctrl-C.
    """
    if tail is not None and tail < 0:
        raise WorkloadError(f"--tail {tail}: write a number of lines, at least 0")
    if origin is not None:
        return show_kept(kept_job(place_of(options, origin), job_id), lines, options.json_file, tail=tail)
    with ExitStack() as opened:
        try:
            stack = opened.enter_context(Connection(options))
            job = stack.api.job(job_id)
        except WorkloadError as error:
            return show_kept(kept_instead(options, job_id, error), lines, options.json_file, tail=tail)
        if no_follow and not job.terminal:
            if options.json_file:
                raise WorkloadError("--json with --no-follow: the job is not over, so it has no result: see status")
            view = kind_of(job.metadata, lines, output_of(None)).view
            text = stack.api.logs(job)
            if isinstance(view, RunView) and tail is not None:
                view.hold(tail)
            with view:
                for line in lines_of(text):
                    reader(view, [])(line)
                view.release()
            return Exit.OK
        return show_run(stack, job, lines, options.json_file, tail=tail)


def attach(
    job_id: JobId,
    /,
    *,
    lines: Flat[LineOptions] = LineOptions(),
    tail: Annotated[int, option(help="Number of existing lines to show.")] = 10,
    origin: Origin = None,
    options: Flat[ResultOptions] = ResultOptions(),
) -> int:
    """Follow a job from now on to its end.

    Ctrl-C leaves the job running. If the cluster is gone or does not know the job,
    its log comes from the stack's storage.

    Example: rdma-ray attach run-20261123-110907-a1b2c3 --all
    Exit codes: that of the job; 1 error, 130 Ctrl-C.
    """
    return logs(job_id, lines=lines, tail=tail, origin=origin, options=options)


def stop(
    job_id: JobId,
    /,
    *,
    wait_s: Annotated[
        float | None,
        option(
            name="--wait",
            help=f"Seconds to wait until it has ended. [default: the grace of its run, and {STOP_S}]",
        ),
    ] = None,
    detached: Annotated[
        bool, option(help="End also the detached actors and placement groups of the job, which Ray keeps.")
    ] = False,
    options: Flat[ResultOptions] = ResultOptions(),
) -> None:
    """Stop a job, and wait until it is stopped.

    Its processes get SIGTERM, and SIGKILL after the --grace of its run. What it
    leaves on the cluster is listed: detached actors and placement groups.

    --json has {stopped, left: [{kind, name, class, cpus, gpus}], ended} and the
    fields of a job in `list`; ended is whether what is left was ended, too.

    Example: rdma-ray stop run-20261123-110907-a1b2c3
    Exit codes: 0 stopped, or over already; 1 error.
    """
    if wait_s is not None and not 0 <= wait_s <= LONGEST_STOP_S:
        raise WorkloadError(f"--wait {wait_s:g}: write a number of seconds, at most {LONGEST_STOP_S:.0f}")
    with Connection(options) as stack:
        api = stack.api
        job = before = api.job(job_id)
        if not before.terminal:
            ask = None if reaches(job_id) else lambda: _ask_supervisor(stack, job_id)
            job = api.stop(job_id, STOP_S + _grace(job) if wait_s is None else wait_s, ask)
        try:
            left = left_by(api, job)
        except WorkloadError as error:
            if detached:
                raise
            # The job is stopped in any case.
            print(printable(f"whether job {job_id} left actors on the cluster is unknown: {error}"), file=sys.stderr)
            left = []
        if left and detached:
            _end(stack, left)
    prefix = "is over already: " if before.terminal else ""
    print(printable(f"job {job_id} {prefix}{job.status}"), file=sys.stderr)
    for holder in left:
        print(printable(f"{'ended' if detached else 'left on the cluster'}: {holder}"), file=sys.stderr)
    if left and not detached:
        print(printable(f"`rdma-ray stop {job_id} --detached` ends them"), file=sys.stderr)
    if options.json_file:
        found = {"left": [holder.as_json() for holder in left], "ended": bool(left) and detached}
        document = {"schema": "rdma-ray/stop/1", "stopped": not before.terminal, **found, **row_of(job)}
        write_json(document, options.json_file)


def _ask_supervisor(stack: Connection, job_id: str) -> None:
    """Stop a job that Ray's head cannot stop, by another job that asks its supervisor, as Ray's agent does."""
    words = [python_of(stack.outputs), "-c", STOPPER, json.dumps(job_id)]
    submit(stack.api, new_id(STOP), words, metadata={"workload": STOP})


def _end(stack: Connection, left: list[Holder]) -> None:
    """End actors and placement groups by a job. WorkloadError with the end of its log if it fails."""
    api, job_id = stack.api, new_id(STOP)
    submit(api, job_id, [python_of(stack.outputs), *ender(left)], metadata={"workload": STOP})
    lines: list[str] = []
    if (job := follow(api, job_id, lines.append)).status != "SUCCEEDED":
        reason = " ".join(lines[-1:]) or job.message
        raise WorkloadError(f"the detached actors and placement groups were not ended: job {job_id}: {reason}")


def _grace(job: Job) -> float:
    """Return the seconds that a job's processes have to end. Anything on the cluster may write metadata."""
    return untrusted.number(job.metadata.get("grace"), most=LONGEST_STOP_S) or 0.0


def outputs(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Print the stack's outputs as JSON.

    Keys that do not apply are null; secrets are masked.

    Example: rdma-ray outputs --stack gke
    Exit codes: 0 printed, 1 error.
    """
    document = read_outputs(options).model_dump(mode="json", by_alias=True)
    write_json({"schema": "rdma-ray/outputs/1", **document}, options.json_file or "-")


def _show_status(answer: dict[str, Any], console: Console) -> None:
    right = (Column("CPUs", justify="right"), Column("GPUs", justify="right"))
    title = f"{answer['cluster']}, Ray {answer['ray']}"
    table = Table("node", "role", *right, title=title, box=SIMPLE_HEAD, pad_edge=False)
    for node in answer["nodes"]:
        table.add_row(node["ip"], node["role"], f"{node['cpus']:g}", f"{node['gpus']:g}")
    console.print(table)
    for node, reason in sorted(answer["kept_out"].items()):
        say(console, f"node {node} is kept out: {reason}", "yellow")
    if answer["cost"]:
        now, most = (dollars(answer["cost"][key]) for key in ("now", "most"))
        console.print(f"{now} an hour now, at most {most}, by list prices", highlight=False)
    if answer["jobs"]:
        _show_jobs(answer["jobs"], console)
    else:
        console.print("no job runs")


def _show_jobs(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("job", "kind", "name", "status", "started", "ran"):
        # In 80 columns, a long name is cut.
        table.add_column(column, no_wrap=True, justify="right" if column == "ran" else "left")
    today = time.localtime()[:3]
    for job in rows:
        began = time.localtime(job["started"] or 0)
        started = time.strftime("%H:%M:%S" if began[:3] == today else "%Y-%m-%d", began) if job["started"] else "-"
        seconds = f"{job['seconds']:.0f} s" if job["seconds"] is not None else "-"
        code = f" {job['exit_code']}" if job["exit_code"] else ""
        table.add_row(job["id"], job["kind"], job["name"], job["status"] + code, started, seconds)
    console.print(table)
