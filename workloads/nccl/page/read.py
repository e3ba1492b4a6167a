"""Results from files, with errors for people."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from workloads.exits import WorkloadError
from workloads.nccl.result import SCHEMA, Result


def read_result(path: Path) -> Result:
    """The result in `path`, as `bench nccl --json` writes it.

    Raises:
        WorkloadError: the file cannot be read, is no JSON, or is no result of this version.
    """
    try:
        found = json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkloadError(f"{path} is not JSON: {error}") from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise WorkloadError(
            f"{path} is no result that this version reads: its schema is {schema!r}, not {SCHEMA!r}. Write one with"
            " `rdma-ray bench nccl --json FILE`"
        )
    try:
        return Result.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise WorkloadError(f"{path} is no whole result: {where}: {first['msg']}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
