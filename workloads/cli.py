"""`rdma-ray`: the command line over a stack that is up.

Heavy imports (ray, torch, rich) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workloads.exits import Exit, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from infra.outputs import Outputs
    from workloads.client.api import Api
    from workloads.client.run import Ended, Request, View

    Show = Callable[[dict[str, Any], Console], None]

app = typer.Typer(
    name="rdma-ray",
    help="Benchmark, train on and look into the Ray cluster of a stack that is up.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, the token among them
    add_completion=False,
)
bench = typer.Typer(name="bench", help="Measure the network between the ranks.", no_args_is_help=True)
train = typer.Typer(name="train", help="Train a model, with checkpoints.", no_args_is_help=True)
app.add_typer(bench)
app.add_typer(train)

Stack = Annotated[
    str | None,
    typer.Option("--stack", "-s", help="The stack, as `make up STACK=…` names it.  [default: $STACK, else local]"),
]
OutputsFile = Annotated[
    Path | None,
    typer.Option(
        "--outputs",
        envvar="RDMA_RAY_OUTPUTS",
        help="Read the stack's outputs from this JSON file instead of asking Pulumi.",
    ),
]
JsonFile = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON to this file; `-` is stdout.", metavar="FILE")
]
Detach = Annotated[bool, typer.Option("--detach", help="Submit and return at once; Ctrl-C otherwise stops the job.")]
JobId = Annotated[str, typer.Argument(help="The job's id: see `rdma-ray list`.", metavar="ID")]


@bench.command("nccl")
def bench_nccl(
    op: Annotated[
        list[str] | None, typer.Option(help="Operation to measure; may be given more than once.  [default: all]")
    ] = None,
    begin: Annotated[str, typer.Option("-b", "--begin", help="Smallest size.")] = "1K",
    end: Annotated[
        str | None, typer.Option("-e", "--end", help="Largest size.  [default: 4M on CPUs, 8G on GPUs]")
    ] = None,
    factor: Annotated[int | None, typer.Option("-f", "--factor", help="Step.  [default: 8 on CPUs, 2 on GPUs]")] = None,
    iterations: Annotated[int, typer.Option("-n", "--iterations", min=1, help="Timed runs of each row.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", min=0, help="Untimed runs before each row.")] = 5,
    dtype: Annotated[str, typer.Option(help="fp32, fp16 or bf16.")] = "fp32",
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes.  [default: those the stack keeps]")] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Ranks per node.  [default: its GPUs, else its CPUs]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds a row may take before it counts as a hang.")] = 300,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the nodes.")] = 1800,
    inject_fault: Annotated[
        str | None, typer.Option(hidden=True, help="Rehearse a failure: corrupt:RANK or hang:RANK.")
    ] = None,
    json_file: JsonFile = None,
    detach: Detach = False,
    stack: Stack = None,
    outputs_file: OutputsFile = None,
) -> None:
    """Collectives between the ranks of the cluster, every element checked.

    NCCL with a rank per GPU, gloo with a rank per CPU where there are none. Exit codes: 0 measured and right, 1 error,
    3 wrong data, 4 no answer within --timeout.
    """
    from workloads.client.run import Request
    from workloads.nccl.request import request

    outputs = _outputs(stack, outputs_file)
    spec = request(
        outputs,
        ops=op or ["all"],
        begin=begin,
        end=end,
        factor=factor,
        iterations=iterations,
        warmup=warmup,
        dtype=dtype,
        nodes=nodes,
        per_node=per_node,
        timeout_s=timeout,
        wait_s=wait,
        inject_fault=inject_fault,
    )
    _workload(outputs, Request("nccl", "workloads.nccl.driver", [spec.to_json()]), json_file, detach)


@train.command("digits")
def train_digits(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in all, those of a resumed run included.")] = 8,
    workers: Annotated[int | None, typer.Option(min=1, help="Workers.  [default: one per GPU or CPU slot]")] = None,
    name: Annotated[str | None, typer.Option(help="Name of a new run.  [default: by date and time]")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with the run of this name.", metavar="NAME")] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Path or URI that every node sees.  [default: the stack's storage]")
    ] = None,
    min_accuracy: Annotated[float, typer.Option(min=0, max=1, help="Exit with 2 below this test accuracy.")] = 0.97,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the workers.")] = 1800,
    json_file: JsonFile = None,
    detach: Detach = False,
    stack: Stack = None,
    outputs_file: OutputsFile = None,
) -> None:
    """A small ConvNet on 1797 real handwritten digits, data parallel over all workers.

    A checkpoint after every epoch, the last two are kept. Exit codes: 0 as accurate as asked, 1 error, 2 less accurate.
    """
    from workloads.client.run import Request
    from workloads.interfaces import interface_of
    from workloads.train.request import environment, request

    outputs = _outputs(stack, outputs_file)
    spec = request(
        outputs,
        epochs=epochs,
        workers=workers,
        name=name,
        resume=resume,
        checkpoint_dir=checkpoint_dir,
        min_accuracy=min_accuracy,
        wait_s=wait,
    )
    variables = environment(spec, interface_of("127.0.0.1") if outputs.target == "local" else None)
    _workload(outputs, Request("train", "workloads.train.driver", [spec.to_json()], variables), json_file, detach)


@app.command()
def status(json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The cluster: its nodes, their CPUs and GPUs, and the jobs that run."""
    from workloads.client import cluster
    from workloads.client.run import write_json

    outputs = _outputs(stack, outputs_file)
    found = cluster.status(outputs)
    cluster.show_status(found, _console(stderr=json_file == "-"))
    if json_file:
        write_json(found, json_file)


@app.command("list")
def list_jobs(json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The jobs that the cluster remembers, the newest first."""
    from workloads.client import cluster
    from workloads.client.run import write_json

    outputs = _outputs(stack, outputs_file)
    found = cluster.jobs(outputs)
    cluster.show_jobs(found, _console(stderr=json_file == "-"))
    if json_file:
        write_json({"jobs": found}, json_file)


@app.command()
def logs(job_id: JobId, json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """Follow a job from its first line to its end; exits with its code. Ctrl-C leaves the job running."""
    from workloads.client.run import attend

    outputs = _outputs(stack, outputs_file)
    api = _api(outputs)
    kind = api.job(job_id).metadata.get("workload", "")
    view, show = _view(kind)
    ended = attend(api, job_id, view, stop_on_interrupt=False)
    _conclude(outputs, ended, show, json_file)


@app.command()
def stop(job_id: JobId, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """Stop a job and wait until it is stopped."""
    api = _api(_outputs(stack, outputs_file))
    if (job := api.job(job_id)).terminal:
        print(f"job {job_id} is over already: {job.status}", file=sys.stderr)
        return
    api.stop(job_id)
    print(f"job {job_id}: {api.wait_stopped(job_id).status}", file=sys.stderr)


@app.command()
def outputs(stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The stack's outputs as JSON, whole: what does not apply is null, secrets are masked."""
    print(_outputs(stack, outputs_file).model_dump_json(by_alias=True, indent=2))


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="A Pulumi.<stack>.yaml.", metavar="FILE")], json_file: JsonFile = None
) -> None:
    """Check a stack file and show what it will become, without an engine or a cloud.

    Exit codes: 0 it can become a cluster, 1 it has problems; all of them are told.
    """
    from infra.plan import plan as planned
    from infra.problems import SettingsError
    from infra.settings import from_stack_file
    from workloads.client import plan as view
    from workloads.client.run import write_json

    try:
        found = planned(from_stack_file(file))
    except OSError as error:
        raise WorkloadError(f"cannot read {file}: {error.strerror}") from error
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None
    if json_file != "-":
        view.show(found, _console(stderr=False))
    if json_file:
        write_json(view.as_json(found), json_file)


def _outputs(stack: str | None, file: Path | None) -> Outputs:
    from workloads.client.stack import read_outputs

    return read_outputs(stack, file)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _api(outputs: Outputs) -> Api:
    from workloads.client.api import Api

    return Api(outputs.ray.jobs, outputs.ray.token, outputs.ray.cluster)


def _view(kind: str) -> tuple[View, Show]:
    """How a kind of workload shows its progress and its result; a job of another kind shows its log."""
    console = _console(stderr=True)
    match kind:
        case "nccl":
            from workloads.nccl import report as bench_report

            return bench_report.BenchView(console), bench_report.show
        case "train":
            from workloads.train import report as train_report

            return train_report.TrainView(console), train_report.show
        case _:
            from workloads.client.run import View

            return View(), lambda _result, _console: None


def _workload(outputs: Outputs, request: Request, json_file: str | None, detach: bool) -> None:
    """Submit, follow, show the result and leave with the driver's exit code."""
    from workloads.client import run

    if detach:
        if json_file:
            raise WorkloadError("--detach does not wait for a result: get it later by `rdma-ray logs ID --json FILE`")
        job_id = run.detach(outputs, request)
        print(f"job {job_id} runs: rdma-ray logs {job_id}, rdma-ray stop {job_id}", file=sys.stderr)
        print(job_id)
        return
    view, show = _view(request.kind)
    _conclude(outputs, run.run(outputs, request, view), show, json_file)


def _conclude(outputs: Outputs, ended: Ended, show: Show, json_file: str | None) -> None:
    from workloads.client.run import write_json

    if ended.result is not None:
        result = ended.result | {
            "job": ended.job.id,
            "cluster": outputs.ray.cluster,
            "command": ["rdma-ray", *sys.argv[1:]],
        }
        show(result, _console(stderr=json_file == "-"))
        if json_file:
            write_json(result, json_file)
    raise Leave(ended.code)


class Leave(SystemExit):
    """A command's own exit code, told apart from typer's 2 for a usage error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the process's exit code. Usage errors are 1: 2 means a result below what was asked."""
    try:
        app(args=arguments, prog_name="rdma-ray")
    except Leave as leave:
        return int(leave.code or 0)
    except SystemExit as leave:
        code = int(leave.code or 0)
        return Exit.ERROR if code == 2 else code
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return error.code
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
