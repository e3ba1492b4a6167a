"""`rdma-ray`: command line for a stack that is up.

Commands load on first use to keep help fast. A command's help is its docstring: a summary of one line in the
imperative, the details that a user needs, one example, and the exit codes (tests/workloads/client/test_help.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from cyclopts import App, CycloptsError, Group, Parameter

from infra.project import version
from infra.terminal import printable
from workloads.exits import Exit, WorkloadError
from workloads.options import add, json_to_stdout, usage_error


def default_text(value: object) -> str | None:
    """Return a default as help shows it, or None for a default that means "not set"."""
    return None if value is None or value is False or value in ((), "") else str(value)


RENDERED = ("run", "bench", "train")
"""Commands that `rdma-ray render` renders."""
CONNECT, RUN, WATCH, MEASURE = (
    Group(title, sort_key=order)
    for order, title in enumerate(("Set up and connect", "Run", "Watch", "Measure"), start=1)
)
app = App(
    name="rdma-ray",
    help="Connect to the Ray cluster of a stack, run jobs on it, watch it, and measure its network.\n\n"
    "`rdma-ray COMMAND --help` shows a command's options, an example and its exit codes.\n"
    "`rdma-ray --version` shows the version.",
    help_format="plaintext",  # keeps line breaks, and does not treat brackets as markup
    version=version,
    # A flag has a negative form only if it defines one.
    default_parameter=Parameter(negative=(), show_default=default_text),
)
app["--help"].show = app["--version"].show = False

add(app, "workloads.client.plan:plan", group=CONNECT)
add(app, "workloads.preflight.commands:preflight", group=CONNECT)
add(app, "workloads.preflight.capacity:capacity", group=CONNECT)
add(app, "workloads.image.commands:image", group=CONNECT)
add(app, "workloads.client.commands:outputs", group=CONNECT)
add(app, "workloads.client.commands_connect:dashboard", group=CONNECT)
add(app, "workloads.client.commands_connect:serve", group=CONNECT)
add(app, "workloads.shell.commands:forward", group=CONNECT)
add(app, "workloads.client.commands_connect:kubeconfig", group=CONNECT)
add(app, "workloads.run.commands:run", group=RUN)
add(app, "workloads.train.commands:train", group=RUN)
add(app, "workloads.render.commands:render", group=RUN)
add(app, "workloads.slurm.commands:slurm", group=RUN)
add(app, "workloads.client.commands:jobs", group=RUN, name="list")
add(app, "workloads.client.commands:logs", group=RUN)
add(app, "workloads.client.commands:attach", group=RUN)
add(app, "workloads.client.commands:stop", group=RUN)
add(app, "workloads.shell.commands:shell", group=RUN)
add(app, "workloads.client.commands:status", group=WATCH)
add(app, "workloads.monitor.commands:top", group=WATCH)
add(app, "workloads.doctor.commands:doctor", group=WATCH)
add(app, "workloads.doctor.commands:inspect", group=WATCH)
add(app, "workloads.feedback.commands:evidence", group=WATCH)
add(app, "workloads.nccl.commands:bench", group=MEASURE)
app.register_install_completion_command(
    group=CONNECT,
    help="Install completion for bash, zsh or fish.\n\n"
    "It completes commands, options, their values and the names of stacks. Install it\n"
    "again after an update of this project.\n\n"
    "Example: rdma-ray --install-completion\n"
    "Exit codes: 0 installed, 1 the shell is unknown.",
)


BROKEN_PIPE = 141  # as shells report SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code of the process.

    Usage errors are 1, because 2 is a result below what was requested; so is output that cannot be written, such as on
    a full disk.
    """
    _occupy_streams()
    try:
        code = _run(prepared(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        sys.stderr.flush()
        return code
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        try:
            what = "cannot write the output" if error.filename is None else error.filename
            print(printable(f"{what}: {error.strerror or error}"), file=sys.stderr, flush=True)
        except OSError:
            _discard(sys.stderr)
        return Exit.ERROR


def _run(tokens: list[str]) -> int:
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


def _occupy_streams() -> None:
    """Open what the user closed (`>&-`).

    Without a stderr, Python prints errors to stdout. A socket would get the number of a closed stream, and its text.
    """
    if sys.stdout is None:
        while (last := os.open(os.devnull, os.O_RDONLY)) < 1:
            pass
        sys.stdout = os.fdopen(last, "w")  # to write is an error, as to a closed stream
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _discard(stream: TextIO) -> None:
    """Drop what a stream still holds: at its end, Python would try again to write it, and complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepared(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with `--` before the command of `render`, and as `json_to_stdout` returns them.

    A second `--` for `shell` keeps its command apart from the words before, which may be none.
    """
    if arguments[:1] == ["render"]:
        starts = (index for index, word in enumerate(arguments) if index > 1 and word in RENDERED)
        at = min((*starts, len(arguments)))
        arguments = [*arguments[:at], *([] if "--" in arguments[:at] else ["--"]), *arguments[at:]]
    if arguments[:1] == ["shell"] and "--" in arguments:
        at = arguments.index("--")
        arguments = [*arguments[:at], "--", *arguments[at:]]
    return json_to_stdout(arguments)


if __name__ == "__main__":
    sys.exit(main())
