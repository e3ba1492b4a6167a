"""Run the job of a command: read the stack's outputs, follow the job, show its result, return the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from infra.outputs import Outputs
from workloads.client import run, stack
from workloads.client.run import Ended, Request, write_json
from workloads.client.view import View
from workloads.exits import Exit, WorkloadError
from workloads.options import JobOptions, StackOptions


def read_outputs(options: StackOptions) -> Outputs:
    """Return the outputs of the stack that the options name."""
    return stack.read_outputs(options.stack, options.outputs_file)


def console(stderr: bool) -> Console:
    """Return the terminal's console. With JSON on stdout, everything else goes to stderr."""
    return Console(stderr=stderr)


@dataclass(frozen=True)
class Kind:
    """Display of one kind of job. `read` builds the result from JSON and the stack's machine type (to judge it)."""

    view: View
    read: Callable[[dict[str, Any], str | None], Any]
    show: Callable[[Any, Console], None]


def kind_of(name: str) -> Kind:
    """Return the kind with this name. Jobs of unknown kinds show their log and have no result."""
    terminal = console(stderr=True)
    match name:
        case "nccl":
            from workloads.nccl import report, result
            from workloads.nccl.judge.verdict import judged

            read = result.Result.model_validate
            return Kind(report.BenchView(terminal), lambda found, machine: judged(read(found), machine), report.show)
        case "multigpu":
            from workloads.nccl import report, result

            multigpu = result.MultiGpuResult.model_validate
            return Kind(report.BenchView(terminal), lambda found, _: multigpu(found), report.show_multigpu)
        case "hunt":
            from workloads.nccl.hunt import report as hunt
            from workloads.nccl.hunt.result import HuntResult

            return Kind(hunt.HuntView(terminal), lambda found, _: HuntResult.model_validate(found), hunt.show)
        case "train":
            from workloads.train import report as train
            from workloads.train.result import Result

            return Kind(train.TrainView(terminal), lambda found, _: Result.model_validate(found), train.show)
        case _:

            def unknown(*_: Any) -> Any:
                raise WorkloadError(f"{name!r} is no kind of job with a result")

            return Kind(View(), unknown, unknown)


def workload(outputs: Outputs, request: Request, job: JobOptions, finish: Callable[[Any], None] | None = None) -> int:
    """Submit, follow, show the result and return the exit code. `finish` receives the result at the end."""
    if job.detach:
        if job.json_file:
            raise WorkloadError("--detach does not wait for a result: get it later by `rdma-ray logs ID --json FILE`")
        job_id = run.detach(outputs, request)
        print(f"job {job_id} runs: rdma-ray logs {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
        print(job_id)
        return Exit.OK
    kind = kind_of(request.kind)
    return conclude(outputs, run.run(outputs, request, kind.view), kind, job.json_file, finish)


def conclude(
    outputs: Outputs, ended: Ended, kind: Kind, json_file: str | None, finish: Callable[[Any], None] | None = None
) -> int:
    """Judge and show the result, write it where requested, and return the exit code."""
    if ended.result is None:
        return ended.code
    origin = {"job": ended.job.id, "cluster": outputs.ray.cluster, "command": ["rdma-ray", *sys.argv[1:]]}
    result = kind.read(ended.result | origin, outputs.machine)
    kind.show(result, console(stderr=json_file == "-"))
    if json_file:
        write_json(result.model_dump(mode="json", by_alias=True), json_file)
    if finish is not None:
        finish(result)
    code: int = result.exit_code
    return code
