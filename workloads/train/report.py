"""Training runs on a terminal: progress and figures. Reads results and Kubernetes objects from files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from workloads.exits import WorkloadError, last_line
from workloads.results.events import Event
from workloads.results.files import read_json
from workloads.terminal.console import say
from workloads.terminal.progress import ProgressView
from workloads.train.lines import heading, lines, progress
from workloads.train.result import TrainResult
from workloads.train.timeline import from_cluster

QUIET_S = 10.0
"""Seconds without a line after which one shows the loss, where there is no progress bar."""


class TrainView(ProgressView):
    """Progress bar over steps, and a line for each evaluation."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.noted = time.monotonic()

    def note(self, text: str) -> None:
        self.noted = time.monotonic()
        super().note(text)

    def event(self, event: Event) -> None:
        match event["kind"]:
            case "phase":
                self.say("starting the workers")
            case "waiting":
                self.say(f"waiting for the workers for {event['seconds']} s: {event['text']}")
            case "plan":
                self.begin(event["steps"], event["step"])
                self.say(progress(event) or "")
            case "look":
                text = progress(event) or ""
                self.progress.update(self.task, completed=int(event["step"]), description=text)
                if not self.console.is_terminal and time.monotonic() - self.noted >= QUIET_S:
                    self.note(text)
            case "note" | "epoch":
                self.note(progress(event) or "")
            case "failure":
                kind = "lost their nodes" if event["preemption"] else "failed"
                self.note(f"ranks {', '.join(map(str, event['ranks']))} {kind}: continuing from the last checkpoint")
            case "preempted":
                self.note(f"{event['reason']}: a checkpoint was written at step {event['step']}, continuing from it")


def show(result: TrainResult, console: Console) -> None:
    """Print the figures, or only the reason if training did not begin."""
    if result.world and result.step:
        say(console, heading(result))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name, text in lines(result):
            table.add_row(name, text)
        console.print(table, highlight=False)
    say(console, result.reason, "red" if result.exit_code else "green")


def with_objects(result: TrainResult, files: Sequence[Path], skew_s: float) -> TrainResult:
    """Return the result with the time to its first step from files of the Lists of objects that kubectl printed."""
    objects = []
    for file in files:
        document = read_json(file)
        items = document.get("items") if isinstance(document, dict) else None
        if not isinstance(items, list):
            raise WorkloadError(f"{file}: not a list of objects; write it with: kubectl get events,nodes,pods -o json")
        objects += items
    if result.timeline is None:
        raise WorkloadError("the result has no timeline: the run never reached a worker")
    try:
        return result.model_copy(update={"timeline": from_cluster(result.timeline, objects, skew_s)})
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise WorkloadError(f"{', '.join(map(str, files))}: not Kubernetes objects ({last_line(error)})") from None
