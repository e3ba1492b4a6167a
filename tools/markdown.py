"""Foreign text in Markdown: names and values that a cloud, a cluster or a branch chose, in pages that GitHub shows.

No form can hold markup, a mention, a link or a line break. `value` also drops what is not printable: an escape sequence
would reach a terminal, and a mark of direction would turn the rest of the line around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST = 200
"""Characters of one value. The rest of a longer one is counted."""
_NAMED = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("_", "\\_"))


def plain(text: str) -> str:
    """Escape a text for one cell of a table: no markup, no line breaks, no mentions."""
    for sign, harmless in _NAMED:
        text = text.replace(sign, harmless)
    for sign in "`[]@":
        text = text.replace(sign, f"&#{ord(sign)};")
    return " ".join(text.split())


def code(text: str) -> str:
    """Format a name as code, in one cell. GitHub finds no mention and no link in code."""
    return f"`{' '.join(text.replace('`', chr(39)).replace('|', '¦').split())}`"


def value(text: str) -> str:
    """Format a value that anybody may have chosen as code, in one cell: printable and short."""
    printable = "".join(each if each.isprintable() else " " for each in text[: 2 * LONGEST])
    shown = " ".join(printable.split())[:LONGEST]
    rest = len(text) - len(shown) if len(text) > LONGEST else 0
    return f"{code(shown or '(empty)')}{f' … {rest} more characters' if rest else ''}"


def row(*cells: str) -> str:
    """Return one row of a table. The cells are Markdown."""
    return f"| {' | '.join(cells)} |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [row(*head), row(*["---"] * len(head)), *(row(*cells) for cells in rows)]
