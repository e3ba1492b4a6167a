"""Processes by identity: a process id with its start time, and a mark in the environment.

The system reuses process ids; with the start time an id names one process forever. The mark, an environment variable
that children inherit, finds what a node started even after its parents have ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import psutil

MARK = "RDMA_RAY_NODE"


class ProcessId(NamedTuple):
    """Identity of a process: `pid`, and `started` in seconds since the epoch, as the system reports it."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Return the identity of a running process. Raises psutil.NoSuchProcess if there is none."""
        return cls(pid, psutil.Process(pid).create_time())

    def alive(self) -> bool:
        """Return whether this process still runs; a zombie or a later process with the same id does not count."""
        return self.process() is not None

    def process(self) -> psutil.Process | None:
        """Return the running process, or None."""
        try:
            process = psutil.Process(self.pid)
            # Both times come from the same clock, to within its resolution of a hundredth of a second.
            if abs(process.create_time() - self.started) > 0.05 or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


def marked(prefix: str) -> Iterator[psutil.Process]:
    """Yield the user's processes whose mark starts with `prefix`, except the calling process and its parents."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            # Another user's process, or one that has ended: not ours in either case.
            continue
        if mark.startswith(prefix):
            yield process


def end(processes: Iterable[psutil.Process], *, grace_s: float) -> None:
    """Terminate processes, wait up to `grace_s` seconds, kill the rest, and return when all have ended.

    Raises:
        TimeoutError: A process survived SIGKILL for ten seconds (it hangs in the kernel).
    """
    waiting = list(processes)
    for process in waiting:
        _signal(process, "terminate")
    _, alive = psutil.wait_procs(waiting, timeout=grace_s)
    for process in alive:
        _signal(process, "kill")
    _, alive = psutil.wait_procs(alive, timeout=10)
    if alive:
        raise TimeoutError(f"processes {sorted(process.pid for process in alive)} do not end, not even by SIGKILL")


def end_marked(prefix: str) -> None:
    """End every process marked with `prefix`, including those that start meanwhile."""
    deadline = time.monotonic() + 30
    while found := list(marked(prefix)):
        end(found, grace_s=2)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes marked {prefix!r} start again as fast as they are ended")


def _signal(process: psutil.Process, how: str) -> None:
    try:
        getattr(process, how)()
    except psutil.NoSuchProcess:
        return
