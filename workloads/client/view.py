"""Progress on a terminal: a bar that events move, and plain lines where there is no terminal. Always on stderr."""

from __future__ import annotations

from collections import deque

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from workloads.client.run import View

HELD_LINES = 200


class ProgressView(View):
    """A View with one bar. Subclasses turn events into say() and advance()."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.held: deque[str] = deque(maxlen=HELD_LINES)
        self.progress = Progress(
            TextColumn("{task.description}"),
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
        # Ray and the libraries tell much that nobody asked for: it is shown when something broke.
        self.held.append(text)

    def failed(self) -> None:
        for text in self.held:
            self.note(text)
        self.held.clear()

    def note(self, text: str) -> None:
        # soft_wrap: a log's lines stay as they are, so that they can be searched and pasted.
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """What happens now: beside the bar, or a line of its own where there is none."""
        self.progress.update(self.task, description=text)
        if not self.console.is_terminal:
            self.note(text)

    def begin(self, total: int, done: int = 0) -> None:
        self.progress.update(self.task, total=total, completed=done)

    def advance(self, text: str) -> None:
        self.progress.update(self.task, advance=1, description=text)
