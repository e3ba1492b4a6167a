"""Folders in a place where other users also write, such as /tmp: only the user's own are opened and removed.

Another user may put anything there under any name: a FIFO that blocks when it is opened, a link, a closed folder. With
the sticky bit, which /tmp has, they cannot rename or replace files of this user (inode(7)). Inside such a
folder everything is this user's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def own_folders(place: str | Path, prefix: str) -> Iterator[Path]:
    """Yield the user's folders in a place whose names begin with the prefix. Nothing is opened or followed."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        yield Path(entry.path)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder of the user without following a link, and yield its descriptor.

    Raises:
        PermissionError: It belongs to another user, or others can write in it.
        OSError: It does not exist, or is not a folder.
    """
    descriptor = os.open(folder, _FOLDER)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "not a folder that only this user can write", str(folder))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_file(path: str | Path, uid: int, folder: int | None = None) -> Iterator[int]:
    """Open a regular file of a user for reading, and yield its descriptor. No FIFO is waited for, no link followed.

    Raises:
        PermissionError: It is something else.
        OSError: It does not exist, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise PermissionError(errno.EPERM, f"not a regular file of user {uid}", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: int, name: str) -> Iterator[None]:
    """Hold the lock of a file in an open folder. Raises as `opened_file`, and BlockingIOError if a process holds it."""
    with opened_file(name, os.geteuid(), folder) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove(folder: Path, descriptor: int) -> None:
    """Remove an open folder with its contents, except files that cannot be removed.

    The contents go through the descriptor, so that nothing else does if another user replaces the folder. Not by
    `shutil.rmtree` of the path: it opens a FIFO there, and waits (CPython 3.11).
    """
    for name in os.listdir(descriptor):
        with contextlib.suppress(OSError):
            try:
                os.unlink(name, dir_fd=descriptor)
            except IsADirectoryError:
                shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)
    with contextlib.suppress(OSError):
        folder.rmdir()


def temporary_file() -> IO[bytes]:
    """Return a new file without a name, which ends with its last descriptor."""
    return tempfile.TemporaryFile()
