"""Results of jobs as documents: a driver creates a result of these types, and a client reads it from JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from workloads.exits import WorkloadError
from workloads.results.files import read_json

Time = Annotated[float, Field(ge=0, lt=253402300800)]
"""Seconds since 1970, before the year 10000: the range that Python can print as a date."""


class ResultPart(BaseModel):
    """Part of a result: frozen, rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class JobResult(ResultPart):
    """Common fields of all jobs' results. `schema_` is `schema` in JSON. The client sets job, cluster and command."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)

    writer: ClassVar[str]
    """Command whose `--json FILE` writes such a result."""

    schema_: str
    started: Time
    finished: Time
    exit_code: int = Field(ge=0, le=255)
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
                f"{name} is not a result of this version: its schema is {repr(schema)[:80]}, not {expected!r}."
                f" Create one with `{cls.writer} --json FILE`"
            )
        try:
            result = cls.model_validate(document)
            from_json(result.model_dump_json(), allow_inf_nan=False)  # Pydantic reads the text "nan" as a number
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise WorkloadError(f"{name} is an incomplete result: {where}: {first['msg']}") from None
        except ValueError as error:
            raise WorkloadError(f"{name} is not a result: {error}") from None
        return result


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the least value with at least `percent` % of all values at or below it."""
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    # Rounded first: 0.95·20 is 19.000000000000004 in binary floating point.
    return sorted(values)[math.ceil(round(percent * len(values) / 100, 9)) - 1]
