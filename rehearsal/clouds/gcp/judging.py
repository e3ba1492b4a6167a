"""What the rules of this cloud share: when a rule is asked, and the shape of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from rehearsal.clouds.kind import Call, Refusal, Rule, Verb


def on(*verbs: Verb) -> Callable[[Rule], Rule]:
    """The rule is asked for these verbs only, and silent otherwise."""

    def narrowed(rule: Rule) -> Rule:
        @wraps(rule)
        def asked(call: Call) -> Refusal | None:
            return rule(call) if call.verb in verbs else None

        return asked

    return narrowed


def bad(message: str, source: str) -> Refusal:
    """The refusal of a request that can never succeed."""
    return Refusal("400 badRequest", message, source)


def invalid(field: str, value: object, message: str, source: str) -> Refusal:
    """Compute Engine's refusal of one field's value."""
    return Refusal("400 invalid", f"Invalid value for field '{field}': '{value}'. {message}", source)
