"""Start, watch and end child processes.

`Child` is one command in a process group of its own. `Programs` are servers, each behind a guard, which is this file
run as `python -I process.py LOG GRACE_S COMMAND…` with a pipe on standard input. The guard ends its program on SIGTERM
and when the pipe closes; the system closes it however the owner ends, SIGKILL included.

Uses only the standard library, since `tools/setup.py` runs before there is an environment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_LINES_S = 5.0
_TAIL_LINES = 15
# Between SIGTERM and SIGKILL of a server. None of them holds anything that has to outlive it.
GRACE_S = 5.0


class Child:
    """A command in its own process group, so that Ctrl-C in a terminal reaches it only through its owner.

    Args:
        on_line: Receives every line of standard output and standard error, in a thread. Without it, the command
            writes to the owner's output.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_line: Callable[[str], None] | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self.seconds = 0.0
        self._on_line = on_line
        self._began = time.monotonic()
        self._last_line = 0.0
        self.reason = ""
        self._interrupted: float | None = None
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else None,
            stderr=subprocess.STDOUT if on_line else None,
            text=True,
            errors="replace",
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def status(self) -> int:
        """Exit status. Waits for the end."""
        return self._process.wait()

    def runs(self, within_s: float = 0.0) -> bool:
        """Wait up to `within_s` seconds and return whether the command still runs. At its end, all lines are read."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return True
        if not self.seconds:
            # A process that the command left behind may hold the pipe open forever.
            self._reader.join(_LAST_LINES_S)
            self.seconds = (self._last_line or time.monotonic()) - self._began
        return False

    def interrupt(self, grace_s: float, reason: str = "", *, group: bool = True) -> None:
        """Send SIGINT on the first call, and SIGKILL on a call more than `grace_s` seconds later. Does not wait.

        Args:
            reason: Is kept in `reason`.
            group: Send SIGINT to the whole process group, as a terminal does, and not only to the command itself.
        """
        now = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            if self._interrupted is None:
                self._interrupted, self.reason = now, reason
                (os.killpg if group else os.kill)(self._process.pid, signal.SIGINT)
            elif now - self._interrupted > grace_s:
                os.killpg(self._process.pid, signal.SIGKILL)

    def stop(self, grace_s: float = GRACE_S, *, group: bool = True) -> None:
        """Interrupt the command and wait for its end; see `interrupt`."""
        while self.runs(within_s=0.05):
            self.interrupt(grace_s, group=group)

    def _read(self) -> None:
        if self._process.stdout is not None and self._on_line is not None:
            for line in self._process.stdout:
                self._on_line(line)
            self._last_line = time.monotonic()


def note_signals() -> list[int]:
    """Return a list that collects SIGINT, SIGTERM and SIGHUP from now on; they no longer end the process."""
    noted: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: noted.append(number))
    return noted


def wait_for(children: Collection[Child], stop: Callable[[], str], grace_s: float) -> None:
    """Wait for all children. Once `stop` returns a reason, interrupt them, and kill them `grace_s` seconds later."""
    while running := [child for child in children if child.runs()]:
        if reason := stop():
            for child in running:
                child.interrupt(grace_s, reason)
        running[0].runs(within_s=0.2)


class ProgramEnded(RuntimeError):  # noqa: N818
    """A program ended that should run. The message has the last lines of its log."""


class Programs:
    """Servers by name, each behind a guard, started in the folder `work` with logs in `logs`/NAME.log."""

    def __init__(self, work: Path, logs: Path) -> None:
        self._work = work
        self._logs = logs
        self._guards: dict[str, tuple[subprocess.Popen[str], int]] = {}
        self._lock = threading.Lock()

    def start(self, name: str, command: Iterable[str | Path], environment: Mapping[str, str]) -> int:
        """Start a program under an unused name. Returns its process ID."""
        with self._lock:
            if name in self._guards:
                raise ValueError(f"{name} was started already")
            arguments = [str(self._logs / f"{name}.log"), str(GRACE_S), *map(str, command)]
            guard = start_guard(Path(__file__), *arguments, cwd=self._work, environment=environment)
            assert guard.stdout is not None
            if pid := guard.stdout.readline():
                self._guards[name] = guard, int(pid)
                return int(pid)
            with guard:
                raise ProgramEnded(f"{name} could not be started: its guard ended with status {guard.wait()}")

    def check(self) -> None:
        """Raise ProgramEnded if a program has ended that was not stopped."""
        for name, (guard, _) in list(self._guards.items()):
            if (status := guard.poll()) is not None:
                raise ProgramEnded(f"{name} ended with status {status}; the last lines of its log:\n{self.tail(name)}")

    def running(self) -> dict[str, int]:
        """Return the process IDs of the programs that run, by name."""
        return {name: pid for name, (guard, pid) in list(self._guards.items()) if guard.poll() is None}

    def stop(self, *names: str) -> None:
        """End programs at the same time and wait for their end. Their names can be used again."""
        with self._lock:
            guards = [self._guards.pop(name)[0] for name in names if name in self._guards]
            for guard in guards:
                release(guard)
            for guard in guards:
                with guard:
                    guard.wait()

    def tail(self, name: str) -> str:
        """Return the last lines of a program's log."""
        return tail(self._logs / f"{name}.log")


def start_guard(
    script: Path,
    *arguments: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    errors: IO[bytes] | None = None,
) -> subprocess.Popen[str]:
    """Start a guard in a session of its own, with pipes on standard input and output."""
    return subprocess.Popen(
        [sys.executable, "-I", str(script), *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
        text=True,
    )


def release(guard: subprocess.Popen[str]) -> None:
    """Let a guard end what it runs, without waiting for it. May be called twice."""
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        guard.stdin.close()


def tail(log: Path) -> str:
    """Return the last lines of a log file."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    except FileNotFoundError:
        return "(no log)"


def guard(log: str, grace_s: float, command: list[str]) -> int:
    """Run `command` until it ends, SIGTERM or the end of standard input. Returns its status, 128 + N for signal N."""
    # A signal has to wake the select below: Python writes a byte to this pipe for each.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    stops = note_signals()
    with open(log, "ab") as output:  # noqa: PTH123
        # A session of its own: Ctrl-C at the terminal does not reach the program.
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    print(program.pid, flush=True)
    readable: list[int] = []
    # Nothing is written to standard input: readable means closed.
    while program.poll() is None and 0 not in readable and not stops:
        readable, _, _ = select.select([0, woken], [], [])
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
    sys.exit(guard(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
