"""A case of an illegal stack file: the rule that speaks, and the edge on the other side of which it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.legality import Rule


@dataclass(frozen=True)
class Case:
    """A rule, a legal stack file, the change that makes the rule speak, and a nearby change that is legal."""

    rule: Rule
    stack: dict[str, Any]
    bad: dict[str, Any]
    good: dict[str, Any]
    about: str
    hint: str
