"""What the rules of this cloud share: the shape of a refusal, by the way in which each API writes its errors."""

from __future__ import annotations

from rehearsal.clouds.kind import Refusal


def refused(code: str, message: str, source: str) -> Refusal:
    """An API's refusal of a request: HTTP 400 and the API's own code ("InvalidSubnet.Conflict")."""
    return Refusal(f"400 {code}", message, source)


def invalid(message: str, source: str) -> Refusal:
    """EKS's refusal of a parameter."""
    return refused("InvalidParameterException", message, source)


def missing(message: str, source: str) -> Refusal:
    """EKS's refusal because something is not there."""
    return Refusal("404 ResourceNotFoundException", message, source)


def unfit(message: str, source: str) -> Refusal:
    """The provider's own refusal, before it asks AWS."""
    return Refusal("provider", message, source)


def failed(code: str, message: str, source: str) -> Refusal:
    """A long operation that was accepted and ended badly."""
    return Refusal(f"failed {code}", message, source)
