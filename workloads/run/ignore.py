"""Patterns of `.gitignore` and `.rayignore`, matched as git does (gitignore(5), wildmatch.c, 2.39), in linear time.

Uses RE2: Python's `re`, and with it pathspec's default, takes exponential time for a pattern of a dozen stars.
pathspec's RE2 backend decides for whole paths at once, not for the entries of a walk: with `*` and `!src/` it excludes
src.
"""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from itertools import groupby

import re2

from workloads.exits import WorkloadError
from workloads.unlinked import open_folder, open_regular

IGNORE_FILES = (".gitignore", ".rayignore")
LARGEST_RULES = 2**16
"""Bytes of an ignore file. The longest of github/gitignore has 9 KB (read 2026-11)."""
QUICK_S, LONGEST_MATCHING_S = 5e-5, 2.0
"""Processor time per name that is free, and the limit for the rest. 300 patterns take some 4 µs per name."""
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1  # bytes, as in git
_OPTIONS.dot_nl, _OPTIONS.never_capture, _OPTIONS.log_errors = True, True, False
_TOKEN = re.compile(rb"(?s)((?<![^/])\*\*+(?:/|\Z))|\*+|\\.|.")  # the group is `**` that matches separators
_ITEM = re.compile(rb"(?s)\[:([^\]]*):\]|(\\.|[^\\])-(?!\])(\\.|[^\\])|(\\.|[^\\])")
_CLASSES = b"alnum alpha blank cntrl digit graph lower print punct space upper xdigit".split()


class Rules:
    """Patterns of an ignore file that applies to the names below `prefix`.

    Args:
        below: Path from the file's folder to the working directory, for a file above it.
    """

    def __init__(self, path: str, data: bytes, prefix: str, below: str = "") -> None:
        self.prefix, self.below = prefix, below
        if len(data) > LARGEST_RULES:
            raise WorkloadError(f"{path}: more than {LARGEST_RULES // 2**10} KiB of patterns: shorten it")
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        patterns = [found for line in lines if (found := _translated(line.removesuffix(b"\r").partition(b"\0")[0]))]
        # Neighbors of one kind are one expression.
        groups = [
            (excludes, b"|".join(regex for _, regex in group))
            for excludes, group in groupby(patterns, lambda pattern: pattern[0])
        ]
        try:
            self.groups = [(excludes, re2.compile(regex, _OPTIONS)) for excludes, regex in reversed(groups)]
        except re2.error:
            raise WorkloadError(f"{path}: its patterns are too large in total: shorten it") from None

    def decide(self, name: str) -> bool | None:
        """Return whether the file excludes a name, None if no pattern matches. A folder's name ends with `/`."""
        text = os.fsencode(self.below + name.removeprefix(self.prefix)).replace(b"/", b"\0")
        return next((excludes for excludes, regex in self.groups if regex.fullmatch(text)), None)


class Ignored:
    """Decides which names the ignore files exclude. WorkloadError if that takes too long."""

    def __init__(self, root: str) -> None:
        self.root, self.left_s = root, LONGEST_MATCHING_S

    def __call__(self, name: str, rules: list[Rules]) -> bool:
        """Return whether a name is excluded: the innermost file that mentions it decides, as in git."""
        if not rules:
            return False
        began = time.thread_time()
        found = next((answer for rule in reversed(rules) if (answer := rule.decide(name)) is not None), False)
        self.left_s -= max(0.0, time.thread_time() - began - QUICK_S)
        if self.left_s < 0:
            raise WorkloadError(
                f"--working-dir {self.root}: the patterns of its .gitignore and .rayignore take too long to match:"
                " use fewer * and ?"
            )
        return found


def above(root: str) -> list[Rules]:
    """Return the ignore files above a folder, from the top of its git repository on; none outside of a repository.

    As in git, a link does not count.
    """
    rules: list[Rules] = []
    folder, below = root, ""
    while not os.path.lexists(f"{folder}/.git"):
        if folder == "/":
            return []
        folder, name = os.path.split(folder)
        below = f"{name}/{below}"
        try:
            with open_folder(folder) as opened, open_regular(".gitignore", opened) as (file, _):
                rules.insert(0, Rules(f"{folder}/.gitignore", os.read(file, LARGEST_RULES + 1), "", below))
        except OSError:
            continue
    return rules


def _translated(line: bytes) -> tuple[bool, bytes] | None:
    """Return whether a line excludes what it matches, and its regular expression; None if it matches nothing.

    A separator is a NUL byte, which no name and no bracket has: `[!a]` does not match a separator.
    """
    if line.startswith(b"#"):
        return None
    stripped = line.rstrip(b" ")
    if stripped != line and (len(stripped) - len(stripped.rstrip(b"\\"))) % 2:
        stripped += b" "  # an escaped one
    excludes, pattern = not stripped.startswith(b"!"), stripped.removeprefix(b"!")
    end = rb"\x00" if pattern.endswith(b"/") else rb"\x00?"
    pattern = pattern.removesuffix(b"/")
    regex = [b"" if b"/" in pattern else rb"(?:.*\x00)?"]
    pattern = pattern.removeprefix(b"/")
    at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        assert found is not None
        token, at = found[0], found.end()
        if token == b"[":
            bracket, at = _bracket(pattern, at)
            if not bracket:
                return None
            regex.append(bracket)
        elif found[1] and not regex[0]:
            regex.append(rb"(?:.*\x00)?" if token.endswith(b"/") else b".+")
        elif token.startswith(b"*"):
            regex.append(rb"[^\x00]*")
        elif token == b"?":
            regex.append(rb"[^\x00]")
        elif token == b"\\":
            return None
        else:
            regex.append(rb"\x00" if token[-1:] == b"/" else _byte(token))
    return (excludes, b"".join(regex) + end) if pattern else None


def _bracket(pattern: bytes, start: int) -> tuple[bytes, int]:
    """Return the expression of a bracket whose items begin at `start`, and its end. It is empty if git refuses it."""
    negated = pattern[start : start + 1] in (b"!", b"^")
    at = first = start + negated
    items = [rb"\x00"] if negated else []
    while pattern[at : at + 1] != b"]" or at == first:
        found = _ITEM.match(pattern, at)
        if found is None:
            return b"", at
        at = found.end()
        name, low, high, single = found.groups()
        if name is not None:
            if name not in _CLASSES:
                return b"", at
            items.append(b"[:%s:]" % name)
        elif single is not None:
            items.append(_byte(single))
        else:  # of [b-a], git matches the b
            items.append(b"%s-%s" % (_byte(low), _byte(max(low[-1:], high[-1:]))))
    if not items:
        return rb"[^\x00-\xff]", at + 1
    return b"[%s%s]" % (b"^" * negated, b"".join(items)), at + 1


@lru_cache
def _byte(token: bytes) -> bytes:
    return rb"\x%02x" % token[-1]
