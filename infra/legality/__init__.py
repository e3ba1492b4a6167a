"""What may not go with what: the table of rules that a stack file is held against before anything is created.

Rules read settings and the catalog of machines only. What a cloud has to be asked for (quota, stock) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from infra.legality import access, aws, capacity, fabric, jobs, queues, ray
from infra.legality.names import stack_name_unfit
from infra.problems import Problem, UnreadableError

if TYPE_CHECKING:
    from infra.settings import Settings

Rule = Callable[["Settings"], Problem | None]

RULES: tuple[Rule, ...] = (
    *capacity.RULES,
    *fabric.RULES,
    *ray.RULES,
    *jobs.RULES,
    *queues.RULES,
    *access.RULES,
    *aws.RULES,
)
"""Every rule, in reading order. A rule looks at settings that could be read and says at most one thing."""


def check(settings: Settings, *, stack: str | None = None) -> Iterator[Problem]:
    """Every problem of these settings, in the order of the table.

    Settings that lack a value are allowed: a rule that asks for one is skipped.
    """
    for rule in RULES:
        try:
            problem = rule(settings)
        except UnreadableError:
            continue
        if problem is not None:
            yield problem
    if stack is not None:
        unfit = stack_name_unfit(settings, stack)
        if unfit is not None:
            yield unfit
