"""How a setting's default is declared: one value per target, beside the setting it belongs to.

This module knows no setting; `infra.settings` declares them and `infra.reading` fills them in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Derived:
    """A default that follows from other settings; `words` say how, for the descriptions."""

    of: Callable[[Callable[[str], Any]], Any]
    words: str


def same_as(path: str) -> Derived:
    """The default is what another setting says."""
    return Derived(lambda get: get(path), f"as {path}")


@dataclass(frozen=True)
class Fixed:
    """A setting that this target does not leave open: it may be repeated with this value, but not changed."""

    value: Any = None


class Required:
    """A setting that this target cannot guess."""


REQUIRED = Required()


@dataclass(frozen=True, kw_only=True)
class ByTarget:
    """A setting's default on each target: a value, `Derived`, `Fixed` or `REQUIRED`. None means: not set."""

    local: Any = None
    gke: Any = None
    eks: Any = None

    def on(self, target: str) -> Any:
        """What the target does when the stack file leaves the setting out."""
        return getattr(self, target)


def everywhere(value: Any) -> ByTarget:
    """The same default on every target."""
    return ByTarget(local=value, gke=value, eks=value)


def clouds(value: Any, *, local: Any = None) -> ByTarget:
    """The same default on both clouds; the local target fixes the setting to `local`."""
    return ByTarget(local=Fixed(local), gke=value, eks=value)
