"""Shortening of a generated name to the length that an API accepts."""

from __future__ import annotations

import hashlib


def shorten(name: str, room: int) -> str:
    """Return a name of at most `room` characters: the name itself, or its beginning and a digest of the whole."""
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: room - 9].rstrip('-')}-{digest}"
