"""Commands that start no job: `rdma-ray status`, `list`, `logs`, `stop`, `outputs`. Their help is in cli.py."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from workloads.client.api import Api, Job
from workloads.client.connection import Connection
from workloads.client.run import attend, conclude, kind_of
from workloads.client.stack import read_outputs
from workloads.client.view import present
from workloads.options import Flat, ResultOptions, StackOptions, option

JobId = Annotated[str, option(help="ID of the job: see `rdma-ray list`.", metavar="ID")]


def status(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show {cluster, ray, nodes: [{ip, role, cpus, gpus}] of live nodes, jobs: pending and running ones}."""
    with Connection(options) as connection:
        found = _status(connection.api)
    present(found, _show_status, found, options.json_file)


def _status(api: Api) -> dict[str, Any]:
    nodes = [
        {
            "ip": node["node_ip"],
            "role": "head" if node["is_head_node"] else "worker",
            "cpus": node["resources_total"].get("CPU", 0),
            "gpus": node["resources_total"].get("GPU", 0),
        }
        for node in api.nodes()
        if node["state"] == "ALIVE"
    ]
    return {
        "cluster": api.cluster,
        "ray": api.version(),
        "nodes": sorted(nodes, key=lambda node: (node["role"], node["ip"])),
        "jobs": [row for row in map(_row, api.jobs()) if row["status"] in ("PENDING", "RUNNING")],
    }


def jobs(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show jobs: [{id, status, exit_code, started, seconds}], newest first. Times in seconds."""
    with Connection(options) as connection:
        found = [_row(job) for job in connection.api.jobs()]
    present(found, _show_jobs, {"jobs": found}, options.json_file)


def logs(job_id: JobId, /, *, options: Flat[ResultOptions] = ResultOptions()) -> int:
    """Follow a job, show its result, and return its exit code."""
    with Connection(options) as connection:
        kind = kind_of(connection.api.job(job_id).metadata.get("workload", ""))
        ended = attend(connection.api, job_id, kind.view, stop_on_interrupt=False)
    return conclude(connection.outputs, ended, kind, options.json_file)


def stop(job_id: JobId, /, *, options: Flat[StackOptions] = StackOptions()) -> None:
    """Stop a job unless it is over."""
    with Connection(options) as connection:
        if (job := connection.api.job(job_id)).terminal:
            print(f"job {job_id} is over already: {job.status}", file=sys.stderr)
        else:
            print(f"job {job_id}: {connection.api.stop(job_id).status}", file=sys.stderr)


def outputs(*, options: Flat[StackOptions] = StackOptions()) -> None:
    """Print the outputs as JSON."""
    print(read_outputs(options).model_dump_json(by_alias=True, indent=2))


def _show_status(found: dict[str, Any], console: Console) -> None:
    right = (Column("CPUs", justify="right"), Column("GPUs", justify="right"))
    title = f"{found['cluster']}, Ray {found['ray']}"
    table = Table("node", "role", *right, title=title, box=SIMPLE_HEAD, pad_edge=False)
    for node in found["nodes"]:
        table.add_row(node["ip"], node["role"], f"{node['cpus']:g}", f"{node['gpus']:g}")
    console.print(table)
    if found["jobs"]:
        _show_jobs(found["jobs"], console)
    else:
        console.print("no job runs")


def _show_jobs(found: list[dict[str, Any]], console: Console) -> None:
    code, ran = Column("exit", justify="right"), Column("ran", justify="right")
    table = Table(Column("job", no_wrap=True), "status", code, "started", ran, box=SIMPLE_HEAD, pad_edge=False)
    for job in found:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job["started"])) if job["started"] else "-"
        seconds = f"{job['seconds']:.0f} s" if job["seconds"] is not None else "-"
        exit_code = "" if job["exit_code"] is None else str(job["exit_code"])
        table.add_row(job["id"], job["status"], exit_code, started, seconds)
    console.print(table)


def _row(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "status": job.status,
        "exit_code": job.exit_code,
        "started": job.started,
        "seconds": round((job.ended or time.time()) - job.started, 1) if job.started else None,
    }
