"""Run the driver of a job as a child, and keep its log and its end in the stack's storage.

python -m workloads.gang.kept RECORD_JSON COMMAND …

stdout is the log of a job of Ray, a file: the driver writes to it as it would alone, and another process reads it. So
nothing is between the driver and its log, and this process only waits for its exit code.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from workloads.gang.guard import die_with_parent
from workloads.gang.masked import SIGNALS, STOPPING, child
from workloads.history.record import JobRecord
from workloads.history.recording import recording

LATE_S = 0.2
"""Seconds after the start of the driver in which a signal may be for this process only: Ray lists the processes of a
job before it signals them (dashboard/modules/job/job_supervisor.py, 2.60). Later, the driver would get it twice, and
the second one ends a Python that is about to exit."""


def kept(words: Sequence[str], record: JobRecord | None) -> list[str]:
    """Return the words of a job that keeps its log, for the same interpreter; unchanged without a record."""
    if record is None:
        return list(words)
    python = list(words[: list(words).index("-m")])
    return [*python, "-m", "workloads.gang.kept", record.as_json(), *words]


def run_kept(record: JobRecord, command: Sequence[str]) -> int:
    """Run a command to its end, and return its exit code, -N after signal N. OSError if it cannot run."""
    stopped, began = False, time.monotonic()

    def pass_on(process: subprocess.Popen[bytes], number: int) -> None:
        nonlocal stopped
        stopped = stopped or number in STOPPING
        if time.monotonic() - began < LATE_S:
            process.send_signal(number)

    log = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_CLOEXEC)
    with recording(record, log) as keeper:
        with child(command, SIGNALS, pass_on, preexec_fn=die_with_parent) as process:
            code = process.wait()
        keeper.end(code, stopped=stopped)
    return code


def main(arguments: Sequence[str]) -> int:
    """Run the command, and end as it does: with its exit code, or by the same signal."""
    code = run_kept(JobRecord.of(arguments[0]), arguments[1:])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the driver's is the one that matters
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
