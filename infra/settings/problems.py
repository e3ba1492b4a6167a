"""A problem with a stack file, the rules that find one, and the error that reports all of them at once.

A problem names the settings with their values, what would happen, the fix and the source. It never repeats a secret.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from pydantic import SecretStr

WIDTH = 110
NOT_SET = "(not set)"
HIDDEN = "[secret]"
CONTRACT = "the configuration contract of rdma-ray (infra/settings)"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason why a stack file cannot become a cluster.

    `settings` are dotted paths without the namespace, the one to change first. `values` are those settings as text, in
    the same order. `source` names the document that states the reason, with a date where there is one.
    """

    settings: tuple[str, ...]
    says: str
    fix: str
    source: str
    values: tuple[str, ...] = ()

    def with_values(self, shown: Mapping[str, str]) -> Problem:
        """Return the same problem with the values of its settings; a setting that `shown` lacks is not set."""
        return replace(self, values=tuple(shown.get(path, NOT_SET) for path in self.settings))

    def __str__(self) -> str:
        values = self.values or ("",) * len(self.settings)
        lines = [f"{path}: {value}" if value else path for path, value in zip(self.settings, values, strict=True)]
        lines += _wrapped("", self.says) + _wrapped("Fix: ", self.fix) + _wrapped("Source: ", self.source)
        return "\n".join(lines)


class SettingsError(ValueError):
    """Every problem of a stack file. Nothing has been created when this is raised."""

    def __init__(self, problems: Iterable[Problem], *, origin: str = "The stack's configuration") -> None:
        self.problems = tuple(problems)
        self.origin = origin
        super().__init__()

    def __str__(self) -> str:
        count = len(self.problems)
        blocks = [f"{self.origin} has {count} problem{'s' if count != 1 else ''}; nothing was created."]
        for number, problem in enumerate(self.problems, start=1):
            mark = f"{number}. "
            blocks.append(mark + textwrap.indent(str(problem), " " * len(mark))[len(mark) :])
        return "\n\n".join(blocks)


class Found(NamedTuple):
    """What a rule finds: the reason, the fix, and the source where it differs from the rule's."""

    says: str
    fix: str
    source: str = ""


Finding = Iterator[Found]
"""At most one; a further one does not count."""
S = TypeVar("S")


@dataclass(frozen=True)
class Rule:
    """What must hold between settings. The source is that of the reason."""

    settings: tuple[str, ...]
    source: str
    find: Callable[[Any], Finding]

    @property
    def name(self) -> str:
        """The name of the rule's function."""
        return self.find.__name__

    def problem(self, settings: Any) -> Problem | None:
        """Return the rule's problem with these settings.

        Unreadable settings are missing attributes. A rule that reads one has nothing to add to that one's own problem.
        """
        try:
            for says, fix, source in self.find(settings):
                return Problem(settings=self.settings, says=says, fix=fix, source=source or self.source)
        except AttributeError:
            pass
        return None


class Rules(list[Rule]):
    """The rules of a model, in the order in which they report."""

    def add(self, *settings: str, source: str) -> Callable[[Callable[[S], Finding]], Rule]:
        """Decorate a function that yields at most one finding about `settings`."""

        def register(find: Callable[[S], Finding]) -> Rule:
            self.append(Rule(settings, source, find))
            return self[-1]

        return register


def shown(value: object) -> str:
    """Return a value as a reader would write it, at most 80 characters; a secret never shows."""
    if value is None:
        return NOT_SET
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False)
