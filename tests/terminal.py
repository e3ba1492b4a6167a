"""A terminal for a command, as a user has it: what is typed, what is shown, and what happens when it is closed."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

WAIT_S = 120.0


class Terminal:
    """A command on a terminal, in a session without another process."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.said = b""
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                os.execvpe(command[0], [*command], {**environment, "TERM": "dumb"})
            finally:
                os._exit(127)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def expect(self, text: str) -> None:
        """Wait until the terminal shows a text. AssertionError with all that it shows if it does not."""
        deadline = time.monotonic() + WAIT_S
        while text.encode() not in self.said:
            assert select.select([self._descriptor], [], [], max(0, deadline - time.monotonic()))[0], self.said
            try:
                self.said += os.read(self._descriptor, 4096)
            except OSError:  # the other side is closed
                raise AssertionError(self.said) from None

    def code(self) -> int:
        """Return the exit code of the command, at its end."""
        with suppress(OSError):  # the other side is closed
            while data := os.read(self._descriptor, 4096):
                self.said += data
        _, status = os.waitpid(self.pid, 0)
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Close the terminal, upon which the kernel sends SIGHUP, and wait for the end of the command."""
        os.close(self._descriptor)
        os.waitpid(self.pid, 0)
