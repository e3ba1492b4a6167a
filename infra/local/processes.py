"""Processes found by a mark: an environment variable that children inherit.

It finds the processes of a node even after their parents have ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

MARK = "RDMA_RAY_NODE"
_KILL_GRACE_S = 10


def marked(prefix: str) -> Iterator[psutil.Process]:
    """Yield the user's processes whose mark starts with `prefix`, except the calling process and its parents."""
    ancestors = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid in ancestors:
            continue
        # Root can read the environment of every user, who may write any mark there. An error: it has ended.
        with suppress(psutil.Error, OSError):
            if process.uids().real == os.getuid() and process.environ().get(MARK, "").startswith(prefix):
                yield process


def end(processes: Iterable[psutil.Process], *, grace_s: float) -> None:
    """Terminate processes, wait up to `grace_s` seconds, kill the rest, and return when all have ended.

    Raises:
        TimeoutError: A process survived SIGKILL for ten seconds (it hangs in the kernel).
    """
    alive = list(processes)
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_GRACE_S)):
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, alive = psutil.wait_procs(alive, timeout=patience_s)
    if alive:
        raise TimeoutError(f"processes {sorted(process.pid for process in alive)} did not end, not even after SIGKILL")


def end_marked(prefix: str) -> None:
    """End every process marked with `prefix`, including those that start in the meantime."""
    deadline = time.monotonic() + 30
    while processes := list(marked(prefix)):
        end(processes, grace_s=2)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes marked {prefix!r} restart as fast as they are killed")
