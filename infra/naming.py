"""Identity of stacks: names, cut to the length that an API accepts, and the labels with a stack's name and owner."""

from __future__ import annotations

import hashlib

STACK = "rdma-ray-stack"
"""Label and tag with the name of the stack, for the bill and for recovery."""

OWNER_BYTES = 4
OWNER = "rdma-ray-owner"
"""Label and tag with the random id of a stack's state. Names derive from the stack's name alone, so a stack of the same
name that another clone has in the same account also has them: `tools.recovery` adopts no resource of another owner."""


def shorten(name: str, room: int) -> str:
    """Return a name of at most `room` characters: the name itself, or its beginning and a digest of the whole."""
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: room - 9].rstrip('-')}-{digest}"
