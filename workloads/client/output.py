"""Display of a job's output: the lines of chosen ranks on stdout, everything else on stderr, the failure last."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TextIO

from rich.console import Console

from infra.terminal import printable
from workloads import sealed
from workloads.exits import WorkloadError
from workloads.options import option
from workloads.results.events import Event
from workloads.results.lines import TORCHRUN, RankLine
from workloads.terminal.progress import ProgressView

LONGEST_TEXT = 20_000  # characters of an event that are shown, from its end
PHASES = {
    "placement": "reserving the nodes",
    "check": "testing the nodes",
    "start": "starting the ranks",
    "run": "running",
}
SHOWN_RANK = 0
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Lines of a job that are shown."""

    rank: Annotated[
        tuple[int, ...],
        option(
            negative=(),
            help=f"Show the lines of this rank; repeatable. [default: {SHOWN_RANK}, and after a failure its rank]",
        ),
    ] = ()
    all_ranks: Annotated[
        bool, option(name="--all", help="Show every rank's lines, each with its rank, and torchrun's.")
    ] = False
    since: Annotated[
        str | None,
        option(metavar="TIME", help="Show ranks' lines from this time on: 10m, 2h, or 2026-11-23T12:00 (local time)."),
    ] = None

    def __post_init__(self) -> None:
        if self.rank and self.all_ranks:
            raise WorkloadError("--rank and --all exclude each other: use only one of them")
        if any(rank < 0 for rank in self.rank):
            raise WorkloadError(f"--rank {min(self.rank)}: ranks count from 0")

    def starting(self, now: float) -> float:
        """Return the time of `--since`, in seconds since 1970; 0 without it. WorkloadError if it is not a time."""
        if self.since is None:
            return 0
        if match := re.fullmatch(r"(\d{1,9})([smhd])", self.since, re.ASCII):
            return now - int(match[1]) * _SECONDS[match[2]]
        try:
            return datetime.fromisoformat(self.since).timestamp()
        except (ValueError, OverflowError, OSError):
            raise WorkloadError(
                f"--since {self.since}: write a number with s, m, h or d, such as 10m, or a time such as"
                " 2026-11-23T12:00:00, with Z for UTC"
            ) from None


DEFAULT_LINES = LineOptions()


class RunView(ProgressView):
    """View of the user's code.

    Args:
        gang: Whether ranks run, so that a line without a rank is the driver's. Otherwise, it is the command's.
        output: Stream of the command's lines.
    """

    def __init__(self, console: Console, lines: LineOptions = DEFAULT_LINES, *, gang: bool, output: TextIO) -> None:
        super().__init__(console)
        self.since = lines.starting(time.time())
        if self.since and not gang:
            raise WorkloadError("--since: only lines of ranks have a time, but this job has no ranks: omit it")
        self.ranks: Collection[int] | None = None if lines.all_ranks else lines.rank or (SHOWN_RANK,)
        self.prefixed = lines.all_ranks or len(lines.rank) > 1
        self.gang, self.output = gang, output
        if not output.isatty():
            self.longest_line = sys.maxsize  # another program reads them
        self.recent = not self.since
        self.failure: list[str] = []
        self.backlog: deque[tuple[bool, str]] | None = None

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        if not any(error):
            self.release()
            self._show_failure()

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.progress.update(self.task, description=PHASES[event["name"]])
            case "waiting":
                self.say(f"waiting for the nodes for {event['seconds']} s: {event['text']}")
            case "failure":
                who = f"rank {event['rank']} on {event['host']}"
                self.failure = [f"{who} failed with exit code {event['code']}; its last lines:", _end(event["text"])]
            case "restart":
                self._show_failure()
                self.note(f"starting again, {event['number']} of {event['of']} times")
            case sealed.KIND:
                pass  # `workloads.run.delivery` reads it
            case _:
                self.note(_end(event["text"]))

    def line(self, text: str) -> None:
        rank_line = RankLine.parse(text)
        if rank_line is None:
            if self.recent and (self.ranks is None or not text.startswith(TORCHRUN)):
                self._show(not self.gang, text)
        elif rank_line.time >= self.since:
            self.recent = True
            if self.ranks is None or rank_line.rank in self.ranks:
                self._show(True, f"rank {rank_line.rank} | " * self.prefixed + rank_line.text)

    def say(self, text: str) -> None:
        if self.progress.live.is_started:
            super().say(text)
        else:
            self.note(text)

    def failed(self) -> None:
        """Do nothing: no line is held."""

    def _show_failure(self) -> None:
        """Show the end of the output of the rank that failed first."""
        for line in self.failure:
            self.note(line)
        self.failure = []

    def hold(self, count: int) -> None:
        """Hold lines from now on, of which `release` shows the last `count`."""
        self.backlog = deque(maxlen=count)

    def release(self) -> None:
        held, self.backlog = self.backlog or (), None
        for own, text in held:
            self._show(own, text)

    def _show(self, own: bool, text: str) -> None:
        """Show a line: the command's own (True) on its stream, another on stderr."""
        if self.backlog is not None:
            self.backlog.append((own, text))
        elif not own:
            self.note(text)
        else:
            self.progress.stop()  # a bar and the command's lines would mix
            print(printable(text), file=self.output, flush=True)


def _end(text: object) -> str:
    return str(text)[-LONGEST_TEXT:]


def output_of(json_file: str | None) -> TextIO:
    """Return the stream of the command's lines: stdout, unless the JSON document goes there."""
    return sys.stderr if json_file == "-" else sys.stdout
