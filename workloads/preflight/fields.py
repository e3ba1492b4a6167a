"""Fields of answers that others wrote: each has the expected type, is short and printable, or is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from infra.terminal import printable

LONGEST = 80
"""Characters of a text that an answer repeats."""
LARGEST = 2**63
"""No count of a cloud is larger: limits without an end are the largest signed 64-bit integer."""


def text(document: object, *path: str) -> str | None:
    """Return the text at a path of keys, printable and at most `LONGEST` characters; None if there is none."""
    value = _at(document, path)
    return short(value) if isinstance(value, str) and value else None


def short(value: str) -> str:
    """Return a text that somebody else wrote on one printable line of at most `LONGEST` characters."""
    line = " ".join(printable(value[: 2 * LONGEST]).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def number(document: object, *path: str) -> float | None:
    """Return the number at a path of keys; None if there is none.

    Google's APIs print 64-bit integers as strings.
    """
    value = _at(document, path)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST and math.isfinite(value) else None


def flag(document: object, *path: str) -> bool | None:
    """Return the boolean at a path of keys; None if there is none."""
    value = _at(document, path)
    return value if isinstance(value, bool) else None


def entries(document: object, *path: str) -> list[Mapping[str, Any]] | None:
    """Return the maps of a list at a path of keys, without its other entries; None if there is no list."""
    value = _at(document, path)
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else None


def texts(document: object, *path: str) -> list[str] | None:
    """Return the texts of a list at a path of keys; None if there is no list, or something else is in it."""
    value = _at(document, path)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return None
    return [short(entry) for entry in value]


def has(document: object, *path: str) -> bool:
    """Return whether there is something at a path of keys."""
    return _at(document, path) is not None


def moment(value: object) -> datetime | None:
    """Return a time in UTC, which clouds write by ISO 8601; None if it is something else."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def amount(value: float) -> str:
    """Return a count as text, such as `64`."""
    return f"{value:,.0f}" if abs(value) < 1e15 else "no limit"


def _at(document: object, path: Sequence[str]) -> object:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
