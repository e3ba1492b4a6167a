"""One workload from submission to its result: submit, follow, stop on Ctrl-C, hand back the exit code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.outputs import Outputs
from workloads.client.api import Api, Job
from workloads.client.follow import exit_code, follow
from workloads.client.submit import entrypoint, new_id, submit
from workloads.events import Event, parse
from workloads.exits import Exit, WorkloadError

# Ray's own first lines in every job's log: that it starts, and the command with all its arguments.
RAY_PREAMBLE = re.compile(r"^\S+ \S+\s+INFO job_manager\.py:|^Running entrypoint for job ")


class View:
    """What a workload's progress looks like. The base shows log lines on stderr and swallows events."""

    def event(self, event: Event) -> None:
        """One structured line of the driver."""

    def line(self, text: str) -> None:
        """One ordinary line of the log."""
        print(text, file=sys.stderr, flush=True)

    def failed(self) -> None:
        """The job broke: show what was held back."""

    def note(self, text: str) -> None:
        """Something that this side has to say."""
        self.line(text)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""


@dataclass(frozen=True)
class Ended:
    """A job that is over: the code to exit with, and the driver's result where it got so far as to have one."""

    code: int
    result: dict[str, Any] | None
    job: Job


@dataclass(frozen=True)
class Request:
    """`python -m module arguments` on a stack's cluster, as a job of the given kind (`nccl`, `train`).

    `listener` is told every event besides the view: it takes out of the log what is no progress.
    """

    kind: str
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    listener: Callable[[Event], None] | None = None


def run(outputs: Outputs, request: Request, view: View) -> Ended:
    """Submit the request, follow it to its end, and return how it ended.

    Ctrl-C stops the job and waits until it is stopped, so that nothing holds GPUs that nobody waits for.
    """
    api, job_id = _submit(outputs, request)
    view.note(f"job {job_id} on {outputs.ray.cluster}")
    return attend(api, job_id, view, stop_on_interrupt=True, listener=request.listener)


def detach(outputs: Outputs, request: Request) -> str:
    """Submit and return the job's id at once."""
    return _submit(outputs, request)[1]


def _submit(outputs: Outputs, request: Request) -> tuple[Api, str]:
    job_id = new_id(request.kind)
    command = entrypoint(outputs, request.module, request.arguments)
    return submit(outputs, job_id, command, request.environment, {"workload": request.kind}), job_id


def attend(
    api: Api,
    job_id: str,
    view: View,
    stop_on_interrupt: bool,
    listener: Callable[[Event], None] | None = None,
) -> Ended:
    """Follow a job that is on the cluster; with `stop_on_interrupt`, Ctrl-C ends it, else only the following."""
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
        # Ray's message names what a driver could not: no such node, no interpreter, killed for memory.
        reason = (job.message.strip().splitlines() or ["no reason given"])[0]
        view.note(f"job {job_id} {job.status} without a result: {reason}")
        code = code or Exit.ERROR
    return Ended(code, results[-1] if results else None, job)


def write_json(result: Mapping[str, Any], where: str) -> None:
    """The result as JSON, into a file or (`-`) onto stdout."""
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    try:
        Path(where).write_text(text)
    except OSError as error:
        raise WorkloadError(f"cannot write the result to {where}: {error.strerror}") from error


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, create the folders above it, and return its path.

    Raises:
        WorkloadError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise WorkloadError(f"cannot write {path}: {error.strerror}") from error
    return path
