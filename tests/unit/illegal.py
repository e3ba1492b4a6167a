"""A case of an invalid stack file: the rule that reports it, and a neighbor that is valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.settings.problems import Rule


@dataclass(frozen=True)
class Case:
    """A rule, a valid stack file, the change that the rule reports, and a similar change that is valid.

    Without a rule, the type of the setting reports the change.
    """

    rule: Rule | None
    stack: dict[str, Any]
    bad: dict[str, Any]
    good: dict[str, Any]
    about: str
    hint: str
