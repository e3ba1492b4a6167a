"""Helpers for the options models of commands, and the options that commands share.

The fields of a command's models become its options:

    @train.command
    def digits(*, options: Flat[DigitsOptions] = DigitsOptions(), job: Flat[JobOptions] = JobOptions()) -> int:

A command's own options are a Pydantic model (`class DigitsOptions(BaseModel, frozen=True, extra="forbid")`): field
descriptions are the help, constraints are checked while the command line is parsed, and the model is also the request
that the driver on the cluster reads. Shared options stay on the client; dataclasses keep `--help` fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar


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


T = TypeVar("T")
Flat = Annotated[T, option(name="*")]
"""Model whose fields are options of the command, without a prefix."""
Hidden = Annotated[T, option(parse=False)]
"""Field of a request that is not an option: `--set` or the stack sets it."""

Stack = Annotated[str | None, option("-s", help="Stack, as in `make up STACK=…`. [default: $STACK, else local]")]
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
    outputs_file: Annotated[
        Path | None,
        option(
            name="--outputs",
            env_var="RDMA_RAY_OUTPUTS",
            help="JSON file with the stack's outputs, to read instead of calling Pulumi.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResultOptions(StackOptions):
    """A stack, and where the result goes."""

    json_file: JsonFile = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(ResultOptions):
    """A stack, where the result goes, and whether to wait for the job."""

    detach: Annotated[bool, option(help="Submit and return at once. Without it, Ctrl-C stops the job.")] = False
