"""Invariants of every simulated stack, and their evaluation: every public function of the modules about a relation.

An invariant about resources of the other cloud holds without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import isfunction
from types import ModuleType

import yaml

from rehearsal.invariants import existing, fabric, order, protection, queues, reach, scheduling
from rehearsal.invariants.invariant import Invariant, Stack


def _public(module: ModuleType) -> Iterator[Invariant]:
    for name, value in vars(module).items():
        if isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield value


INVARIANTS = tuple(
    found for module in (order, protection, scheduling, fabric, queues, reach, existing) for found in _public(module)
)


def violations(stack: Stack, invariants: Iterable[Invariant] = INVARIANTS) -> list[str]:
    """Return every violation. An invariant that cannot be checked counts as violated."""
    return [
        f"{' '.join(str(invariant.__doc__).split())} {wrong}"
        for invariant in invariants
        for wrong in _wrongs(invariant, stack)
    ]


def _wrongs(invariant: Invariant, stack: Stack) -> Iterator[str]:
    try:
        yield from invariant(stack)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError) as problem:
        yield f"This cannot be checked: {problem!r}"
