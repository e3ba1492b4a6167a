"""Guard of a node's processes: starts them, passes on their output as lines, and leaves none of them behind.

    python guard.py

One process between the agent (`gang.agent`) and the ranks of its node. stdin has the plan as JSON after its length
(8 bytes), and later a line with the seconds of grace, which stops the processes. stdout has events, one JSON list per
line: ["line", RANK, TIME, TEXT] and ["exit", RANK, TIME, CODE]. RANK is null for what torchrun itself prints and
returns. When stdin ends, because the agent has ended in any way, the guard kills everything. Orphans of the ranks
become its children, so that it finds them.

Standard library only, and no import of this package: it starts in milliseconds, whatever the user's folder has.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

LONGEST = 2**16  # bytes of a line; a longer one continues in the next line
PROGRESS_S = 5.0  # between two lines of a progress bar, which overwrites itself by carriage returns
PIECE = 2**16  # bytes to read at once
DRAIN = 32  # pieces to read at most after the end of a rank whose descendants still write; a pipe holds 16 of 64 KiB
LEFT_S = 10.0  # for the kernel to end killed processes
SUBREAPER, DEATH_SIGNAL = 36, 1  # PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG (linux/prctl.h)
PRCTL = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else lambda *_: 0
WRAPPER = """#!/bin/sh
# torchrun runs this as the interpreter of each rank (PYTHON_EXEC). A trap, unlike an ignored signal, is not inherited.
trap : HUP INT TERM USR1 USR2
. {folder}/$RANK.env
{python} "$@" >{folder}/$RANK.out 2>&1
code=$?
echo "$RANK $code" >{folder}/exits
exit $code
"""


class LineSplitter:
    """Splits the output of one process into lines. Lossless except for lines that a progress bar overwrites."""

    def __init__(self) -> None:
        self.rest = b""
        self.shown = 0.0

    def feed(self, data: bytes, now: float) -> Iterator[str]:
        """Yield the lines that are complete; `now` is in seconds."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        yield from (part for line in lines for part in _parts(line))
        # A line so far, then what overwrote it. The last carriage return may be the first half of a line's end.
        past, _, _ = self.rest.rstrip(b"\r").rpartition(b"\r")
        if past:
            self.rest = self.rest[len(past) + 1 :]
            if now - self.shown >= PROGRESS_S and (text := past.rpartition(b"\r")[2]):
                self.shown = now
                yield from _parts(text)
        while len(self.rest) > LONGEST:
            piece, self.rest = _cut(self.rest)
            yield _text(piece)

    def end(self) -> Iterator[str]:
        """Yield the last line if it has no end."""
        if self.rest:
            yield from _parts(self.rest)
        self.rest = b""


def _parts(line: bytes) -> Iterator[str]:
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    while len(line) > LONGEST:
        piece, line = _cut(line)
        yield _text(piece)
    yield _text(line)


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Cut after LONGEST bytes, but not within a character of UTF-8."""
    at = LONGEST
    while at > LONGEST - 4 and line[at] & 0xC0 == 0x80:
        at -= 1
    return line[:at], line[at:]


def _text(line: bytes) -> str:
    return line.decode(errors="replace")


class Guard:
    """The processes of one node. `run` returns when none is left.

    Args:
        plan: `processes` (each with `rank`, `arguments`, `environment`), `folder` (their working directory), `grace_s`,
            and for torchrun `ranks`: additional variables by rank.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.selector = selectors.DefaultSelector()
        self.lines: dict[tuple[int | None, int], LineSplitter] = {}  # by rank and descriptor
        self.running: dict[int, int | None] = {}  # rank by process ID
        self.outputs: dict[int | None, int] = {}  # descriptor by rank
        self.kill_at: float | None = None
        self.private: Path | None = None  # folder of torchrun's ranks
        self.ended: int | None = None  # descriptor with the exit codes of torchrun's ranks
        self.exits = b""

    def run(self) -> None:
        PRCTL(SUBREAPER, 1, 0, 0, 0)
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # select returns, and `wake` has the number
        self.selector.register(wake, selectors.EVENT_READ, self._signals)
        self.selector.register(0, selectors.EVENT_READ, self._command)
        try:
            self._start()
            while self.running:
                wait = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic())
                for key, _ in self.selector.select(wait):
                    key.data(key.fd)
                if self.kill_at is not None and time.monotonic() >= self.kill_at:
                    kill_descendants(self._reap)
                    self.kill_at = None
        finally:
            kill_descendants(self._reap)
            for rank in self.outputs:
                self._drain(rank)
            if self.private is not None:
                shutil.rmtree(self.private, ignore_errors=True)

    def _start(self) -> None:
        for process in self.plan["processes"]:
            rank, environment = process["rank"], dict(process["environment"])
            if "ranks" in self.plan:
                self._prepare_torchrun(environment)
            read, write = os.pipe2(os.O_CLOEXEC)
            self._listen(rank, read)
            try:
                started = subprocess.Popen(
                    process["arguments"],
                    cwd=self.plan["folder"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=write,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                self._say("line", rank, f"cannot run {process['arguments'][0]!r}: {error.strerror}")
                self._say("exit", rank, 127 if error.errno == errno.ENOENT else 126)
            else:
                self.running[started.pid] = rank
                started.returncode = 0  # `_reap` waits for it
            os.close(write)

    def _prepare_torchrun(self, environment: dict[str, str]) -> None:
        """Give each of torchrun's ranks an output of its own, by an interpreter that redirects it."""
        self.private = Path(tempfile.mkdtemp(prefix="rdma-ray-run-"))
        for rank, variables in self.plan["ranks"].items():
            out = self.private / f"{rank}.out"
            os.mkfifo(out, 0o600)
            # Opened for both, so that no end of file appears before the first writer and after the last.
            self._listen(int(rank), os.open(out, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            exports = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
            (self.private / f"{rank}.env").write_text("".join(exports), encoding="utf-8")
        os.mkfifo(self.private / "exits", 0o600)
        self.ended = os.open(self.private / "exits", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.selector.register(self.ended, selectors.EVENT_READ, self._exited)
        wrapper = self.private / "python"
        python = shlex.quote(environment.get("PYTHON_EXEC", sys.executable))
        wrapper.write_text(WRAPPER.format(folder=shlex.quote(str(self.private)), python=python), encoding="utf-8")
        wrapper.chmod(0o700)
        environment["PYTHON_EXEC"] = str(wrapper)

    def _listen(self, rank: int | None, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.outputs[rank] = descriptor
        self.lines[rank, descriptor] = LineSplitter()
        self.selector.register(descriptor, selectors.EVENT_READ, lambda _: self._read(rank))

    def _read(self, rank: int | None) -> bool:
        """Pass on what a rank has written, at most PIECE bytes; return whether there was something."""
        descriptor = self.outputs[rank]
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return False
        if not data and descriptor in self.selector.get_map():
            self.selector.unregister(descriptor)
        self._say_lines(rank, self.lines[rank, descriptor].feed(data, time.monotonic()))
        return bool(data)

    def _drain(self, rank: int | None) -> None:
        for _ in range(DRAIN):
            if not self._read(rank):
                break
        self._say_lines(rank, self.lines[rank, self.outputs[rank]].end())

    def _exited(self, descriptor: int) -> None:
        """Report ranks of torchrun that have ended, after their last lines."""
        with suppress(BlockingIOError):
            self.exits += os.read(descriptor, PIECE)
        *lines, self.exits = self.exits.split(b"\n")
        for line in lines:
            rank, code = map(int, line.split())
            self._drain(rank)
            self._say("exit", rank, code)

    def _command(self, descriptor: int) -> None:
        data = os.read(descriptor, PIECE)
        if not data:
            self.selector.unregister(descriptor)
            kill_descendants(self._reap)
        for grace in data.split(b"\n")[:-1]:
            self._stop(float(grace))

    def _signals(self, descriptor: int) -> None:
        if {signal.SIGTERM, signal.SIGINT} & set(os.read(descriptor, PIECE)):
            self._stop(self.plan["grace_s"])
        self._reap()

    def _stop(self, grace_s: float) -> None:
        """Send SIGTERM to the process groups now, and SIGKILL after the grace."""
        kill_at = time.monotonic() + grace_s
        if self.kill_at is None:
            for pid in self.running:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGTERM)
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.running:
                rank, code = self.running.pop(pid), os.waitstatus_to_exitcode(status)
                if self.ended is not None:  # ranks of torchrun, which end before it
                    self._exited(self.ended)
                self._drain(rank)
                self._say("exit", rank, code if code >= 0 else 128 - code)

    def _say_lines(self, rank: int | None, lines: Iterator[str]) -> None:
        now = round(time.time(), 3)
        _write("".join(json.dumps(["line", rank, now, line]) + "\n" for line in lines))

    def _say(self, kind: str, rank: int | None, value: object) -> None:
        _write(json.dumps([kind, rank, round(time.time(), 3), value]) + "\n")


def _write(text: str) -> None:
    """Write to the agent. Waits while it does not read, so that the ranks wait as well, and no memory fills."""
    data = memoryview(text.encode())
    with suppress(BrokenPipeError):  # the agent has ended: stdin shows it
        while data:
            data = data[os.write(1, data) :]


def die_with_parent() -> None:
    """Make the kernel kill this new process when the guard is killed."""
    PRCTL(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def kill_descendants(reap: Callable[[], None]) -> None:
    """Kill every descendant, also those that have left their process group, and wait for their end.

    As a subreaper, this process gets orphans as children, for which `reap` waits.
    """
    until = time.monotonic() + LEFT_S
    while (found := descendants(os.getpid())) and time.monotonic() < until:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.01)
    reap()


def descendants(root: int) -> list[int]:
    """Return the process IDs below `root`, zombies left out, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def main() -> None:
    """Read the plan, and run it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks SIGINT in its workers, and children inherit that
    size = int.from_bytes(_exactly(8), "big")
    Guard(json.loads(_exactly(size))).run()


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (piece := os.read(0, size - len(data))):
            raise SystemExit(1)
        data += piece
    return data


if __name__ == "__main__":
    main()
