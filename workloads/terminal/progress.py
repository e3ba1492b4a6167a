"""Progress of a job on stderr: a bar on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from infra.terminal import printable
from workloads.results.events import Event
from workloads.terminal.console import say

HELD_LINES = 200


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
        """Show the lines that were held before the command began to follow."""

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
