"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Stack = Annotated[
    str | None,
    typer.Option("--stack", "-s", help="The stack, as `make up STACK=…` names it.  \\[default: $STACK, else local]"),
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
