"""`rdma-ray`: command line for a stack that is up.

Slow imports, and the `bench` and `train` commands, load on first use to keep help fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, JsonFile, ResultOptions, StackOptions

JobId = Annotated[str, Parameter(help="ID of the job: see `rdma-ray list`.", metavar="ID")]


def default_text(value: object) -> str | None:
    """Return a default as help shows it, or None for a default that means "not set"."""
    return None if value is None or value is False or value in ((), "") else str(value)


app = App(
    name="rdma-ray",
    help="Benchmark, train on and inspect the Ray cluster of a stack that is up.",
    help_format="plaintext",  # keeps line breaks, and does not treat brackets as markup
    version_flags=(),
    # A flag has a negative form only if it defines one.
    default_parameter=Parameter(negative=(), show_default=default_text),
)
app.command("workloads.nccl.commands:bench", name="bench", help="Measure the network between the ranks.")
app.command("workloads.train.commands:train", name="train", help="Train a model, with checkpoints.")


@app.command
def status(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """Show the cluster: its nodes, their CPUs and GPUs, and the jobs that run."""
    from workloads.client import cluster

    cluster.status(options)


@app.command(name="list")
def list_jobs(*, options: Flat[ResultOptions] = ResultOptions()) -> None:
    """List the jobs that the cluster remembers, newest first."""
    from workloads.client import cluster

    cluster.jobs(options)


@app.command
def logs(job_id: JobId, /, *, options: Flat[ResultOptions] = ResultOptions()) -> int:
    """Follow a job from its first line to its end, and exit with its code. Ctrl-C leaves the job running."""
    from workloads.client import run
    from workloads.client.api import Api
    from workloads.client.stack import read_outputs

    outputs = read_outputs(options)
    api = Api.of(outputs)
    kind = run.kind_of(api.job(job_id).metadata.get("workload", ""))
    ended = run.attend(api, job_id, kind.view, stop_on_interrupt=False)
    return run.conclude(outputs, ended, kind, options.json_file)


@app.command
def stop(job_id: JobId, /, *, options: Flat[StackOptions] = StackOptions()) -> None:
    """Stop a job, and wait until it is stopped."""
    from workloads.client.api import Api
    from workloads.client.stack import read_outputs

    api = Api.of(read_outputs(options))
    if (job := api.job(job_id)).terminal:
        print(f"job {job_id} is over already: {job.status}", file=sys.stderr)
    else:
        print(f"job {job_id}: {api.stop(job_id).status}", file=sys.stderr)


@app.command
def outputs(*, options: Flat[StackOptions] = StackOptions()) -> None:
    """Print all of the stack's outputs as JSON: what does not apply is null, secrets are masked."""
    from workloads.client.stack import read_outputs

    print(read_outputs(options).model_dump_json(by_alias=True, indent=2))


@app.command
def plan(
    file: Annotated[Path, Parameter(help="A Pulumi.<stack>.yaml.", metavar="FILE")],
    /,
    *,
    json_file: JsonFile = None,
) -> None:
    """Validate a stack file and show what it becomes, without an engine or a cloud.

    Exit codes: 0 valid, 1 it has problems, which are all printed.
    """
    from workloads.client import plan as view

    view.plan(file, json_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code of the process.

    Usage errors are 1, because 2 is a result below what was requested.
    """
    tokens = json_to_stdout(sys.argv[1:] if arguments is None else arguments)
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value") or Exit.OK
    except CycloptsError as error:
        print(usage_error(error), file=sys.stderr)
        return Exit.ERROR
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return error.code
    except SystemExit as leave:
        return int(leave.code or 0)


def json_to_stdout(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with `-` inserted after each `--json` that has no file."""
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        found.append(argument)
        if argument == "--json" and following.startswith("-") and following != "-":
            found.append("-")
    return found


def usage_error(error: CycloptsError) -> str:
    """Return the message of a usage error: the option, its value, and what is allowed."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return str(error)
    names = {child.keys[-1]: child.name for child in (error.argument.children if error.argument else ()) if child.parse}
    problems = []
    for problem in error.__cause__.errors():
        message = problem["msg"].removeprefix("Value error, ")
        if problem["loc"]:
            name = names.get(str(problem["loc"][0]), problem["loc"][0])
            message = f"{name} {problem['input']}: {message[:1].lower()}{message[1:]}"
        problems.append(message)
    return "\n".join(problems)


if __name__ == "__main__":
    sys.exit(main())
