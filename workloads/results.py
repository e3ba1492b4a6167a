"""What a job's driver on the cluster sends to the client: events in the job's log, the last of which is the result.

An event is one line, `@rdma-ray {"kind": …}`. The mark may be anywhere in it, because Ray may add a prefix such as
`(RayTrainWorker pid=…)`. The client shows results and reads them from files. Imports neither ray nor torch.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from workloads.exits import WorkloadError
from workloads.untrusted import LONGEST_INTEGER

MARK = "@rdma-ray "
Event = dict[str, Any]
_handlers: list[Callable[[Event], None]] = []
LARGEST = 2**26  # bytes of a JSON file; a sweep on 1,024 ranks has 20 MB


def emit(kind: str, **fields: Any) -> None:
    """Print an event to the job's log. ValueError if a value is not JSON, such as NaN."""
    if _handlers:
        _handlers[-1]({"kind": kind, **fields})
        return
    line = MARK + json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    # One write: Ray's log threads share the stream, and print() writes text and newline separately.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def handled(handler: Callable[[Event], None]) -> Iterator[None]:
    """Pass this process's events to `handler` instead of its log: it is no job's driver, and has no client."""
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.pop()


def parse(line: str) -> Event | None:
    """Return the event in a log line, or None if the line is ordinary text."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        event = loads(line[at + len(MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


Time = Annotated[float, Field(ge=0, lt=253402300800)]
"""Seconds since 1970, before the year 10000: what Python can print as a date."""


class Part(BaseModel):
    """Part of a result: frozen, rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class JobResult(Part):
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
                f"{name} is no result of this version: its schema is {repr(schema)[:80]}, not {expected!r}. Create one"
                f" with `{cls.writer} --json FILE`"
            )
        try:
            found = cls.model_validate(document)
            from_json(found.model_dump_json(), allow_inf_nan=False)  # Pydantic reads the text "nan" as a number
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise WorkloadError(f"{name} is an incomplete result: {where}: {first['msg']}") from None
        except ValueError as error:
            raise WorkloadError(f"{name} is no result: {error}") from None
        return found


def loads(text: str | bytes) -> Any:
    """Return the value in JSON text.

    ValueError also for what some reader would trip over: more than 200 levels, a key given twice, NaN, infinity, a huge
    integer, half of a surrogate pair.
    """
    from_json(text)
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object, parse_int=_integer, parse_float=_finite)


def read_json(path: Path) -> Any:
    """Return the document in a JSON file. WorkloadError if it cannot be read."""
    data = read_bytes(path)
    if len(data) > LARGEST:
        raise WorkloadError(f"cannot read {path}: it has more than {LARGEST // 2**20} MiB, so it is no result")
    try:
        return loads(data)
    except ValueError as error:
        raise WorkloadError(f"{path} is not JSON: {error}") from None


def read_bytes(path: Path, limit: int = LARGEST) -> bytes:
    """Return a file's first `limit` + 1 bytes, so that a longer one shows. WorkloadError if it cannot be read."""
    try:
        # A shell's <(command) is a pipe. Without O_NONBLOCK, opening a named pipe without a writer blocks forever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            os.set_blocking(file.fileno(), True)
            return file.read(limit + 1)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror}") from error


def write_file(path: Path, content: str | bytes, mode: int | None = None) -> Path:
    """Write a file and its parent folders, and return its path. WorkloadError if it cannot be written.

    At any moment, a regular file has its old content or the new one. Links, devices and pipes stay what they are.

    Args:
        mode: Mode of the file, instead of the old one's or the user's default.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            path.write_bytes(data)
            return path
        target = Path(os.path.realpath(path))
        partial = target.with_name(f".{secrets.token_hex(8)}.partial")
        with open(
            partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o666 if mode is None else mode)
        ) as file:
            if mode is None and target.exists():
                shutil.copymode(target, partial)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else the rename may reach the disk before the content
        partial.replace(target)
    except OSError as error:
        raise WorkloadError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    return path


def new_id(kind: str) -> str:
    """Return a submission ID that sorts by time: `nccl-20261121-130501-a1b2c3`."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the least value with at least `percent` % of all values at or below it."""
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    # Rounded first: 0.95·20 is 19.000000000000004 in binary floating point.
    return sorted(values)[math.ceil(round(percent * len(values) / 100, 9)) - 1]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {name[:80]!r} is in the same object twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has more than {LONGEST_INTEGER} digits")
    return int(text)


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"the number {text[:40]} is infinite")
    return value
