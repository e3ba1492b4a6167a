"""A problem with a stack file, the rules that find one, and the error that reports all of them at once.

A problem names the settings with their values, what would happen, the fix and the source. It never repeats a secret.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import SecretStr

from infra.terminal import printable

WIDTH = 110
LONGEST = 4000  # characters of a sentence that repeats a value
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
    message: str
    fix: str
    source: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = self.values or ("",) * len(self.settings)
        named = [(shown(path), value[:LONGEST]) for path, value in zip(self.settings, values, strict=True)]
        lines = [f"{path}: {value}" if value else path for path, value in named]
        for label, text in (("", self.message), ("Fix: ", self.fix), ("Source: ", self.source)):
            text, indent = printable(text[:LONGEST]), " " * len(label)
            lines += textwrap.wrap(
                text,
                WIDTH,
                initial_indent=label,
                subsequent_indent=indent,
                break_long_words=False,
                # Commands are copied, so their options stay whole.
                break_on_hyphens=False,
            )
        return "\n".join(lines)


def empty_passphrase(stack: str) -> Problem:
    """Return the problem of a cloud stack whose secrets would be encrypted with an empty passphrase."""
    return Problem(
        settings=("PULUMI_CONFIG_PASSPHRASE",),
        values=("(empty)",),
        message="With an empty passphrase, anyone who can read the state of a cloud stack has Ray's token.",
        fix="set PULUMI_CONFIG_PASSPHRASE, or PULUMI_CONFIG_PASSPHRASE_FILE to a file with the passphrase, and keep it:"
        " without it the stack cannot be changed or destroyed. If the stack exists and has an empty passphrase,"
        f" first run: PULUMI_CONFIG_PASSPHRASE= bin/pulumi stack change-secrets-provider passphrase --stack {stack}",
        source="pulumi/pulumi v3.259.0: pkg/secrets/passphrase/manager.go; docs/stack-files.md",
    )


class SettingsError(ValueError):
    """Every problem of a stack file. Nothing has been created when this is raised."""

    def __init__(self, problems: Iterable[Problem], *, origin: str = "The stack's configuration") -> None:
        super().__init__()
        self.problems = tuple(problems)
        self.origin = origin

    def __str__(self) -> str:
        count = len(self.problems)
        blocks = [f"{printable(self.origin)} has {count} problem{'s' if count != 1 else ''}; nothing was created."]
        for number, problem in enumerate(self.problems, start=1):
            mark = f"{number}. "
            blocks.append(mark + textwrap.indent(str(problem), " " * len(mark)).lstrip())
        return "\n\n".join(blocks)


class Finding(NamedTuple):
    """A rule's finding: the reason, the fix, and the source where it differs from the rule's."""

    message: str
    fix: str
    source: str = ""

    def problem(self, settings: tuple[str, ...], values: tuple[str, ...]) -> Problem:
        """Return the problem with these settings."""
        source = self.source or CONTRACT
        return Problem(settings=settings, values=values, message=self.message, fix=self.fix, source=source)


Findings = Iterator[Finding]


class InvalidSettingError(Exception):
    """A rule reads a setting whose value is not valid; the message is its path. The setting has its own problem."""


@dataclass(frozen=True)
class Rule:
    """A constraint between settings of a model: a function that yields at most one finding, and its source.

    Findings of a `warning` are shown but accepted.
    """

    settings: tuple[str, ...]
    source: str
    find: Callable[[Any], Findings]
    warning: bool = False

    def finding(self, settings: Any) -> Finding | None:
        """Return the rule's finding in these settings, with its source; None if a setting that it reads is invalid."""
        try:
            found = next(self.find(settings), None)
        except InvalidSettingError:
            return None
        return found and found._replace(source=found.source or self.source)


def rule(*settings: str, source: str, warning: bool = False) -> Callable[[Callable[[Any], Findings]], Rule]:
    """Make a model's method a rule about `settings`, the first of which is the one to change."""
    return lambda find: Rule(settings, source, find, warning)


def shown(value: object) -> str:
    """Return a value on one line as a reader would write it, at most 80 characters; a secret never shows."""
    if value is None:
        return NOT_SET
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    text = str(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return printable(text).replace("\n", "\\n")
