"""Text from files, logs and clusters, made safe to print."""

from __future__ import annotations

import re

# Terminals obey C0 and C1 control characters; bidirectional controls reorder what is read (CVE-2021-42574); streams in
# UTF-8 refuse lone surrogates. Line feeds and tabs stay.
_COLOR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text without colors, and with every other character that a terminal obeys as its escape (`\\x1b`)."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], _COLOR.sub("", text))


def dollars(amount: float | None, *, at_most: bool = False) -> str:
    """Return an amount per hour as text; "unknown" for None."""
    return "unknown" if amount is None else f"{'≤ ' if at_most else ''}${amount:,.2f}"
