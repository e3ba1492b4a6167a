"""Journal of a run's attempts, and the goodput that it amounts to. Small files outlive workers and drivers.

Each attempt (one start of the workers) rewrites its own file, because object stores cannot append. A kill loses at most
the last `EVERY_S` (`EVERY_REMOTE_S` on object stores) and one look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter
from pydantic_core import to_json

from workloads.exits import WorkloadError
from workloads.results.files import loads
from workloads.train.checkpoints import RunFolder
from workloads.train.options import TrainRunOptions
from workloads.train.result import AttemptFailure, Goodput, Survival

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


class Journal:
    """Writes the journal of rank 0's attempt."""

    def __init__(self, folder: RunFolder, attempt: Attempt) -> None:
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
            self.pending = self.pool.submit(write, self.folder, "attempt", self.attempt.worker, to_json(self.attempt))
        if now and self.pending is not None:
            self.pending.result()


def dumped(folder: RunFolder, spec: TrainRunOptions) -> str:
    """Return where this job's flight recorder dumps are. Empty if there are none."""
    directory, _, prefix = spec.dumps.partition("/")
    ranks = sorted((name.removeprefix(prefix) for name in folder.names(directory) if name.startswith(prefix)), key=len)
    return f"flight recorder dumps of ranks {', '.join(ranks)}: {folder.shown}/{directory}" if ranks else ""


def write(folder: RunFolder, kind: str, when: float, content: bytes) -> None:
    """Write one file of the journal. A full disk does not end the run here: the checkpoint reports it."""
    with suppress(OSError):
        folder.write(_place(kind, when), content)


def write_failure(folder: RunFolder, preemption: bool, errors: dict[int, str]) -> None:
    """Write the failure of an attempt."""
    failure = AttemptFailure(time.time(), preemption, errors)
    write(folder, "failure", failure.time, to_json(failure))


def _place(kind: str, when: float) -> str:
    # Microseconds: two failures can happen within a millisecond.
    return f"{PLACE}/{kind}-{when:.6f}.json"


def doom(folder: RunFolder, job: float, error: str) -> None:
    """Record that this job cannot continue: Ray Train would restart the workers, and the same would happen again."""
    write(folder, "doom", job, to_json({"error": error}))


def doomed(folder: RunFolder, job: float) -> str | None:
    """Return why this job cannot continue, if a worker recorded it."""
    place = _place("doom", job)
    if place.removeprefix(f"{PLACE}/") not in folder.names(PLACE):
        return None
    document = loads(_checked(folder, place))
    return str(document.get("error") if isinstance(document, dict) else document)


def _checked(folder: RunFolder, place: str) -> bytes:
    content = folder.read(place)
    try:
        loads(content)
    except ValueError as error:
        raise WorkloadError(f"{folder.shown}/{place} is damaged: {error}") from None
    return content


def read(folder: RunFolder) -> tuple[list[Attempt], list[AttemptFailure]]:
    """Return all attempts and failures of a run, oldest first. WorkloadError if a file is damaged."""
    names = [name for name in folder.names(PLACE) if name.endswith(".json")]
    content = {name: _checked(folder, f"{PLACE}/{name}") for name in names}
    try:
        attempts = [
            TypeAdapter(Attempt).validate_json(content[name], strict=True)
            for name in names
            if name.startswith("attempt-")
        ]
        failures = [
            TypeAdapter(AttemptFailure).validate_json(content[name], strict=True)
            for name in names
            if name.startswith("failure-")
        ]
    except ValueError as error:
        raise WorkloadError(f"{folder.shown}/{PLACE} has a damaged file: {error}") from None
    return sorted(attempts, key=lambda one: one.worker), sorted(failures, key=lambda one: one.time)


def goodput(
    attempts: Sequence[Attempt], failures: Sequence[AttemptFailure] = (), injected_fault: str | None = None
) -> tuple[Goodput, Survival]:
    """Return goodput and survival of a run's attempts, oldest first. ValueError if there are none.

    Goodput is defined as in google/ml-goodput-measurement: productive step time over wall time, the rest ("badput") by
    its cause. Published for comparison: 0.90 … 0.92 on H100 runs; below 0.95 it reports overhead.

    The wall time is that of the drivers, from each submission to its last update, without the time between jobs.
    Its parts: productive, provisioning (submission to workers), start (model, data, compilation), data (waits in kept
    steps), checkpoint, evaluation, lost_steps (trained, then not kept), recovery (a failure to the next attempt's first
    step), other.
    """
    if not attempts:
        raise ValueError("no attempts, so no goodput")
    names = ("productive", "provisioning", "start", "data", "checkpoint", "evaluation", "lost_steps", "recovery")
    parts = dict.fromkeys(names, 0.0)
    lost, between, wall = 0.0, 0.0, 0.0
    recoveries: list[float] = []
    before: Attempt | None = None
    for index, attempt in enumerate(attempts):
        later = [other.resumed_from for other in attempts[index + 1 :]]
        ready = attempt.ready if attempt.ready is not None else attempt.last
        if before is None or before.job != attempt.job:
            began = attempt.job
            parts["provisioning"] += attempt.worker - attempt.job
            parts["start"] += ready - attempt.worker
            between += max(0.0, attempt.job - before.last) if before else 0.0
        else:
            began = before.last
            parts["recovery"] += ready - before.last
            recoveries.append(ready - before.last)
        wall += max(attempt.last, ready) - began
        for span in attempt.spans:
            steps = span.end - span.first
            kept = max(min([span.end, *later]) - span.first, 0) / steps
            parts["productive"] += (span.seconds - span.wait_s) * kept
            parts["data"] += span.wait_s * kept
            parts["lost_steps"] += span.seconds * (1 - kept)
            lost += steps * (1 - kept)
        for kind, seconds in attempt.pauses.items():
            parts[kind] += seconds
        before = attempt
    parts["other"] = max(0.0, wall - sum(parts.values()))
    share = parts["productive"] / wall if wall > 0 else 0.0
    survival = Survival(
        attempts=len(attempts),
        jobs=len({attempt.job for attempt in attempts}),
        failures=sum(not failure.preemption for failure in failures),
        preemptions=sum(failure.preemption for failure in failures),
        lost_steps=round(lost),
        mttr_s=sum(recoveries) / len(recoveries) if recoveries else None,
        between_jobs_s=between,
        errors=list(failures),
        injected_fault=injected_fault,
    )
    return Goodput(share=share, wall_s=wall, parts_s=parts), survival
