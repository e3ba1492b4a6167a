"""The running programs of one control plane: each behind a guard of its own, each with a log file."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

_GUARD = Path(__file__).with_name("guard.py")
# Between SIGTERM and SIGKILL; nothing that these programs hold has to outlive them.
GRACE_S = 5.0
_TOLD_LINES = 12


class ProgramEnded(RuntimeError):  # noqa: N818
    """A program ended that should run; the message has the last lines of its log."""


class Programs:
    """Programs by name, started in the folder `work` with logs in `logs`/NAME.log."""

    def __init__(self, work: Path, logs: Path) -> None:
        self._work = work
        self._logs = logs
        self._guards: dict[str, tuple[subprocess.Popen[str], int]] = {}
        self._lock = threading.Lock()

    def start(self, name: str, command: Iterable[str | Path], environment: Mapping[str, str]) -> int:
        """Start a program under a name that is free; returns its process id."""
        guard = [sys.executable, "-I", str(_GUARD), str(self._logs / f"{name}.log"), str(GRACE_S)]
        with self._lock:
            if name in self._guards:
                raise ValueError(f"{name} was started already")
            process = subprocess.Popen(
                [*guard, *map(str, command)],
                cwd=self._work,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            told = ""
            try:
                told = process.stdout.readline()
            finally:
                if not told:
                    _release(process)
                    process.wait()
            if not told:
                raise ProgramEnded(f"{name} could not be started: its guard ended with status {process.returncode}")
            self._guards[name] = process, int(told)
            return int(told)

    def check(self) -> None:
        """Raise ProgramEnded if one of the programs has ended by itself."""
        for name, (guard, _) in list(self._guards.items()):
            if (status := guard.poll()) is not None:
                raise ProgramEnded(f"{name} ended with status {status}; the last lines of its log:\n{self.tail(name)}")

    def running(self) -> dict[str, int]:
        """Program -> process id, of those that run now."""
        return {name: pid for name, (guard, pid) in list(self._guards.items()) if guard.poll() is None}

    def stop(self, *names: str) -> None:
        """End programs, all at the same time, and wait until they are gone; the name is free again then."""
        with self._lock:
            ending = [self._guards[name][0] for name in names if name in self._guards]
            for guard in ending:
                _release(guard)
            for guard in ending:
                guard.wait()
            for name in names:
                self._guards.pop(name, None)

    def tail(self, name: str) -> str:
        """The last lines of a program's log."""
        try:
            lines = (self._logs / f"{name}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(lines[-_TOLD_LINES:])


def _release(guard: subprocess.Popen[str]) -> None:
    for pipe in (guard.stdin, guard.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
