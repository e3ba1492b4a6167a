"""`rdma-ray`: command line for a stack that is up.

Commands load on first use to keep help fast. A command's help is here, its options are where it is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from infra.terminal import printable
from workloads.exits import Exit, WorkloadError


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
app.command(
    "workloads.client.commands:status",
    help="Show the cluster: its nodes, their CPUs and GPUs, and the jobs that run.",
)
app.command(
    "workloads.client.commands:jobs", name="list", help="List the jobs that the cluster remembers, newest first."
)
app.command(
    "workloads.run.commands:run",
    help="Run your own command on the cluster, follow it, and exit with its code.\n\n"
    "Without --nodes it runs once on the head, as a Ray driver. With --nodes it runs\n"
    "once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.\n"
    "torchrun runs on every node. Ctrl-C leaves the job running.\n\n"
    "Example: rdma-ray run --nodes 2 --secret HF_TOKEN -- torchrun train.py --lr 1e-3\n\n"
    "Exit codes: the command's; 1 also if it did not start, 130 if it was stopped.",
)
app.command(
    "workloads.client.commands:logs",
    help="Follow a job from its first line to its end, and exit with its code. Ctrl-C leaves the job running.\n\n"
    "Example: rdma-ray logs run-20261123-110907-a1b2c3 --rank 3 --since 10m",
)
app.command(
    "workloads.client.commands:attach",
    help="Follow a job from now on to its end, and exit with its code. Ctrl-C leaves the job running.\n\n"
    "Example: rdma-ray attach run-20261123-110907-a1b2c3 --all",
)
app.command(
    "workloads.client.commands:stop",
    help="Stop a job, and wait until it is stopped.\n\n"
    "Its processes get SIGTERM, and SIGKILL after the --grace of its run. Exit codes:\n"
    "0 stopped or over, 1 error.\n\n"
    "Example: rdma-ray stop run-20261123-110907-a1b2c3",
)
app.command(
    "workloads.client.commands:outputs",
    help="Print all of the stack's outputs as JSON: what does not apply is null, secrets are masked.",
)
app.command(
    "workloads.client.commands_connect:dashboard",
    help="Show Ray's dashboard: print its URL, and on a cloud keep a port-forward to it open until Ctrl-C.\n\n"
    "Example: rdma-ray dashboard --stack gke --open\n\n"
    "Exit codes: 0 closed by Ctrl-C (without a port-forward: at once), 1 no connection.",
)
app.command(
    "workloads.client.commands_connect:kubeconfig",
    help="Write the stack's kubeconfig to a file that only you can read, and print the line for your shell.\n\n"
    'Example: eval "$(rdma-ray kubeconfig ~/gke.kubeconfig --stack gke)"\n\n'
    "Exit codes: 0 written, 1 no kubeconfig, or the file has other content.",
)
app.command(
    "workloads.client.plan:plan",
    help="Validate a stack file and show what it becomes, without an engine or a cloud.\n\n"
    "Exit codes: 0 valid, 1 it has problems, which are all printed.",
)
app.command("workloads.nccl.commands:bench", name="bench", help="Measure the network between the ranks.")
app.command("workloads.image.commands:image", name="image", help="Build the container image of a stack.")
app.command("workloads.train.commands:train", name="train", help="Train a model, with checkpoints.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code of the process.

    Usage errors are 1, because 2 is a result below what was requested.
    """
    tokens = json_to_stdout(sys.argv[1:] if arguments is None else arguments)
    try:
        return app(tokens, exit_on_error=False, print_error=False, result_action="return_value") or Exit.OK
    except CycloptsError as error:
        print(printable(usage_error(error)), file=sys.stderr)
        if tokens[:1] == ["run"] and "--" not in tokens:
            print("COMMAND and its options come after `--`: rdma-ray run [OPTIONS] -- COMMAND …", file=sys.stderr)
        return Exit.ERROR
    except WorkloadError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.code
    except SystemExit as leave:
        return int(leave.code or 0)


def json_to_stdout(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with `-` inserted after each `--json` that has no file. What follows `--` stays."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    arguments, found, rest = arguments[:end], [], arguments[end:]
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        found.append(argument)
        if argument == "--json" and following.startswith("-") and following != "-":
            found.append("-")
    return [*found, *rest]


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
