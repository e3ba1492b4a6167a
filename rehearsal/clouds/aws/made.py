"""Kinds whose ids the cloud makes up, and what all of them have in common."""

from __future__ import annotations

from typing import Any

from rehearsal.clouds.aws.outputs import made_up
from rehearsal.clouds.kind import Kind

TAGS = frozenset({"tags"})
"""A free-form map: tags that anybody adds show as a difference."""


def made(type_: str, prefix: str, *required: str, **more: Any) -> Kind:
    """A kind whose ids EC2 or FSx makes up."""
    return Kind(type=type_, identify=made_up(prefix, *required), maps=TAGS, twins=True, **more)
