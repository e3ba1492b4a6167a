"""Start, watch and end child processes.

`Child` is a command in its own process group. `Programs` are servers; their supervisor (this file, run as
`python -I process.py GRACE_S`) ends them with their owner. Standard library only, for `tools/setup.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

# Not `Self`: on Python 3.10, `tools/setup.py` prints that it is too old.
_Self = TypeVar("_Self", bound="Programs")
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_LINES_S = 5.0
_TAIL_LINES = 15
# Seconds between SIGTERM and SIGKILL.
GRACE_S = 5.0
# Seconds after which a supervisor that is still running gets SIGTERM.
_SUPERVISOR_S = 60.0


class Child:
    """A command in its own process group, so that Ctrl-C in a terminal reaches it only through its owner.

    Args:
        on_line: Callback, in a thread, for each line of output. Without it, the output is the owner's.
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
        """Wait up to `within_s` seconds; return whether the command runs. If not, all lines are read."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return True
        if not self.seconds:
            # A process that outlives the command may keep the pipe open.
            self._reader.join(_LAST_LINES_S)
            self.seconds = (self._last_line or time.monotonic()) - self._began
        return False

    def interrupt(self, grace_s: float, reason: str = "", *, group: bool = True) -> None:
        """Send SIGINT for each new reason, and SIGKILL `grace_s` seconds after the first. Does not wait.

        Args:
            reason: Value for the attribute `reason`.
            group: Send SIGINT to the whole process group, as a terminal does, instead of the command only.
        """
        now = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            if self._interrupted is None or reason != self.reason:
                self._interrupted, self.reason = self._interrupted or now, reason
                (os.killpg if group else os.kill)(self._process.pid, signal.SIGINT)
            elif now - self._interrupted > grace_s:
                os.killpg(self._process.pid, signal.SIGKILL)

    def stop(self, grace_s: float = GRACE_S, *, group: bool = True) -> None:
        """Interrupt the command and wait; see `interrupt`."""
        while self.runs(within_s=0.05):
            self.interrupt(grace_s, group=group)

    def complete(
        self,
        grace_s: float = GRACE_S,
        *,
        group: bool = True,
        waiting: Callable[[float], None] = lambda _: None,
        every_s: float = 1.0,
    ) -> int:
        """Wait for the end and return the exit status. KeyboardInterrupt and others stop the command.

        Args:
            waiting: Callback for the elapsed seconds, every `every_s` seconds.
        """
        try:
            while self.runs(every_s):
                waiting(time.monotonic() - self._began)
        finally:
            self.stop(grace_s, group=group)
        return self.status

    def _read(self) -> None:
        if self._process.stdout is not None and self._on_line is not None:
            for line in self._process.stdout:
                self._on_line(line)
            self._last_line = time.monotonic()


def plain_environment() -> dict[str, str]:
    """Return the environment of a server, without the user's proxies, kubeconfig and credentials."""
    names = ("PATH", "HOME", "TMPDIR", "LANG", "TZ")
    default = {"PATH": os.defpath, "HOME": "/root", "LANG": "C.UTF-8"}
    return default | {name: os.environ[name] for name in names if name in os.environ}


def note_signals() -> list[int]:
    """Return a list that collects SIGINT, SIGTERM and SIGHUP, which no longer end the process."""
    noted: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: noted.append(number))
    return noted


def wait_for(children: Collection[Child], stop: Callable[[], str], grace_s: float) -> None:
    """Wait for all children. When `stop` returns a reason, interrupt and finally kill them."""
    while running := [child for child in children if child.runs()]:
        if reason := stop():
            for child in running:
                child.interrupt(grace_s, reason)
        running[0].runs(within_s=0.2)


class ProgramEnded(RuntimeError):  # noqa: N818
    """A program ended unexpectedly. The message contains the last lines of its log."""


class Programs:
    """Servers by name, started and ended by a supervisor process, with logs in `logs`/PREFIX-NAME.log.

    The supervisor (`supervise`) kills them when its standard input closes, even if the owner is killed. As a context
    manager, it stops everything at the end.

    Args:
        work: Working folder of the servers.
        prefix: Name of the machine that the servers run on, for logs and messages.
        command: Command that becomes the supervisor, if not this file.
    """

    def __init__(
        self, logs: Path, *, work: Path | None = None, prefix: str = "", command: Sequence[str] | None = None
    ) -> None:
        self._logs = logs
        self._work = work
        self._prefix = f"{prefix}-" if prefix else ""
        self._machine = f"the machine {prefix}" if prefix else "the supervisor"
        self._on = f" on {prefix}" if prefix else ""
        self._command = command
        self._supervisor: subprocess.Popen[str] | None = None
        # Protects the attributes below, and signals changes.
        self._changed = threading.Condition()
        self._ready = False
        # Process ID (0 if it could not be started) and exit status by name.
        self._seen: dict[str, tuple[int, int | None]] = {}
        self._stopped: set[str] = set()  # told to stop after their last start

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def open(self, within_s: float = 30.0) -> int:
        """Start the supervisor if necessary; return its process ID."""
        with self._changed:
            if self._supervisor is not None:
                return self._supervisor.pid
            self._logs.mkdir(parents=True, exist_ok=True)
            with self._log("supervisor").open("ab") as log:
                self._supervisor = supervisor = subprocess.Popen(
                    self._command or [sys.executable, "-I", __file__, str(GRACE_S)],
                    cwd=self._work,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    # Ctrl-C in the terminal does not reach it.
                    start_new_session=True,
                    text=True,
                )
            threading.Thread(target=self._listen, args=(supervisor,), daemon=True).start()
            self._changed.wait_for(lambda: self._ready or supervisor.poll() is not None, within_s)
            if not self._ready:
                raise ProgramEnded(f"{self._machine} could not be created:\n{self.tail('supervisor')}")
            return supervisor.pid

    def start(self, name: str, command: Iterable[str | Path], environment: Mapping[str, str] | None = None) -> int:
        """Start a program under a unique name; return its process ID."""
        self.open()
        with self._changed:
            if name in self.running():
                raise ValueError(f"{name} was started already")
            self._seen.pop(name, None)
            self._stopped.discard(name)
            argv = [str(word) for word in command]
            environment = plain_environment() if environment is None else dict(environment)
            self._order(start=name, argv=argv, env=environment, log=str(self._log(name).resolve()))
            self._changed.wait_for(lambda: name in self._seen or not self._ready)
            pid, _ = self._seen.get(name, (0, None))
            if not pid:
                self._seen.pop(name, None)
                raise ProgramEnded(f"{name}{self._on} could not be started:\n{self.tail(name)}")
            return pid

    def check(self) -> None:
        """Raise ProgramEnded if the supervisor or a program has ended unexpectedly."""
        for name, (_, status) in dict(self._seen).items():
            if status is not None and name not in self._stopped:
                last = f"the last lines of its log:\n{self.tail(name)}"
                raise ProgramEnded(f"{name}{self._on} ended with status {status}; {last}")
        if self._supervisor is not None and (code := self._supervisor.poll()) is not None:
            raise ProgramEnded(f"{self._machine} ended with status {code}:\n{self.tail('supervisor')}")

    def running(self) -> dict[str, int]:
        """Return the process IDs of the running programs, by name."""
        return {name: pid for name, (pid, status) in dict(self._seen).items() if status is None}

    def stop(self, *names: str) -> None:
        """Stop programs and wait for their end; without names, all. May be called twice."""
        if not names:
            self.release()
            if self._supervisor is not None:
                try:
                    self._supervisor.wait(_SUPERVISOR_S)
                except subprocess.TimeoutExpired:
                    self._supervisor.terminate()
                    self._supervisor.wait()
            return
        with self._changed:
            stopped = {name for name in names if name in self.running()}
            # Another thread may check when the end is known here and not yet handled.
            self._stopped |= stopped
            if stopped and self._ready:
                self._order(stop=[*stopped])
                self._changed.wait_for(lambda: not stopped & self.running().keys() or not self._ready)
            for name in names:
                self._seen.pop(name, None)

    def release(self) -> None:
        """Stop all programs without waiting for them. May be called twice."""
        if self._supervisor is not None:
            assert self._supervisor.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._supervisor.stdin.close()

    def tail(self, name: str) -> str:
        """Return the last lines of a program's log."""
        try:
            return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        except FileNotFoundError:
            return "(no log)"

    def _log(self, name: str) -> Path:
        return self._logs / f"{self._prefix}{name}.log"

    def _listen(self, supervisor: subprocess.Popen[str]) -> None:
        assert supervisor.stdout is not None
        for line in supervisor.stdout:
            message = json.loads(line)
            with self._changed:
                if "name" in message:
                    self._seen[message["name"]] = message["pid"], message["status"]
                self._ready = True
                self._changed.notify_all()
        supervisor.wait()
        with self._changed:
            self._ready = False
            self._changed.notify_all()

    def _order(self, **order: object) -> None:
        assert self._supervisor is not None
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(order) + "\n")
            self._supervisor.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramEnded(f"{self._machine} has ended:\n{self.tail('supervisor')}") from None


def supervise(grace_s: float) -> int:
    """Start and stop programs as ordered on standard input; kill all of them when it closes.

    One JSON object per line. In: {"start": NAME, "argv": […], "env": {…}, "log": PATH}, {"stop": [NAME, …]}.
    Out: {"ready": true}, {"name": NAME, "pid": N, "status": null}, and later its status (128 + N for signal N).

    Args:
        grace_s: Seconds between SIGTERM and SIGKILL. With 0 there is no SIGTERM.
    """
    # Python writes a byte to this pipe for each signal, which wakes the select below.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Only the end of its owner ends the supervisor.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    programs: dict[int, str] = {}
    deadlines: dict[int, float] = {}
    unread, is_open = b"", True
    _send(ready=True)
    while is_open or programs:
        timeout = max(0.0, min(deadlines.values()) - time.monotonic()) if deadlines else None
        readable, _, _ = select.select([woken, *([0] if is_open else [])], [], [], timeout)
        if woken in readable:
            os.read(woken, 4096)
            _reap(programs, deadlines)
        if 0 in readable:
            read = os.read(0, 65536)
            is_open = bool(read)
            *lines, unread = (unread + read).split(b"\n")
            stopped = {name for order in map(json.loads, lines) for name in _obey(order, programs)}
            for pid, name in programs.items():
                if not is_open or name in stopped:
                    os.kill(pid, signal.SIGTERM if is_open and grace_s else signal.SIGKILL)
                    deadlines[pid] = time.monotonic() + grace_s
        for pid in [pid for pid, deadline in deadlines.items() if time.monotonic() >= deadline]:
            os.kill(pid, signal.SIGKILL)
            deadlines.pop(pid)
    return 0


def _obey(order: dict[str, Any], programs: dict[int, str]) -> list[str]:
    """Start a program, or return the names of those to stop."""
    if "stop" in order:
        return list(order["stop"])
    with open(order["log"], "ab", buffering=0) as log:  # noqa: PTH123
        try:
            # Not `subprocess`, which would reap the children itself.
            pid = os.posix_spawnp(
                order["argv"][0],
                order["argv"],
                order["env"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)),
                ],
                setsid=True,
                setsigmask=[],
                # Otherwise the program, and every pod that it starts, would inherit ignored signals.
                setsigdef=[*SIGNALS, signal.SIGPIPE],
            )
        except OSError as problem:
            log.write(f"{problem}\n".encode())
            _send(name=order["start"], pid=0, status=127)
            return []
    programs[pid] = order["start"]
    _send(name=order["start"], pid=pid, status=None)
    return []


def _reap(programs: dict[int, str], deadlines: dict[int, float]) -> None:
    # As the first process of a namespace, a supervisor also inherits orphaned processes.
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, code = ended[0], os.waitstatus_to_exitcode(ended[1])
            deadlines.pop(pid, None)
            if pid in programs:
                _send(name=programs.pop(pid), pid=pid, status=code if code >= 0 else 128 - code)


def _send(**message: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    sys.exit(supervise(float(sys.argv[1])))
