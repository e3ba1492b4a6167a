"""Runs one program and ends it when it is no longer wanted: on SIGTERM, or when the pipe on standard input closes.

Run as `python -I guard.py LOG GRACE_S COMMAND…` with a pipe on standard input whose other end only the owner holds. The
system closes it however the owner ends, SIGKILL included, so nothing outlives the owner. The program gets a session of
its own (a Ctrl-C at the terminal does not reach it), and its process id is the one line on standard output.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from types import FrameType


def main(log: str, grace_s: float, command: list[str]) -> int:
    """Run `command` until it ends or is not wanted; returns its exit status, 128 + N for signal N."""
    # A signal only has to wake the select below: Python writes a byte to this pipe for each.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    asked_to_stop = False

    def stop(*_: int | FrameType | None) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(log, "ab") as output:  # noqa: PTH123
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    print(program.pid, flush=True)
    while program.poll() is None and not asked_to_stop:
        readable, _, _ = select.select([0, woken], [], [])
        # Nothing is ever written to standard input: readable means closed.
        asked_to_stop = asked_to_stop or 0 in readable
        if woken in readable:
            os.read(woken, 4096)
    if program.poll() is None:
        program.terminate()
        try:
            program.wait(grace_s)
        except subprocess.TimeoutExpired:
            program.kill()
    status = program.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
