"""Commands that start no job: `rdma-ray status`, `list`, `logs`, `stop`, `outputs`, `plan`. Their help is in cli.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from infra.plan import Plan
from infra.plan import plan as plan_of
from infra.settings import LocalSettings
from workloads.client.api import Api, Job
from workloads.client.run import attend, conclude, kind_of
from workloads.client.stack import read_outputs, read_settings
from workloads.client.view import present, write_json
from workloads.options import Flat, JsonFile, ResultOptions, StackOptions, option

JobId = Annotated[str, option(help="ID of the job: see `rdma-ray list`.", metavar="ID")]


def status(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show {cluster, ray, nodes: [{ip, role, cpus, gpus}] of live nodes, jobs: pending and running ones}."""
    api = Api.of(read_outputs(options))
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
    found = {
        "cluster": api.cluster,
        "ray": api.version(),
        "nodes": sorted(nodes, key=lambda node: (node["role"], node["ip"])),
        "jobs": [row for row in map(_row, api.jobs()) if row["status"] in ("PENDING", "RUNNING")],
    }
    present(found, _show_status, found, options.json_file)


def jobs(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show jobs: [{id, status, exit_code, started, seconds}], newest first. Times in seconds."""
    found = [_row(job) for job in Api.of(read_outputs(options)).jobs()]
    present(found, _show_jobs, {"jobs": found}, options.json_file)


def logs(job_id: JobId, /, *, options: Flat[ResultOptions] = ResultOptions()) -> int:
    """Follow a job, show its result, and return its exit code."""
    outputs = read_outputs(options)
    api = Api.of(outputs)
    kind = kind_of(api.job(job_id).metadata.get("workload", ""))
    ended = attend(api, job_id, kind.view, stop_on_interrupt=False)
    return conclude(outputs, ended, kind, options.json_file)


def stop(job_id: JobId, /, *, options: Flat[StackOptions] = StackOptions()) -> None:
    """Stop a job unless it is over."""
    api = Api.of(read_outputs(options))
    if (job := api.job(job_id)).terminal:
        print(f"job {job_id} is over already: {job.status}", file=sys.stderr)
    else:
        print(f"job {job_id}: {api.stop(job_id).status}", file=sys.stderr)


def outputs(*, options: Flat[StackOptions] = StackOptions()) -> None:
    """Print the outputs as JSON."""
    print(read_outputs(options).model_dump_json(by_alias=True, indent=2))


def plan(
    file: Annotated[Path, option(help="A Pulumi.<stack>.yaml.", metavar="FILE")], /, *, json_file: JsonFile = None
) -> None:
    """Show the plan of a stack file, or print it as JSON. WorkloadError with every problem of the file."""
    found = plan_of(read_settings(file))
    if json_file != "-":
        _show_plan(found, Console())
    if json_file:
        write_json(_plan_as_json(found), json_file)


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


def _plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return {settings, fabric, ranges: [{name, range, room}], pod}; `pod` as in Kubernetes, null on local."""
    fabric, pod = plan.fabric, plan.pod
    return {
        "settings": plan.settings.model_dump(mode="json", by_alias=True),
        "fabric": {
            "transport": fabric.transport,
            "nics": fabric.nics,
            "gbpsPerNic": fabric.gbps_per_nic,
            "gbpsPerNode": fabric.gbps,
            "aligned": fabric.aligned,
        },
        "ranges": [{"name": cut.name, "range": str(cut.network), "room": cut.room} for cut in plan.ranges],
        "pod": pod
        and {
            "annotations": dict(pod.annotations),
            "spec": pod.pod(),
            "container": pod.container(),
            "setup": pod.setup,
            "objects": list(pod.objects),
        },
    }


def _show_plan(plan: Plan, console: Console) -> None:
    """Print machines, fabric, addresses, and why each variable is set."""
    settings, machine, fabric = plan.settings, plan.machine, plan.fabric
    facts = Table.grid(padding=(0, 2))
    if isinstance(settings, LocalSettings):
        facts.add_row("target", settings.target)
        facts.add_row("nodes", f"1 head, {settings.nodes.count} workers of {settings.nodes.cpus} CPUs")
        facts.add_row("fabric", "none: every node is a process of this machine")
    elif machine is not None:
        nodes = settings.nodes
        facts.add_row("target", f"{settings.target} {settings.location}")
        facts.add_row("nodes", f"{nodes.min} to {nodes.max} x {machine.name} by {nodes.capacity}")
        facts.add_row("node", f"{machine.gpus} x {machine.gpu}, {machine.nics} NICs of {machine.gbps_per_nic} Gbit/s")
        facts.add_row("fabric", f"{settings.fabric} ({fabric.transport}), {fabric.gbps} Gbit/s per node, each way")
        facts.add_row(
            "pod", f"the whole node: {machine.pod_cpus} CPUs, {machine.pod_memory_gib} GiB, all GPUs and NICs"
        )
    console.print(facts)
    if plan.ranges:
        ranges = Table("range", "name", "room", box=SIMPLE_HEAD, pad_edge=False)
        for cut in plan.ranges:
            ranges.add_row(str(cut.network), cut.name, cut.room)
        console.print(ranges)
    variables = (*(plan.pod.environment if plan.pod else ()), *fabric.scripted)
    if variables:
        environment = Table("variable", Column("value", overflow="fold"), "why", box=SIMPLE_HEAD, pad_edge=False)
        for variable in variables:
            environment.add_row(variable.name, variable.value, variable.why)
        console.print(environment)
