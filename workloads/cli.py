"""`rdma-ray`: the command line over a stack that is up. Heavy imports stay inside the commands, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from workloads.exits import Exit, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from infra.outputs import Outputs
    from workloads.client.run import View

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
    factor: Annotated[int | None, typer.Option("-f", "--factor", help="Step.  [default: 4 on CPUs, 2 on GPUs]")] = None,
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
    from workloads.nccl.report import BenchView, show

    view = BenchView(_console(stderr=True))
    _workload(outputs, "nccl", "workloads.nccl.driver", [spec.to_json()], view, show, json_file, detach)


def _outputs(stack: str | None, file: Path | None) -> Outputs:
    from workloads.client.stack import read_outputs

    return read_outputs(stack, file)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _workload(
    outputs: Outputs,
    kind: str,
    module: str,
    arguments: Sequence[str],
    view: View,
    show: Callable[[dict[str, Any], Console], None],
    json_file: str | None,
    detach: bool,
) -> None:
    """Submit, follow, show the result and leave with the driver's exit code."""
    from workloads.client import run

    job_id = run.new_id(kind)
    if detach:
        if json_file:
            raise WorkloadError("--detach does not wait for a result, so that --json has nothing to write")
        run.detach(outputs, kind, module, arguments, view, job_id)
        return
    ended = run.run(outputs, kind, module, arguments, view, job_id)
    if ended.result is not None:
        result = ended.result | {"job": job_id, "cluster": outputs.ray.cluster, "command": ["rdma-ray", *sys.argv[1:]]}
        show(result, _console(stderr=json_file == "-"))
        if json_file:
            run.write_json(result, json_file)
    raise typer.Exit(ended.code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the process's exit code. Usage errors are 1: 2 means a result below what was asked."""
    try:
        code = app(args=arguments, standalone_mode=False)
        return code if isinstance(code, int) else Exit.OK
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return Exit.ERROR
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return error.code
    except (click.Abort, KeyboardInterrupt):
        return Exit.STOPPED


if __name__ == "__main__":
    sys.exit(main())
