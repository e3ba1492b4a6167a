"""Run a command's job: submit it, follow its log, stop it on Ctrl-C, show its result, and return the exit code."""

from __future__ import annotations

import logging
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.outputs import Outputs
from infra.terminal import printable
from workloads.client.api import Api, Job, exit_code, follow
from workloads.client.connection import Connection
from workloads.client.view import Terminal, View, present
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.evidence.raw_log import LogFolder
from workloads.options import JobOptions
from workloads.results import Event, parse

UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # what malformed data raises
LONGEST_LINE = 10_000  # characters of a log line that are shown
PACKAGE = Path(__file__).resolve().parents[1]
JOBS_RESULT = "what the job reported"
# First lines that Ray writes to every job's log: the start, and the command with all its arguments.
RAY_PREAMBLE = re.compile(r"^\S+ \S+\s+INFO job_manager\.py:|^Running entrypoint for job ")
JOB_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",  # Ray drops similar lines, such as the events of two epochs
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # else every line of a Train worker is printed twice
}


@dataclass(frozen=True)
class Ended:
    """Finished job: its exit code, and the driver's result if there is one."""

    code: int
    result: dict[str, Any] | None
    job: Job


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Kind of job.

    Args:
        driver: Module that runs on the cluster, with the request as its argument.
        view: Display of its progress.
        read: Function of its result as JSON and the stack's machine type (to judge it).
        show: Function that prints the result.
        write: Function that writes the files of `--out DIR`, and returns a line for each.
    """

    driver: str
    view: View
    read: Callable[[dict[str, Any], str | None], Any]
    show: Callable[[Any, Console], None]
    write: Callable[[Any, Path], Iterable[object]] = lambda _result, _folder: ()


def kind_of(name: str) -> Kind:
    """Return the kind with this name. Jobs of unknown kinds show their log and have no result."""
    terminal = Terminal(stderr=True)
    match name:
        case "nccl":
            from workloads.nccl import report, result
            from workloads.nccl.judge.verdict import judged

            return Kind(
                driver="workloads.nccl.driver",
                view=report.BenchView(terminal),
                read=lambda found, machine: judged(result.Result.of(found, JOBS_RESULT), machine),
                show=report.show,
                write=_writer("workloads.nccl.page.page"),
            )
        case "multigpu":
            from workloads.nccl import report, result

            return Kind(
                driver="workloads.nccl.multigpu",
                view=report.BenchView(terminal),
                read=lambda found, _: result.MultiGpuResult.of(found, JOBS_RESULT),
                show=report.show_multigpu,
            )
        case "hunt":
            from workloads.nccl.hunt import report as hunt
            from workloads.nccl.hunt.result import HuntResult

            return Kind(
                driver="workloads.nccl.hunt.driver",
                view=hunt.HuntView(terminal),
                read=lambda found, _: HuntResult.of(found, JOBS_RESULT),
                show=hunt.show,
                write=lambda found, folder: [f"written: {file}" for file in hunt.write(found, folder)],
            )
        case "train":
            from workloads.train import report as train
            from workloads.train.result import Result

            return Kind(
                driver="workloads.train.driver",
                view=train.TrainView(terminal),
                read=lambda found, _: Result.of(found, JOBS_RESULT),
                show=train.show,
                write=_writer("workloads.train.plot"),
            )
        case _:

            def unknown(*_: Any) -> Any:
                raise WorkloadError(f"{name!r} is no kind of job with a result")

            return Kind(driver="", view=View(), read=unknown, show=unknown)


def _writer(module: str) -> Callable[[Any, Path], Iterable[object]]:
    """Return the function `write_report` of a module, imported when it is called: matplotlib takes a second."""
    return lambda result, folder: import_module(module).write_report(result, folder)


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
            f"--detach does not wait for a result: leave out {' and '.join(given)}, or --detach; get the result later"
            " by `rdma-ray logs ID --json FILE`"
        )
    folder = LogFolder(logs) if logs else None
    kind, job_id = kind_of(name), new_id(name)
    # On `local`, nodes run in this environment, whose interpreter may not be on their PATH.
    python = sys.executable if stack.outputs.target == "local" else "python"
    command = shlex.join([python, "-m", kind.driver, request])
    api = stack.accepting_jobs()
    submit(api, job_id, command, environment, {"workload": name})
    if job.detach:
        print(f"job {job_id} runs: rdma-ray logs {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
        print(job_id)
        return Exit.OK
    kind.view.note(f"job {job_id} on {stack.outputs.ray.cluster}")
    try:
        ended = attend(api, job_id, kind.view, stop_on_interrupt=True, listener=folder.take if folder else None)
        return conclude(stack.outputs, ended, kind, job.json_file, out)
    finally:
        if folder is not None:
            print(folder.summary(), file=sys.stderr)


def conclude(outputs: Outputs, ended: Ended, kind: Kind, json_file: str | None, out: Path | None = None) -> int:
    """Judge and show the result, write it where requested, and return the exit code.

    WorkloadError if it is no result of this kind: anything on the cluster may write to the job's log.
    """
    if ended.result is None:
        return ended.code
    origin = {
        "job": ended.job.id,
        "cluster": outputs.ray.cluster,
        "command": ["rdma-ray", *map(printable, sys.argv[1:])],
    }
    try:
        result = kind.read(ended.result | origin, outputs.machine)
        present(result, kind.show, result.model_dump(mode="json", by_alias=True), json_file)
        for line in kind.write(result, out) if out is not None else ():
            print(line, file=sys.stderr)
    except UNREADABLE as error:
        says = f"the result of job {ended.job.id} contradicts itself ({type(error).__name__}: {last_line(error)})"
        raise WorkloadError(f"{says}: see its log by `rdma-ray logs {ended.job.id}`") from None
    return int(result.exit_code)


def new_id(kind: str) -> str:
    """Return a submission ID that sorts by time: `nccl-20261121-130501-a1b2c3`."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def submit(
    api: Api,
    job_id: str,
    command: str,
    environment: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Start `command` on the cluster under `job_id`, with this package importable as `workloads`.

    WorkloadError if Ray does not answer, or rejects the job.
    """
    # Called first, because Ray's client obscures a rejected token and a closed port.
    api.version()

    from ray.job_submission import JobSubmissionClient  # takes 1.6 s

    client = JobSubmissionClient(api.address, headers=api.headers)
    # Ray's client sets its own level to INFO and logs every package.
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
        # This package's sources and nothing else, some 100 KB.
        shutil.copytree(PACKAGE, Path(folder) / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        try:
            client.submit_job(
                entrypoint=command,
                submission_id=job_id,
                runtime_env={"working_dir": folder, "env_vars": JOB_ENVIRONMENT | dict(environment or {})},
                metadata=dict(metadata or {}),
            )
        except RuntimeError as error:
            raise WorkloadError(f"Ray refused job {job_id}: {last_line(error)}") from error


def attend(
    api: Api,
    job_id: str,
    view: View,
    stop_on_interrupt: bool,
    listener: Callable[[Event], None] | None = None,
) -> Ended:
    """Follow a job to its end. Ctrl-C stops the job if `stop_on_interrupt`, else only this function."""
    results: list[dict[str, Any]] = []

    def on_line(line: str) -> None:
        event = parse(line)
        if event is not None and event["kind"] == "result" and isinstance(event.get("result"), dict):
            results.append(event["result"])
            return
        # Anything on the cluster may write to the log: an event that lacks what its view shows is a line of text.
        with suppress(*UNREADABLE):
            if event is not None and event["kind"] != "result":
                if listener is not None:
                    listener(event)
                view.event(event)
                return
        if not RAY_PREAMBLE.search(line):
            more = len(line) - LONGEST_LINE
            view.line(line if more <= 0 else f"{line[:LONGEST_LINE]} … ({more} more characters)")

    try:
        with view:
            job = follow(api, job_id, on_line)
    except KeyboardInterrupt:
        if not stop_on_interrupt:
            view.note(f"job {job_id} keeps running: rdma-ray stop {job_id} ends it")
            raise
        view.note(f"stopping job {job_id}")
        job = api.stop(job_id)
        view.note(f"job {job_id} is {job.status}")
        return Ended(Exit.STOPPED, None, job)
    code = exit_code(job)
    if code == Exit.ERROR or not results:
        view.failed()
    if not results and code != Exit.STOPPED:
        # Ray reports errors that a driver cannot: no such node, no interpreter, out of memory.
        reason = (job.message.strip().splitlines() or ["no reason given"])[0]
        view.note(f"job {job_id} {job.status} without a result: {reason}")
        code = code or Exit.ERROR
    return Ended(code, results[-1] if results else None, job)
