"""Results on stdout or in a file, and text from clusters that cannot control a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from infra.terminal import printable
from workloads.results.files import write_file

T = TypeVar("T")


class Terminal(Console):
    """Console for text from results, logs and clusters: no markup, no emoji codes, nothing that controls a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape the text of segments, but not rich's own control codes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def say(console: Console, text: str | Text, style: str | None = None) -> None:
    """Print a line as it is. Without wrapping, it stays whole for search and copy."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def table_of(
    columns: Iterable[str], text: Collection[str] = (), title: str | None = None, caption: str | None = None
) -> Table:
    """Return an empty table of figures, aligned right; the columns in `text` are aligned left."""
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in text else "right", no_wrap=True)
    return table


def present(
    found: T,
    show: Callable[[T, Console], None],
    document: Mapping[str, Any],
    json_file: str | None = None,
    *,
    stderr: bool = False,
) -> None:
    """Show a result, and write it as JSON if requested. With JSON on stdout, everything else goes to stderr."""
    show(found, Terminal(stderr=stderr or json_file == "-"))
    if json_file:
        write_json(document, json_file)


def write_json(result: Mapping[str, Any], where: str) -> None:
    """Write the result as JSON to a file, or to stdout (`-`)."""
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        write_file(Path(where), text)
