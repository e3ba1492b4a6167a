"""How a name is made to fit where the stack's own name leaves too little room."""

from __future__ import annotations

import hashlib


def fitted(name: str, room: int) -> str:
    """The name if it has at most `room` characters, else as much of it as fits with a digest of the whole."""
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: room - 9].rstrip('-')}-{digest}"
