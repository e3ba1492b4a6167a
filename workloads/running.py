"""From a command to its end: the stack's outputs, the job, its progress and result, the exit code.

Heavy imports (ray, torch, rich, pydantic) stay inside the functions, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workloads.exits import Exit, WorkloadError
from workloads.options import JobOptions, StackOptions

if TYPE_CHECKING:
    from rich.console import Console

    from infra.outputs import Outputs
    from workloads.client.api import Api
    from workloads.client.run import Ended, Request
    from workloads.client.view import View

    Show = Callable[[Any, Console], None]
    Finish = Callable[[Any], None]


def read_outputs(options: StackOptions) -> Outputs:
    from workloads.client import stack

    return stack.read_outputs(options.stack, options.outputs_file)


def console(stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def api(outputs: Outputs) -> Api:
    from workloads.client.api import Api

    return Api.of(outputs)


def view(kind: str) -> tuple[View, Show]:
    """How a kind of workload shows its progress and its result; a job of another kind shows its log."""
    terminal = console(stderr=True)
    match kind:
        case "nccl":
            from workloads.nccl import report as bench_report

            return bench_report.BenchView(terminal), bench_report.show
        case "multigpu":
            from workloads.nccl import report as bench_report

            return bench_report.BenchView(terminal), bench_report.show_multigpu
        case "hunt":
            from workloads.nccl.hunt import report as hunt_report

            return hunt_report.HuntView(terminal), hunt_report.show
        case "train":
            from workloads.train import report as train_report

            return train_report.TrainView(terminal), train_report.show
        case _:
            from workloads.client.view import View

            return View(), lambda _result, _console: None


def read_result(kind: str, document: dict[str, Any], machine: str | None) -> Any:
    """Return the model of a job's result. A benchmark's has the verdict for the stack's machine type."""
    match kind:
        case "nccl":
            from workloads.nccl.judge.verdict import judged
            from workloads.nccl.result import Result

            return judged(Result.model_validate(document), machine)
        case "multigpu":
            from workloads.nccl.result import MultiGpuResult

            return MultiGpuResult.model_validate(document)
        case "hunt":
            from workloads.nccl.hunt.result import HuntResult

            return HuntResult.model_validate(document)
        case "train":
            from workloads.train.result import Result as TrainResult

            return TrainResult.model_validate(document)
        case _:
            raise WorkloadError(f"{kind!r} is no kind of job with a result")


def workload(outputs: Outputs, request: Request, job: JobOptions, finish: Finish | None = None) -> int:
    """Submit, follow, show the result and return the exit code. `finish` gets the result before that."""
    from workloads.client import run

    if job.detach:
        if job.json_file:
            raise WorkloadError("--detach does not wait for a result: get it later by `rdma-ray logs ID --json FILE`")
        job_id = run.detach(outputs, request)
        print(f"job {job_id} runs: rdma-ray logs {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
        print(job_id)
        return Exit.OK
    progress, show = view(request.kind)
    return conclude(outputs, run.run(outputs, request, progress), request.kind, show, job.json_file, finish)


def conclude(
    outputs: Outputs, ended: Ended, kind: str, show: Show, json_file: str | None, finish: Finish | None = None
) -> int:
    """Judge and show the result, write it where requested, and return the exit code."""
    from workloads.client.run import write_json

    code = ended.code
    if ended.result is not None:
        described = ended.result | {
            "job": ended.job.id,
            "cluster": outputs.ray.cluster,
            "command": ["rdma-ray", *sys.argv[1:]],
        }
        result = read_result(kind, described, outputs.machine)
        code = result.exit_code
        show(result, console(stderr=json_file == "-"))
        if json_file:
            write_json(result.model_dump(mode="json", by_alias=True), json_file)
        if finish is not None:
            finish(result)
    return code
