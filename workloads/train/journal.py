"""Journal of a run's attempts: small files in the run's folder, which outlive workers and drivers.

Each attempt (one start of the workers) rewrites its own file, because object stores cannot append. A kill loses at most
the last `EVERY_S` (`EVERY_REMOTE_S` on object stores) and one look.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from workloads.train.checkpoints import Folder

PLACE = "journal"
EVERY_S = 1.0
EVERY_REMOTE_S = 15.0


@dataclass
class Span:
    """Steps `first` … `end` − 1: their seconds, and the seconds of these in which the loop waited for data."""

    first: int
    end: int
    seconds: float
    wait_s: float


@dataclass
class Attempt:
    """One start of the workers. Times in seconds since 1970; `pauses` in seconds by kind.

    `job` is the time of the submission, which all attempts of one driver share. `last` is the time of the last update.
    """

    job: float
    worker: float
    world: int
    resumed_from: int
    last: float
    ready: float | None = None
    spans: list[Span] = field(default_factory=list)
    pauses: dict[str, float] = field(default_factory=dict)
    ended: Literal["finished", "stopped", "error"] | None = None


@dataclass
class Failure:
    """Ray's report of a failed attempt: one line per rank."""

    time: float
    preemption: bool
    errors: dict[int, str]


class Journal:
    """Writes the journal of rank 0's attempt."""

    def __init__(self, folder: Folder, attempt: Attempt) -> None:
        self.folder, self.attempt = folder, attempt
        self.every = EVERY_S if folder.local else EVERY_REMOTE_S
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.pending: Future[None] | None = None
        self.written = 0.0

    def note(self, due: bool = False, now: bool = False) -> None:
        """Write the attempt in the background if the last write is long enough ago.

        Args:
            due: Always write, as at a checkpoint, so that the journal has the steps that are kept.
            now: Always write, and wait.
        """
        self.attempt.last = time.time()
        idle = self.pending is None or self.pending.done()
        if due or now or (idle and self.attempt.last - self.written >= self.every):
            self.written = self.attempt.last
            self.pending = self.pool.submit(write, self.folder, "attempt", self.attempt.worker, asdict(self.attempt))
        if now and self.pending is not None:
            self.pending.result()


def write(folder: Folder, kind: str, when: float, content: dict[str, Any]) -> None:
    """Write one file of the journal. A full disk does not end the run here: the checkpoint reports it."""
    try:
        folder.write(_place(kind, when), json.dumps(content).encode())
    except OSError:
        return


def _place(kind: str, when: float) -> str:
    # Microseconds: two failures can happen within a millisecond.
    return f"{PLACE}/{kind}-{when:.6f}.json"


def doom(folder: Folder, job: float, error: str) -> None:
    """Record that this job cannot continue: Ray Train would restart the workers, and the same would happen again."""
    write(folder, "doom", job, {"error": error})


def doomed(folder: Folder, job: float) -> str | None:
    """Return why this job cannot continue, if a worker recorded it."""
    place = _place("doom", job)
    if place.removeprefix(f"{PLACE}/") not in folder.names(PLACE):
        return None
    error: str = json.loads(folder.read(place))["error"]
    return error


def read(folder: Folder) -> tuple[list[Attempt], list[Failure]]:
    """Return all attempts and failures of a run, oldest first."""
    attempts, failures = [], []
    for name in folder.names(PLACE):
        if not name.endswith(".json"):
            continue
        content = json.loads(folder.read(f"{PLACE}/{name}"))
        if name.startswith("attempt-"):
            attempts.append(Attempt(**(content | {"spans": [Span(**span) for span in content["spans"]]})))
        elif name.startswith("failure-"):
            failures.append(Failure(**content))
    return sorted(attempts, key=lambda one: one.worker), sorted(failures, key=lambda one: one.time)
