"""What the computed outputs of this cloud have in common: addresses, numbers and the moment of creation."""

from __future__ import annotations

import base64
import hashlib

from rehearsal.clouds.computing import number

SINCE = "2026-11-02T08:00:00.000-07:00"
"""When everything here was made: a fixed moment, so that two rehearsals agree."""
COMPUTE = "https://www.googleapis.com/compute/v1/"
CONTAINER = "https://container.googleapis.com/v1/"


def fingerprint(text: str) -> str:
    """An etag or fingerprint."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def project_number(project: str) -> str:
    """The number of a project."""
    return number(project, 12)
