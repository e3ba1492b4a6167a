"""What a job's driver on the cluster sends to the client: events in the job's log, the last of which is the result.

An event is one line, `@rdma-ray {"kind": …}`. The mark may be anywhere in it, because Ray may add a prefix such as
`(RayTrainWorker pid=…)`. The client shows results and reads them from files. Imports neither ray nor torch.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from workloads.exits import WorkloadError

MARK = "@rdma-ray "
Event = dict[str, Any]


def emit(kind: str, **fields: Any) -> None:
    """Print an event to the job's log. ValueError if a value is not JSON, such as NaN."""
    line = MARK + json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    # One write: Ray's log threads share the stream, and print() writes text and newline separately.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def parse(line: str) -> Event | None:
    """Return the event in a log line, or None if the line is ordinary text."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        event = json.loads(line[at + len(MARK) :])
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


class Part(BaseModel):
    """Part of a result: frozen, rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class JobResult(Part):
    """Common fields of all jobs' results. `schema_` is `schema` in JSON. The client sets job, cluster and command."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)

    writer: ClassVar[str]
    """Command whose `--json FILE` writes such a result."""

    schema_: str
    started: float
    finished: float
    exit_code: int
    reason: str
    backend: Literal["nccl", "gloo"] | None = None
    versions: dict[str, str | None] | None = None
    job: str | None = None
    cluster: str | None = None
    command: list[str] | None = None

    def as_json(self) -> str:
        """Return the document as `--json` writes it."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, allow_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of `--json`. WorkloadError if it does not hold such a result."""
        return cls.of(read_json(path), str(path))

    @classmethod
    def of(cls, document: object, name: str) -> Self:
        """Return the result in a JSON document, which `name` denotes in errors. WorkloadError if it is not a result."""
        expected = cls.model_fields["schema_"].default
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != expected:
            raise WorkloadError(
                f"{name} is no result of this version: its schema is {schema!r}, not {expected!r}. Create one with"
                f" `{cls.writer} --json FILE`"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise WorkloadError(f"{name} is an incomplete result: {where}: {first['msg']}") from None


def read_json(path: Path) -> Any:
    """Return the document in a JSON file. WorkloadError if it cannot be read."""
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkloadError(f"{path} is not JSON: {error}") from None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the least value with at least `percent` % of all values at or below it."""
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    # Rounded first: 0.95·20 is 19.000000000000004 in binary floating point.
    return sorted(values)[math.ceil(round(percent * len(values) / 100, 9)) - 1]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
