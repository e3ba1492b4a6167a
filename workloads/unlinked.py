"""Files and folders opened without following a link, so that the checked file is also the one that is read.

Every part of a path may be replaced by a link between a check and an open. So a path is opened part by part, each
relative to the previous one (openat(2) with O_NOFOLLOW), and its state is that of the open file (fstat).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

SPECIAL, CHANGED = "no regular file", "changed while it was read"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PASSED = _FOLDER | getattr(os, "O_PATH", 0)  # on Linux, a folder above may be one that its user cannot list
# Without O_NONBLOCK, opening a named pipe that has no writer blocks forever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class NotSameError(OSError):
    """A name that does not lead to a regular file, or leads to a different one than before."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ESTALE, reason)


@contextmanager
def open_folder(path: str) -> Iterator[int]:
    """Open a folder by its real path. OSError if a part of the path is a link."""
    here = os.open("/", _PASSED)
    try:
        parts = [part for part in path.split("/") if part] or ["."]
        for part in parts:
            inner = os.open(part, _PASSED, dir_fd=here)
            os.close(here)
            here = inner
        inner = os.open(".", _FOLDER, dir_fd=here)
        os.close(here)
        here = inner
        yield here
    finally:
        os.close(here)


@contextmanager
def open_regular(name: str, folder: int) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file of an open folder, and yield it with its state. NotSameError if it is another or no file."""
    seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(seen.st_mode):  # opening a device may do something
        raise NotSameError(SPECIAL)
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or not os.path.samestat(seen, state):
            raise NotSameError(CHANGED)
        yield file, state
    finally:
        os.close(file)
