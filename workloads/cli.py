"""`rdma-ray`: the command line over a stack that is up.

Heavy imports (ray, torch, rich) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from workloads import running
from workloads.exits import Exit, WorkloadError
from workloads.nccl.commands import bench
from workloads.options import JobId, JsonFile, OutputsFile, Stack
from workloads.train.commands import train

app = typer.Typer(
    name="rdma-ray",
    help="Benchmark, train on and look into the Ray cluster of a stack that is up.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, the token among them
    add_completion=False,
)
app.add_typer(bench)
app.add_typer(train)


@app.command()
def status(json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The cluster: its nodes, their CPUs and GPUs, and the jobs that run."""
    from workloads.client import cluster
    from workloads.client.run import write_json

    outputs = running.read_outputs(stack, outputs_file)
    found = cluster.status(outputs)
    cluster.show_status(found, running.console(stderr=json_file == "-"))
    if json_file:
        write_json(found, json_file)


@app.command("list")
def list_jobs(json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The jobs that the cluster remembers, the newest first."""
    from workloads.client import cluster
    from workloads.client.run import write_json

    outputs = running.read_outputs(stack, outputs_file)
    found = cluster.jobs(outputs)
    cluster.show_jobs(found, running.console(stderr=json_file == "-"))
    if json_file:
        write_json({"jobs": found}, json_file)


@app.command()
def logs(job_id: JobId, json_file: JsonFile = None, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """Follow a job from its first line to its end; exits with its code. Ctrl-C leaves the job running."""
    from workloads.client.run import attend

    outputs = running.read_outputs(stack, outputs_file)
    api = running.api(outputs)
    kind = api.job(job_id).metadata.get("workload", "")
    view, show = running.view(kind)
    ended = attend(api, job_id, view, stop_on_interrupt=False)
    running.conclude(outputs, ended, kind, show, json_file)


@app.command()
def stop(job_id: JobId, stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """Stop a job and wait until it is stopped."""
    api = running.api(running.read_outputs(stack, outputs_file))
    if (job := api.job(job_id)).terminal:
        print(f"job {job_id} is over already: {job.status}", file=sys.stderr)
        return
    api.stop(job_id)
    print(f"job {job_id}: {api.wait_stopped(job_id).status}", file=sys.stderr)


@app.command()
def outputs(stack: Stack = None, outputs_file: OutputsFile = None) -> None:
    """The stack's outputs as JSON, whole: what does not apply is null, secrets are masked."""
    print(running.read_outputs(stack, outputs_file).model_dump_json(by_alias=True, indent=2))


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
        view.show(found, running.console(stderr=False))
    if json_file:
        write_json(view.as_json(found), json_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the process's exit code. Usage errors are 1: 2 means a result below what was asked."""
    try:
        app(args=arguments, prog_name="rdma-ray")
    except running.Leave as leave:
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
