"""Progress on stderr (a bar on a terminal, else plain lines), results on stdout, and the files of a result."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from infra.terminal import printable
from workloads.results import Event, write_file

HELD_LINES = 200
T = TypeVar("T")


class Terminal(Console):
    """Console for text from results, logs and clusters: no markup, no emoji codes, nothing that controls a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape the text of segments, but not rich's own control codes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class View(AbstractContextManager["View"]):
    """Progress display of a workload. This base class prints log lines to stderr and ignores events."""

    longest_line = 10_000
    """Characters of a log line that are shown."""

    def event(self, event: Event) -> None:
        """Show one event of the driver."""

    def line(self, text: str) -> None:
        """Show one ordinary line of the log."""
        print(printable(text), file=sys.stderr, flush=True)

    def failed(self) -> None:
        """Show the log lines held so far, after the job failed."""

    def release(self) -> None:
        """Show what is held of the lines before the command began to follow."""

    def note(self, text: str) -> None:
        """Show a message of the client."""
        self.line(text)

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""


class ProgressView(View):
    """View with one progress bar. Subclasses map events to say() and advance()."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.held: deque[str] = deque(maxlen=HELD_LINES)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("starting the driver", total=None)

    def __enter__(self) -> View:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def line(self, text: str) -> None:
        # Shown only after a failure: most lines of Ray and the libraries do not concern users.
        self.held.append(text)

    def failed(self) -> None:
        for text in self.held:
            self.note(text)
        self.held.clear()

    def note(self, text: str) -> None:
        say(self.console, text)

    def say(self, text: str) -> None:
        """Show the current activity next to the bar, or as a line if there is no terminal."""
        self.progress.update(self.task, description=text)
        if not self.console.is_terminal:
            self.note(text)

    def begin(self, total: int, done: int = 0) -> None:
        self.progress.update(self.task, total=int(total), completed=int(done))

    def advance(self, text: str) -> None:
        self.progress.update(self.task, advance=1, description=text)


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
