"""`make test`: three pytest processes side by side, since many tests mostly wait for Ray or for the engine.

    python -m tools.run_tests                  # everything that `make test` promises
    python -m tools.run_tests tests/unit -x    # with arguments it is pytest, as ever

Whole processes, and not workers of one: a worker that is told to stop has seconds to do so, and a test that has a Ray
cluster up needs longer to take it down.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

# Split so that no session fixture is made twice; the mark `ray` is set in tests/workloads/conftest.py. The last part is
# done first, and leaves the processors to the others.
PARTS = {
    "ray": ("tests/workloads", "-m", "ray"),
    "rehearsal": ("tests/rehearsal",),
    "the rest": ("tests/unit", "tests/components", "tests/workloads", "-m", "not ray"),
}
INTERRUPTED = 130
_LAST_LINES_S = 5.0
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_SECTION = re.compile(r"={3,} (?P<title>.+?) =*$")


class Part:
    """One pytest process. Its progress is shown line by line as it comes, its report in one piece when it has ended."""

    def __init__(self, name: str, command: Sequence[str], width: int) -> None:
        self.name = name
        self.result = "ended without a result"
        self._margin = f"{name:<{width}} │ "
        self._report: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C in a terminal reaches the whole group of the command; here it is passed on, to each part once.
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def status(self) -> int:
        """Its exit status; waits for it."""
        return self._process.wait()

    def runs(self, *, within_s: float) -> bool:
        """Whether it still runs after that time; where it has ended, its report is shown."""
        self._reader.join(within_s)
        if self._reader.is_alive():
            if self._process.poll() is None:
                return True
            # A process that a test left behind may hold the pipe open for ever.
            self._reader.join(_LAST_LINES_S)
        if len(self._report) > 1:
            _print("".join([f"\n{self.name}:\n", *self._report]))
        self._report.clear()
        return False

    def interrupt(self) -> None:
        """What Ctrl-C would do to it: pytest ends the test that runs, and its fixtures take down what they made."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            plain = _ESCAPES.sub("", line).rstrip()
            section = _SECTION.match(plain)
            if section and section["title"] == "test session starts":
                continue
            if section:
                # The last one has the counts.
                self.result = section["title"]
            if section or self._report:
                self._report.append(line)
            elif plain:
                _print(self._margin + line)


def run(commands: Mapping[str, Sequence[str]]) -> int:
    """Run all commands side by side; prints what they print and one result line for each.

    Returns 0 where all of them did, 130 after an interruption, else the first other status. An interruption is passed
    on, and waited for.
    """
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: asked.append(number))
    began = time.monotonic()
    width = max(map(len, commands))
    parts = [Part(name, command, width) for name, command in commands.items()]
    passed_on = 0
    while [part for part in parts if part.runs(within_s=0.2)]:
        if len(asked) > passed_on:
            passed_on = len(asked)
            for part in parts:
                part.interrupt()
    print()
    for part in parts:
        print(f"{part.name:<{width}}  {part.result}{f' (exit status {part.status})' if part.status else ''}")
    print(f"{'all':<{width}}  {time.monotonic() - began:.0f} s")
    return INTERRUPTED if asked else next((part.status for part in parts if part.status), 0)


def main(arguments: list[str]) -> int:
    """All parts where there are no arguments, else pytest with them."""
    pytest = [sys.executable, "-u", "-m", "pytest"]
    # Container images like to set it; then each of the hundreds of processes compiles torch anew, which takes seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments:
        os.execv(sys.executable, [*pytest, *arguments])
    # They would overwrite each other's list of what failed last.
    options = ["--no-header", "-p", "no:cacheprovider", f"--color={'yes' if sys.stdout.isatty() else 'no'}"]
    return run({name: [*pytest, *options, *chosen] for name, chosen in PARTS.items()})


def _print(text: str) -> None:
    # In one call, so that the lines of two processes do not mix.
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
