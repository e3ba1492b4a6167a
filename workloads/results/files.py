"""Files of results: strict JSON, and writes that leave the old content or the new one."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import stat
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from workloads.exits import WorkloadError
from workloads.untrusted import LONGEST_INTEGER

LARGEST = 2**26  # bytes of a JSON file; a sweep on 1,024 ranks has 20 MB


def loads(text: str | bytes) -> Any:
    """Return the value in JSON text.

    ValueError also for values that some readers reject: more than 200 levels, a key given twice, NaN, infinity, a huge
    integer, half of a surrogate pair.
    """
    from_json(text)
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object, parse_int=_integer, parse_float=_finite)


def read_json(path: Path) -> Any:
    """Return the document in a JSON file. WorkloadError if it cannot be read."""
    data = read_bytes(path)
    if len(data) > LARGEST:
        raise WorkloadError(f"cannot read {path}: it has more than {LARGEST // 2**20} MiB, so it is not a result")
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {name[:80]!r} is in the same object twice")
    return values


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has more than {LONGEST_INTEGER} digits")
    return int(text)


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"the number {text[:40]} is infinite")
    return value
