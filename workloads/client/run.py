"""Run a command's job: submit it, follow its log, stop it on Ctrl-C, show its result, and return the exit code."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.outputs import Nodes, Outputs
from infra.terminal import printable
from workloads.client.api import Job, JobsApi, exit_code
from workloads.client.connection import Connection
from workloads.client.entry_point import run_driver
from workloads.client.follow import follow
from workloads.client.kinds import JobKind, kind_of
from workloads.client.placement_groups import PendingGroups
from workloads.client.stack import entry_point_of
from workloads.client.submit import JOB_ID, own_package, submit
from workloads.evidence.raw_log import LogFolder
from workloads.exits import Exit, WorkloadError, last_line
from workloads.gang.kept import kept
from workloads.history.record import UNKNOWN, JobRecord
from workloads.options import JobOptions
from workloads.results.events import Event, new_id, parse
from workloads.results.lines import RankLine
from workloads.secrecy import command_without_secrets
from workloads.terminal.console import present
from workloads.terminal.progress import View
from workloads.untrusted import MALFORMED

REASON_LINES = 15  # that are shown of Ray's reason for a job without a process, such as pip's output
JOB_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",  # Ray drops similar lines, such as the events of two epochs
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # else every line of a Train worker is printed twice
}
# First lines that Ray writes to every job's log: the start, and the command with all its arguments.
RAY_PREAMBLE = re.compile(r"^\S+ \S+\s+INFO job_manager\.py:|^Running entrypoint for job ")


@dataclass(frozen=True)
class Ended:
    """Finished job: its exit code, and the driver's result if there is one."""

    code: int
    result: dict[str, Any] | None
    job: Job


def run_job(
    stack: Connection,
    name: str,
    request: str,
    job: JobOptions,
    *,
    environment: Mapping[str, str] | None = None,
    out: Path | None = None,
    logs: Path | None = None,
) -> int:
    """Run a job of the kind `name` on the stack's cluster, show its result, and return its exit code.

    Ctrl-C stops the job and waits until it is stopped, so that it does not keep its GPUs. With `--detach`, the job's ID
    is printed at once.

    Args:
        request: The driver's options as JSON.
        environment: Variables of the job.
        out: Folder for the files of the result.
        logs: Folder for NCCL's logs.
    """
    files = {"--json": job.json_file, "--out": out, "--logs": logs}
    if job.detach and (given := [option for option, file in files.items() if file]):
        raise WorkloadError(
            f"--detach does not wait for a result: omit {' and '.join(given)}, or --detach; get the result later"
            " with `rdma-ray logs ID --json FILE`"
        )
    here = entry_point_of(job) is not None
    if here and job.detach:
        raise WorkloadError("--detach: the cluster of an entry point ends with it, so leave --detach out")
    if job.rendered is not None:
        return Exit.OK
    folder = LogFolder(logs) if logs else None
    metadata = {"workload": name}
    kind, job_id = kind_of(metadata), new_id(name)
    take = folder.take if folder else None
    record = record_of(stack.outputs, job_id, metadata)
    if here:
        end = partial(run_here, job_id, kind, request, environment or {}, take, record=record)
    else:
        words = kept([python_of(stack.outputs), "-m", kind.driver, request], record)
        api = stack.accepting_jobs()
        submit_driver(api, job_id, words, metadata, environment)
        if job.detach:
            print(f"job {job_id} runs: rdma-ray logs {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
            print(job_id)
            return Exit.OK
        kind.view.note(f"job {job_id} on {stack.outputs.ray.cluster}")
        end = partial(attend, api, job_id, kind.view, stop_on_interrupt=True, listener=take)
    try:
        return conclude(stack.outputs.ray.cluster, stack.outputs.machine, end(), kind, job.json_file, out)
    finally:
        if folder is not None:
            print(folder.summary(), file=sys.stderr)


def submit_driver(
    api: JobsApi,
    job_id: str,
    words: list[str],
    metadata: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Submit a job that runs a module of this package."""
    runtime_env = {"working_dir": own_package(api), "env_vars": JOB_ENVIRONMENT | dict(environment or {})}
    submit(api, job_id, words, runtime_env, metadata)


def python_of(outputs: Outputs) -> str:
    """Return the interpreter of jobs.

    On `local`, nodes run in the environment of a clone, which a user's virtual environment may hide. An installed
    package, without Ray, has another one.
    """
    return sys.executable if outputs.target == "local" and find_spec("ray") else "python"


def record_of(outputs: Outputs, job_id: str, metadata: Mapping[str, str]) -> JobRecord | None:
    """Return what the stack's storage keeps of a job; None if the stack keeps nothing."""
    storage = outputs.storage
    if storage is None or not storage.history_days:
        return None
    if outputs.target == "local":  # elsewhere, a folder that is missing is not mounted
        with suppress(OSError):
            Path(storage.history).mkdir(mode=0o700, parents=True, exist_ok=True)
    return JobRecord(
        folder=storage.history,
        days=storage.history_days,
        id=job_id,
        cluster=outputs.ray.cluster,
        machine=outputs.machine,
        metadata=metadata,
    )


def conclude(
    cluster: str, machine: str | None, ended: Ended, kind: JobKind, json_file: str | None, out: Path | None = None
) -> int:
    """Judge and show the result, write it where requested, and return the exit code.

    Args:
        cluster: Name of the job's cluster; `machine` is its machine type.

    WorkloadError if it is not a result of this kind: anything on the cluster may write to the job's log.
    """
    if ended.result is None or kind.read is None:
        return ended.code
    origin = {
        "job": ended.job.id,
        "cluster": cluster,
        "command": ["rdma-ray", *map(printable, command_without_secrets(sys.argv[1:]))],
    }
    try:
        result = kind.read(ended.result | origin, machine)
        present(result, kind.show, result.model_dump(mode="json", by_alias=True), json_file, stderr=kind.stderr)
        for line in kind.write(result, out) if out is not None else ():
            print(line, file=sys.stderr)
    except MALFORMED as error:
        message = f"the result of job {ended.job.id} contradicts itself ({type(error).__name__}: {last_line(error)})"
        raise WorkloadError(f"{message}: read its log with `rdma-ray logs {ended.job.id}`") from None
    return int(result.exit_code)


def reader(
    view: View,
    results: list[dict[str, Any]],
    listener: Callable[[Event], None] | None = None,
    history: int = 0,
) -> Callable[[str], None]:
    """Return a function of a log's lines that passes events and text to the view, and results to `results`.

    Args:
        history: Number of lines after which the view shows the lines that it holds.
    """
    numbers = itertools.count(1)

    def on_line(line: str) -> None:
        event = None if RankLine.parse(line) else parse(line)  # a rank's text is never an event
        if event is not None and event["kind"] == "result" and isinstance(event.get("result"), dict):
            results.append(event["result"])
            return
        # Anything on the cluster may write to the log: an event that lacks what its view shows is a line of text.
        with suppress(*MALFORMED):
            if event is not None and event["kind"] != "result":
                if listener is not None:
                    listener(event)
                view.event(event)
                return
        if not RAY_PREAMBLE.search(line):
            more = len(line) - view.longest_line
            view.line(line if more <= 0 else f"{line[: view.longest_line]} … ({more} more characters)")

    def counted(line: str) -> None:
        on_line(line)
        if next(numbers) == history:
            view.release()

    return counted if history else on_line


def run_here(
    job_id: str,
    kind: JobKind,
    request: str,
    environment: Mapping[str, str],
    listener: Callable[[Event], None] | None = None,
    **driver: Any,
) -> Ended:
    """Run the job's driver as a child of this process, which is an entry point; `driver` as for `run_driver`."""
    results: list[dict[str, Any]] = []
    with kind.view:
        read = reader(kind.view, results, listener)
        # An entry point that this project submitted has an ID already.
        variables = JOB_ENVIRONMENT | dict(environment) | {JOB_ID: os.environ.get(JOB_ID, job_id)}
        job = run_driver(job_id, kind.driver, request, variables, read, **driver)
    return ended_of(kind.view, job, results)


def attend(
    api: JobsApi,
    job_id: str,
    view: View,
    stop_on_interrupt: bool,
    listener: Callable[[Event], None] | None = None,
    *,
    has_result: bool = True,
    history: int = 0,
    nodes: Nodes | None = None,
) -> Ended:
    """Follow a job to its end. Ctrl-C stops the job if `stop_on_interrupt`, otherwise only this function.

    Args:
        nodes: The stack's nodes, of a job that is a Ray driver: shows what its placement groups wait for.
    """
    results: list[dict[str, Any]] = []
    api.note = view.note

    def heard(event: Event) -> None:
        # The driver knows Ray's nodes only. A replayed line is from before.
        if event["kind"] == "waiting" and (nodes := api.kept_out()):
            event["text"] = f"{event['text']}; kept out by ray.check: {listed(nodes)}"
        if listener is not None:
            listener(event)

    pending = PendingGroups(api, nodes) if nodes is not None else None

    def on_poll(job: Job) -> None:
        for text, seconds in pending.look(job) if pending is not None else ():
            event = {"kind": "waiting", "text": text, "seconds": seconds}
            heard(event)
            view.event(event)

    try:
        with view:
            job = follow(api, job_id, reader(view, results, heard, history), on_poll)
    except KeyboardInterrupt:
        if not stop_on_interrupt:
            view.note(
                f"job {job_id} keeps running: rdma-ray attach {job_id} follows it, rdma-ray stop {job_id} ends it"
            )
            raise
        view.note(f"stopping job {job_id}")
        job = api.stop(job_id)
        view.note(f"job {job_id} is {job.status}")
        return Ended(Exit.STOPPED, None, job)
    return ended_of(view, job, results, has_result)


def listed(nodes: Mapping[str, str]) -> str:
    """Return the nodes that a check keeps out, and why, in one line."""
    return ", ".join(f"{node} ({reason})" for node, reason in sorted(nodes.items()))


def ended_of(view: View, job: Job, results: list[dict[str, Any]], has_result: bool = True) -> Ended:
    """Return the end of a job, and show why it has no result."""
    view.release()
    code = exit_code(job)
    if code == Exit.ERROR or (not results and (has_result or code != Exit.OK)):
        view.failed()
    # Ray reports errors that a driver cannot: no such node, no interpreter, out of memory.
    lines = job.message.strip().splitlines() or ["no reason given"]
    reason = lines[0] if job.exit_code is not None else "\n".join(lines[-REASON_LINES:])
    if has_result and not results and code != Exit.STOPPED:
        view.note(f"job {job.id} {job.status} without a result: {reason}")
        code = code or Exit.ERROR
    elif not has_result:
        if job.status in ("FAILED", UNKNOWN) and job.exit_code is None:
            view.note(reason)
        view.note(f"job {job.id} {job.status}, exit code {code}")
    return Ended(code, results[-1] if results else None, job)
