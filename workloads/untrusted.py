"""Values from a cluster, a job or another user, read within limits: names that become paths, numbers, JSON.

Anyone who may submit a job chooses its ID, metadata, runtime_env and log, which all clients of the cluster read. Ray
takes `..` as an ID, and NaN, integers of 400 digits, 300 levels and half of a surrogate pair as values (tried on 2.60,
2026-11).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_INTEGER = 24  # digits; sums of 64-bit counters have fewer, and floats hold all of them
LEVELS = 10_000
"""Levels of JSON that are parsed: a head has Python's limit of 1,000."""
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised by reading a value of an unexpected shape or type."""
LONGEST_NAME = 80
_PLAIN = re.compile(rf"[a-z0-9_](?:[a-z0-9_.-]{{0,{LONGEST_NAME - 2}}}[a-z0-9_-])?")
# Windows opens devices by these names, with any extension (learn.microsoft.com: Naming Files, read 2026-11).
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def file_name(text: object) -> str:
    """Return a text as one part of a path, without an extension: portable, and different for different texts.

    A short text of lower-case letters, digits, `_`, `-` and inner dots stays as it is. Any other one gets a hash, after
    `~`, which no text that stays has: `a/../b` is `a-b~6cf8…`. Case counts as different, because some file systems
    ignore it.
    """
    text = str(text)
    if _PLAIN.fullmatch(text) and not _DEVICE.match(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_]+', '-', text[:LONGEST_NAME]).strip('-') or 'x'}~{digest}"


def number(value: object, least: float = 0.0, most: float = 2.0**63) -> float | None:
    """Return a number, or that in a text, moved into the limits; None for NaN, infinity and everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return min(max(result, least), most) if math.isfinite(result) else None


def read(data: bytes | str) -> Any:
    """Return the value in JSON text. ValueError if it is not JSON, or has more than LEVELS levels.

    A value that JSON or UTF-8 cannot have must not hide the others: NaN, infinity and longer integers are None, half of
    a surrogate pair is `?`.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return _parsed(text)
    except RecursionError:
        with _deeper():
            return _parsed(text)


def _parsed(text: str) -> Any:
    document = json.loads(text, parse_constant=lambda _: None, parse_int=_integer, parse_float=_float)
    if _SURROGATE.search(text):
        document = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    return document


@contextmanager
def _deeper() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(LEVELS)
    try:
        yield
    except RecursionError:
        raise ValueError(f"it has more than {LEVELS} levels") from None
    finally:
        sys.setrecursionlimit(before)


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= LONGEST_INTEGER else None


def _float(text: str) -> float | None:
    return parsed if math.isfinite(parsed := float(text)) else None


class Limit:
    """Copies JSON values up to a total size, and counts the values that it leaves out.

    Lists and objects inside a value keep their first NESTED entries, texts their first LONGEST_TEXT characters, and
    nothing is kept below DEEPEST levels, which bounds the time to walk or compare the copies.

    Args:
        size: Bytes of all copies, as JSON with an indentation of 1.
    """

    NESTED = 2_000
    LONGEST_TEXT = 2**16
    DEEPEST = 48

    def __init__(self, size: int) -> None:
        self.left, self._floor = size, 0
        self.cut = 0

    def list_of(self, values: list[Any], most: int, size: int) -> list[Any]:
        """Return the first values whole, at most `most` of them and of `size` bytes."""
        self._floor = max(self.left - size, 0)
        found = []
        for value in values[:most]:
            copy = self.value(value, 2)
            if self.left < self._floor:
                break
            found.append(copy)
        self.cut += len(values) - len(found)
        self.left, self._floor = max(self.left, self._floor), 0
        return found

    def value(self, value: Any, level: int = 1) -> Any:
        """Return a copy of a value, without the parts beyond the limits."""
        if not isinstance(value, str | dict | list):
            self.left -= level + 30  # longer than any number
            return value
        if self.left < self._floor or level > self.DEEPEST:
            self.cut += 1
            return type(value)()
        if isinstance(value, str):
            text = value if len(value) <= self.LONGEST_TEXT else f"{value[: self.LONGEST_TEXT]}…"
            self.cut += text is not value
            self.left -= len(json.dumps(text)) + level + 4
            return text
        self.left -= level + 8
        result: Any = type(value)()
        for key in value:
            if self.left < self._floor or len(result) == self.NESTED:
                self.cut += len(value) - len(result)
                break
            if isinstance(value, list):
                result.append(self.value(key, level + 1))
            else:
                result[self.value(key, level)] = self.value(value[key], level + 1)
        return result
