"""A problem with a stack file, and the error that carries all of them at once.

A problem names the settings, says what would happen, how to fix it and who says so. It never repeats a secret.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

WIDTH = 110
NOT_SET = "(not set)"
HIDDEN = "[secret]"
OUR_CONTRACT = "the configuration contract of rdma-ray (infra/settings.py)"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason why a stack file cannot become a cluster.

    `settings` are dotted paths without the namespace, the one to look at first in front. `values` are those settings
    as text, in the same order; whoever knows the stack file fills them in (`with_values`). `source` names who says
    so, with a date where the source has one.
    """

    settings: tuple[str, ...]
    says: str
    fix: str
    source: str
    values: tuple[str, ...] = field(default=())

    def with_values(self, shown: Mapping[str, str]) -> Problem:
        """The same problem with the values of its settings; a setting that is not in `shown` is not set."""
        return replace(self, values=tuple(shown.get(path, NOT_SET) for path in self.settings))

    def __str__(self) -> str:
        values = self.values or ("",) * len(self.settings)
        lines = [f"{path}: {value}" if value else path for path, value in zip(self.settings, values, strict=True)]
        lines += _wrapped("", self.says) + _wrapped("Fix: ", self.fix) + _wrapped("Source: ", self.source)
        return "\n".join(lines)


class SettingsError(ValueError):
    """Everything that is wrong with a stack file. Nothing has been created when this is raised."""

    def __init__(self, problems: Iterable[Problem], *, origin: str = "the stack's configuration") -> None:
        self.problems = tuple(problems)
        self.origin = origin
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"{self.origin} has {count} problem{'s' if count != 1 else ''}; nothing was created."
        numbered = []
        for number, problem in enumerate(self.problems, start=1):
            mark = f"{number}. "
            numbered.append(mark + textwrap.indent(str(problem), " " * len(mark))[len(mark) :])
        return "\n\n".join([head, *numbered])


class UnreadableError(AttributeError):
    """A rule asked for a setting that could not be read; its own problem says why, so the rule has nothing to add."""


def shown(value: object) -> str:
    """A setting's value as a reader would write it; a secret never shows."""
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
