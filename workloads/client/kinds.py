"""Kinds of jobs, by the name in a job's metadata: each is a function in the package that it belongs to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TextIO

from rich.console import Console

from workloads.client.output import DEFAULT_LINES, LineOptions
from workloads.terminal.progress import View

JOBS_RESULT = "what the job reported"
KINDS = {
    "nccl": "workloads.nccl.job:nccl",
    "multigpu": "workloads.nccl.job:multigpu",
    "hunt": "workloads.nccl.job:hunt",
    "train": "workloads.train.job:train",
}
"""Module and function that returns a `JobKind`, imported when a job of this kind runs or is shown."""
COMMAND = "workloads.run.job:run"
"""The kind of every other job."""


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """Kind of job.

    Args:
        driver: Module that runs on the cluster, with the request as its argument.
        view: Display of its progress.
        read: Function of its result as JSON and the stack's machine type (to judge it).
        show: Function that prints the result.
        stderr: Whether the result is shown on stderr, because stdout has the command's own lines.
        write: Function that writes the files of `--out DIR`, and returns a line for each.

    `read` is None for a command that has no result: the job's exit code counts.
    """

    driver: str
    view: View
    read: Callable[[dict[str, Any], str | None], Any] | None
    show: Callable[[Any, Console], None] = lambda _result, _console: None
    stderr: bool = False
    write: Callable[[Any, Path], Iterable[object]] = lambda _result, _folder: ()


def kind_of(job: Mapping[str, str], lines: LineOptions = DEFAULT_LINES, output: TextIO | None = None) -> JobKind:
    """Return the kind of a job by its metadata. A job of an unknown kind is a command without ranks.

    Args:
        lines: Lines of the user's code that are shown.
        output: Stream of these lines; None for that of the process.
    """
    found: JobKind = resolve_name(KINDS.get(job.get("workload", ""), COMMAND))(job, lines, output or sys.stdout)
    return found


def writer(module: str) -> Callable[[Any, Path], Iterable[object]]:
    """Return the function `write_report` of a module, imported when it is called: matplotlib takes a second."""
    return lambda result, folder: resolve_name(f"{module}:write_report")(result, folder)
