"""The command that a manifest runs: parsed, and checked as it will be in its entry point. Nothing starts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from pydantic import BaseModel

from workloads.cli import RENDERED, app, prepared
from workloads.exits import WorkloadError
from workloads.options import ResultOptions, StackOptions
from workloads.run.entry import entry_of

FORM = "name a command after the options: run, bench nccl, bench multigpu, bench hunt or train …"
WRITTEN = ("json_file", "out", "logs")
"""Options with a file or folder that the command writes."""


@dataclass(frozen=True)
class Request:
    """A command of `rdma-ray`.

    Args:
        words: The command without `rdma-ray`.
        arguments: Values of its function's parameters.
        given: The values of its options, by the names of the fields.
    """

    words: tuple[str, ...]
    path: tuple[str, ...]
    function: Any
    arguments: Mapping[str, Any]
    given: Mapping[str, Any]

    @staticmethod
    def of(tokens: Sequence[str]) -> Request:
        """Return the request of a command line. WorkloadError if it starts no job, CycloptsError if it is wrong."""
        words = prepared(tokens)
        path = tuple(app.parse_commands(words)[0])
        if not path or path[0] not in RENDERED:
            raise WorkloadError(f"{shlex.join(words[:2]) or 'no command'}: {FORM}")
        function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        bound.apply_defaults()
        models = [value for value in bound.arguments.values() if is_dataclass(value) or isinstance(value, BaseModel)]
        if not any(isinstance(model, ResultOptions) for model in models):
            raise WorkloadError(f"{shlex.join(path)} starts no job: {FORM}")
        given = {name: value for model in models for name, value in vars(model).items()} | dict(bound.arguments)
        return Request(tuple(words), path, function, bound.arguments, given)

    @property
    def entry_point(self) -> list[str]:
        return ["rdma-ray", *self.words]

    @property
    def name(self) -> str:
        """Default name of the job: that of the script, or of the command."""
        command = self.given.get("command") or ()
        scripts = [word for word in command if re.search(r"\.(py|sh)\Z", word)]
        found = PurePath((scripts or command)[0]).stem if command else "-".join(self.path)
        return re.sub(r"[^a-z0-9]+", "-", found.lower()).strip("-") or "run"

    def nodes(self, gpus: int) -> int | None:
        """Return the number of nodes that the command names, whose nodes have `gpus` GPUs; None if it names none."""
        if self.path == ("run",):
            return entry_of(self.given["command"], self.given["nodes"], self.given["per_node"]).nodes
        if workers := self.given.get("workers"):
            return -(-int(workers) // max(1, gpus))
        return self.given.get("nodes")

    def check(self, stack: str) -> None:
        """Run the command up to the start of its driver, in an entry point of this stack.

        Args:
            stack: Description of the stack for the entry point (`infra.outputs.job_stack`).

        WorkloadError: it will not start there; the message names the option.
        """
        outputs_file = os.environ.get("RDMA_RAY_OUTPUTS")
        if self.given["stack"] or str(self.given["outputs"] or outputs_file) != str(outputs_file):
            raise WorkloadError(
                "--stack, --outputs: the command runs on the nodes of the job: choose their stack before the command"
            )
        if self.given.get("dry_run"):
            raise WorkloadError("--dry-run: render starts nothing: omit it")
        arguments: dict[str, Any] = {
            name: replace(value, rendered=stack, stack=None, outputs=None, team=None)
            if isinstance(value, StackOptions)
            else value
            for name, value in self.arguments.items()
        }
        command = arguments.pop("command", ())
        self.function(*command, **arguments)

    def check_files(self, shared: str | None) -> None:
        """Refuse files that the pods do not have. `shared` is the path of their shared folder; None without one."""
        where = (
            f"name a file in the shared folder {shared}" if shared else "the stack has no shared folder: leave it out"
        )
        for field in WRITTEN:
            value, option = self.given.get(field), f"--{field.removesuffix('_file')}"
            if not isinstance(value, (str, Path)) or (field == "json_file" and value == "-"):
                continue
            if shared is None or PurePosixPath(shared) not in PurePosixPath(value).parents:
                raise WorkloadError(f"{option} {value}: it would be lost with its pod: {where}")
        if file := self.given.get("env_file"):
            raise WorkloadError(
                f"--env-file {file}: the pods do not have it: write its lines as --env NAME=VALUE, and secrets as"
                " --secret NAME"
            )
        if file := self.given.get("compare"):
            raise WorkloadError(f"--compare {file}: the pods do not have it: omit it, and compare the results")
        folder = self.given.get("working_dir", ".")
        if (
            folder != "."
            and "://" not in folder
            and (not folder.startswith("/") or Path.home() in Path(folder).parents)
        ):
            raise WorkloadError(
                f"--working-dir {folder}: a folder of this machine, which the pods do not have: name one of the image"
                f" or of the shared folder{f' {shared}' if shared else ''}, or an archive such as https://…/code.zip"
            )
