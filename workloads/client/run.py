"""Run a workload: submit it, follow its log, stop it on Ctrl-C, and return its result and exit code."""

from __future__ import annotations

import json
import logging
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.outputs import Outputs
from workloads.client.api import Api, Job
from workloads.client.follow import exit_code, follow
from workloads.client.stack import refuse_jobs
from workloads.client.view import View
from workloads.events import Event, parse
from workloads.exits import Exit, WorkloadError, last_line

PACKAGE = Path(__file__).resolve().parents[1]
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


@dataclass(frozen=True)
class Request:
    """`python -m module arguments` on a stack's cluster, as a job of the given kind (`nccl`, `train`).

    `listener` receives every event before the view.
    """

    kind: str
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    listener: Callable[[Event], None] | None = None


def run(outputs: Outputs, request: Request, view: View) -> Ended:
    """Submit the request, follow it to its end, and return how it ended.

    Ctrl-C stops the job and waits until it is stopped, so that it does not keep its GPUs.
    """
    api, job_id = _submit(outputs, request)
    view.note(f"job {job_id} on {outputs.ray.cluster}")
    return attend(api, job_id, view, stop_on_interrupt=True, listener=request.listener)


def detach(outputs: Outputs, request: Request) -> str:
    """Submit the request, and return the job's ID."""
    return _submit(outputs, request)[1]


def _submit(outputs: Outputs, request: Request) -> tuple[Api, str]:
    job_id = new_id(request.kind)
    # On `local`, nodes run in this environment, whose interpreter may not be on their PATH.
    python = sys.executable if outputs.target == "local" else "python"
    command = shlex.join([python, "-m", request.module, *request.arguments])
    return submit(outputs, job_id, command, request.environment, {"workload": request.kind}), job_id


def new_id(kind: str) -> str:
    """Return a submission ID that sorts by time: `nccl-20261121-130501-a1b2c3`."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def submit(
    outputs: Outputs,
    job_id: str,
    command: str,
    environment: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Api:
    """Start `command` on the stack's cluster under `job_id`, with this package importable as `workloads`.

    WorkloadError if Ray does not answer, accepts no jobs in the stack's mode, or rejects this one.
    """
    refuse_jobs(outputs)
    api = Api.of(outputs)
    # Called first, because Ray's client obscures a rejected token and a closed port.
    api.version()

    from ray.job_submission import JobSubmissionClient  # takes 1.6 s

    client = JobSubmissionClient(api.address, headers=api.headers)
    # Ray's client sets its own level to INFO and logs every package.
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with staged_package() as folder:
        try:
            client.submit_job(
                entrypoint=command,
                submission_id=job_id,
                runtime_env={"working_dir": str(folder), "env_vars": JOB_ENVIRONMENT | dict(environment or {})},
                metadata=dict(metadata or {}),
            )
        except RuntimeError as error:
            raise WorkloadError(f"Ray refused job {job_id}: {last_line(error)}") from error
    return api


@contextmanager
def staged_package() -> Iterator[Path]:
    """Copy this package's sources, and nothing else, to a folder for the cluster (some 100 KB)."""
    with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
        shutil.copytree(PACKAGE, Path(folder) / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        yield Path(folder)


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
        if event is None:
            if not RAY_PREAMBLE.search(line):
                view.line(line)
        elif event["kind"] == "result":
            results.append(event["result"])
        else:
            if listener is not None:
                listener(event)
            view.event(event)

    try:
        with view:
            job = follow(api, job_id, on_line)
    except KeyboardInterrupt:
        if not stop_on_interrupt:
            view.note(f"job {job_id} keeps running: rdma-ray stop {job_id} ends it")
            raise
        view.note(f"stopping job {job_id}")
        api.stop(job_id)
        job = api.wait_stopped(job_id)
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


def write_json(result: Mapping[str, Any], where: str) -> None:
    """Write the result as JSON to a file, or to stdout (`-`)."""
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        write_file(Path(where), text)


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file and its parent folders, and return its path. WorkloadError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise WorkloadError(f"cannot write {path}: {error.strerror}") from error
    return path
