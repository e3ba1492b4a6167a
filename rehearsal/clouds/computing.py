"""What the kinds of every cloud compute with: digests that are the same in every run, and blocks of asked and added."""

from __future__ import annotations

import hashlib

from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import merged


def digest(text: str, length: int = 8) -> str:
    """Hexadecimal digits that look random and depend on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def number(text: str, digits: int) -> str:
    """Decimal digits that look random and depend on the text alone; the first is no zero."""
    return str(int(digest(text, 32), 16) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))


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
