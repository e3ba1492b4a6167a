"""What a run's attempts did, in small files in the run's folder: it outlives workers and drivers.

Each attempt (one start of the workers) writes a file of its own, whole, again and again: object stores cannot append.
A kill costs what was not written yet, at most `EVERY_S` (`EVERY_REMOTE_S` on object stores) and one look.
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
    """Steps `first` … `end` − 1: how long they took, and how much of that the loop stood still for data (s)."""

    first: int
    end: int
    seconds: float
    wait_s: float


@dataclass
class Attempt:
    """One start of the workers. Times in seconds since 1970; `pauses` in seconds by kind.

    `job` is the submission: attempts of one driver have the same. `last` is the last sign of life.
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
    """What Ray told of an attempt that broke: the ranks' errors in a line each."""

    time: float
    preemption: bool
    errors: dict[int, str]


class Journal:
    """Rank 0's pen."""

    def __init__(self, folder: Folder, attempt: Attempt) -> None:
        self.folder, self.attempt = folder, attempt
        self.every = EVERY_S if folder.local else EVERY_REMOTE_S
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.pending: Future[None] | None = None
        self.written = 0.0

    def note(self, due: bool = False, now: bool = False) -> None:
        """Write the attempt as it stands, in the background, if the last time is long enough ago.

        `due`: however long ago (at a checkpoint: what is kept is told); `now`: and wait for it.
        """
        self.attempt.last = time.time()
        idle = self.pending is None or self.pending.done()
        if due or now or (idle and self.attempt.last - self.written >= self.every):
            self.written = self.attempt.last
            self.pending = self.pool.submit(write, self.folder, "attempt", self.attempt.worker, asdict(self.attempt))
        if now and self.pending is not None:
            self.pending.result()


def write(folder: Folder, kind: str, when: float, content: dict[str, Any]) -> None:
    """One file of the journal. A full disk must not end the run here: the checkpoint tells of it."""
    try:
        folder.write(_place(kind, when), json.dumps(content).encode())
    except OSError:
        return


def _place(kind: str, when: float) -> str:
    # As finely as a float tells today's time: two failures can come within a millisecond.
    return f"{PLACE}/{kind}-{when:.6f}.json"


def doom(folder: Folder, job: float, error: str) -> None:
    """Note that this job cannot go on: Ray Train would start the workers again, and the same would happen again."""
    write(folder, "doom", job, {"error": error})


def doomed(folder: Folder, job: float) -> str | None:
    """Why this job cannot go on, where a worker has said so."""
    place = _place("doom", job)
    if place.removeprefix(f"{PLACE}/") not in folder.names(PLACE):
        return None
    error: str = json.loads(folder.read(place))["error"]
    return error


def read(folder: Folder) -> tuple[list[Attempt], list[Failure]]:
    """All attempts and failures of a run, the oldest first."""
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
