"""Computed outputs: digests that are the same in every run, and blocks that hold asked and computed values at once."""

from __future__ import annotations

import base64
import hashlib

from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import merged

SINCE = "2026-11-02T08:00:00.000-07:00"
"""When everything here was made: a fixed moment, so that two rehearsals agree."""
COMPUTE = "https://www.googleapis.com/compute/v1/"
CONTAINER = "https://container.googleapis.com/v1/"


def digest(text: str, length: int = 8) -> str:
    """Hexadecimal digits that look random and depend on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def number(text: str, digits: int) -> str:
    """Decimal digits that look random and depend on the text alone; the first is no zero."""
    return str(int(digest(text, 32), 16) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))


def fingerprint(text: str) -> str:
    """An etag or fingerprint."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def project_number(project: str) -> str:
    """The number of a project."""
    return number(project, 12)


def kept(call: Call, defaults: Json) -> Json:
    """Outputs that are settled at creation: later what is live stays, unless the program asks for the key itself."""
    return {key: call.live.get(key, value) for key, value in defaults.items() if key not in call.inputs}


def blocks(call: Call, defaults: Json) -> Json:
    """Nested blocks that hold asked and computed values: at creation what is asked lies over the defaults.

    On update an asked block is left to the core, which keeps what the cloud added to it; one that is no longer asked
    for stays as it was.
    """
    if call.verb == "create":
        return {key: merged(value, call.inputs.get(key) or {}) for key, value in defaults.items()}
    return kept(call, defaults)
