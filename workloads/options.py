"""Helpers for the options models of commands, and the options that commands share.

The fields of a command's models become its options:

    @train.command
    def digits(*, options: Flat[DigitsOptions] = DigitsOptions(), job: Flat[JobOptions] = JobOptions()) -> int:

A command's own options are a Pydantic model (`class DigitsOptions(BaseModel, frozen=True, extra="forbid")`): field
descriptions are the help, constraints are checked while the command line is parsed, and the model is also the request
that the driver on the cluster reads. Shared options stay on the client; dataclasses keep `--help` fast.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

ROOT = Path(__file__).resolve().parents[1]
"""Folder that contains `workloads`: the root of a clone."""


def option(*aliases: str, **parameter: Any) -> Any:
    """Return the command-line parameter of a field; None without Cyclopts, which cluster images may lack.

    Args:
        aliases: Short flags, such as `-n`.
        parameter: Arguments of `cyclopts.Parameter`, such as `show=False`.
    """
    try:
        from cyclopts import Parameter
    except ModuleNotFoundError:
        return None
    return Parameter(alias=aliases, **parameter)


def add(app: App, path: str, *, name: str | None = None, **keywords: Any) -> None:
    """Register the command `module:function` or `module:app`, which is imported on first use, with its help.

    The help is read from the source, because it takes seconds to import the modules of all commands.
    """
    module, _, attribute = path.partition(":")
    app.command(path, name=name or attribute, help=_help_texts(module)[attribute], **keywords)


@cache
def _help_texts(module: str) -> dict[str, str]:
    """Return the docstrings of a module's functions, and the help of its apps, by name."""
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    texts = {}
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef():
                texts[node.name] = ast.get_docstring(node) or ""
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="App"), keywords=keywords)):
                texts[name] = next(ast.literal_eval(each.value) for each in keywords if each.arg == "help")
    return texts


def by_gpus(without: object, on_gpus: object) -> str:
    """Return the part of an option's help with its defaults on a stack without GPUs and on one with."""
    return f"[default: {on_gpus}]" if on_gpus == without else f"[default: {on_gpus}; {without} without GPUs]"


WAIT_S = 1800  # of each `--wait` for nodes: a cloud needs minutes to start machines (this project's choice)
DEFAULT_STACK = "local"
T = TypeVar("T")
Flat = Annotated[T, option(name="*")]
"""Model whose fields are options of the command, without a prefix."""
Hidden = Annotated[T, option(parse=False)]
"""Field of a request that is not an option: `--set` or the stack sets it."""


def stack_names(_context: object) -> list[str]:
    """Return the names of the stack files, for completion by the shell."""
    from infra.project import PROJECT  # A job on the cluster, which reads the models, has no infra.

    return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in PROJECT.glob("Pulumi.*.yaml"))


Stack = Annotated[
    str | None,
    option(
        "-s", completer=stack_names, help=f"Stack, as in `make up STACK=…`. [default: $STACK, else {DEFAULT_STACK}]"
    ),
]
JsonFile = Annotated[
    str | None,
    option(
        name="--json",
        metavar="[FILE]",
        allow_leading_hyphen=True,
        help="Write the result as JSON to this file; `-`, or no file, is stdout.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """Stack whose cluster the command uses."""

    stack: Stack = None
    outputs: Annotated[
        str | None,
        option(
            env_var="RDMA_RAY_OUTPUTS",
            metavar="FILE",
            help="The stack's outputs, to read instead of calling Pulumi: a JSON file, or\n"
            "secret:[NAMESPACE/]NAME[@CONTEXT] in its cluster.",
        ),
    ] = None
    team: Annotated[
        str | None,
        option(env_var="RDMA_RAY_TEAM", metavar="NAME", help="Team of the stack, whose Ray cluster to use."),
    ] = None
    rendered: Hidden[Any] = None
    """Description of the stack whose entry point the command will be: it is checked, and starts nothing."""


@dataclass(frozen=True, kw_only=True)
class ResultOptions(StackOptions):
    """A stack, and where the result goes."""

    json_file: JsonFile = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(ResultOptions):
    """A stack, where the result goes, and whether to wait for the job."""

    detach: Annotated[bool, option(help="Submit and return at once. Without it, Ctrl-C stops the job.")] = False


def json_to_stdout(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with `-` inserted after each `--json` that has no file; those after `--` as they are."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    values: list[str] = []
    for argument, following in zip(before, [*before[1:], "--"], strict=False):
        values.append(argument)
        if argument == "--json" and following.startswith("-") and following != "-":
            values.append("-")
    return [*values, *arguments[len(before) :]]


def usage_error(error: CycloptsError) -> str:
    """Return the message of a usage error: the option, its value, and the allowed values."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return str(error)
    names = {child.keys[-1]: child.name for child in (error.argument.children if error.argument else ()) if child.parse}
    problems = []
    for problem in error.__cause__.errors():
        message = problem["msg"].removeprefix("Value error, ")
        if problem["loc"]:
            field = str(problem["loc"][0])
            name = names.get(field, field)
            if problem["type"] == "missing":  # its input is all that was given
                message = f"--{field.replace('_', '-')}: required"
            else:
                value = problem["input"]
                words = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
                message = f"{name} {words}: {message[:1].lower()}{message[1:]}"
        problems.append(message)
    return "\n".join(problems)
