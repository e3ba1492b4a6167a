"""The recording of a job by another process, from the program that runs the job."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from workloads.history.record import JobRecord
from workloads.temporary import temporary_file

END_S = 15.0
"""Most seconds by which slow storage delays the end of a job: after it, its pod may be deleted."""
NEEDED = ("PATH", "LD_LIBRARY_PATH", "LANG")
"""Variables of the writer, which gets no other one: they may hold secrets."""
_ROOT = Path(__file__).resolve().parents[2]
_START = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from workloads.history.writer import main; main()"


class Recording:
    """Recording of a job. Whatever fails in it, the job goes on.

    Args:
        process: The writer; None if nothing is kept.
        spool: File to which `write` writes.
    """

    def __init__(self, process: subprocess.Popen[bytes] | None = None, spool: IO[bytes] | None = None) -> None:
        self._process, self._spool = process, spool

    def write(self, output: bytes) -> None:
        """Keep output of the job that goes to no file of this node."""
        if self._spool is not None:
            try:
                self._spool.write(output)
                self._spool.flush()
            except OSError:
                self._spool = None  # this node's disk is full: the record has what was written before

    def end(self, code: int, *, stopped: bool) -> None:
        """Keep the end of the job, and print one line if the record is incomplete. Waits at most END_S seconds."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps({"code": code, "stopped": stopped}).encode())
            self._process.stdin.close()
        answered = select.select([self._process.stdout], [], [], END_S)[0]
        problem = self._process.stdout.read().decode().strip() if answered else f"no answer within {END_S:.0f} s"
        if problem:
            print(f"rdma-ray: the storage keeps this job only in part: {problem}", file=sys.stderr, flush=True)


@contextmanager
def recording(record: JobRecord | None, log: int | None = None) -> Iterator[Recording]:
    """Record a job while the context is open. Without `end`, its end is unknown.

    Args:
        record: None to keep nothing.
        log: Open file to which the job's output goes; None if `write` gets it.
    """
    with ExitStack() as stack:
        keeper = Recording()
        if record is not None:
            try:
                keeper = _start(record, log, stack)
            except OSError as error:
                print(f"rdma-ray: the storage does not keep this job: {error}", file=sys.stderr, flush=True)
        yield keeper


def _start(record: JobRecord, log: int | None, stack: ExitStack) -> Recording:
    spool = None
    if log is None:
        spool = stack.enter_context(temporary_file())
        log = spool.fileno()
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", _START, str(log)],
        env={name: os.environ[name] for name in NEEDED if name in os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[log],
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # Not by Popen's context: the pipes may be closed already, and their other end gone.
    stack.callback(process.wait)
    stack.callback(process.stdout.close)
    stack.callback(_close, process.stdin)
    _feed(process.stdin, record)
    return Recording(process, spool)


def _feed(pipe: IO[bytes], record: JobRecord) -> None:
    with suppress(OSError):
        pipe.write(record.as_json().encode() + b"\n")
        pipe.flush()


def _close(pipe: IO[bytes]) -> None:
    with suppress(OSError):
        pipe.close()
