"""What may not go with what: the table of rules that a stack file is held against before anything is created.

Rules read settings and the catalogue of machines only. What a cloud has to be asked for (quota, stock) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from infra.problems import Problem

if TYPE_CHECKING:
    from infra.settings import Settings

RULES: tuple[Callable[[Settings], Problem | None], ...] = ()


def check(settings: Settings) -> Iterator[Problem]:
    """Every problem of these settings, in the order of the table."""
    for rule in RULES:
        problem = rule(settings)
        if problem:
            yield problem
