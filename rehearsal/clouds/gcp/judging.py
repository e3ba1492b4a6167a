"""What the rules of this cloud share: the shape of a refusal."""

from __future__ import annotations

from rehearsal.clouds.kind import Refusal


def bad(message: str, source: str) -> Refusal:
    """The refusal of a request that can never succeed."""
    return Refusal("400 badRequest", message, source)


def invalid(field: str, value: object, message: str, source: str) -> Refusal:
    """Compute Engine's refusal of one field's value."""
    return Refusal("400 invalid", f"Invalid value for field '{field}': '{value}'. {message}", source)
