"""Process that keeps the log of a job in the stack's storage while the job runs, and its end.

It copies a file of this node that grows, so slow, full or lost storage never stops the job, which only writes to that
file. stdin has the record (`JobRecord`) on one line, and the end of the job on another one. If the program that runs
the job is killed, stdin ends without it. stdout has one line if the record is incomplete, and ends with this process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from workloads import untrusted
from workloads.history.record import (
    END,
    END_SCHEMA,
    FOLDERS,
    JOB,
    LARGEST_FILE,
    LARGEST_LOG,
    PART,
    SCHEMA,
    UNKNOWN,
    JobRecord,
    document,
    line,
    part,
)
from workloads.unlinked import open_folder, open_regular

PAUSE_S, LONGEST_PAUSE_S = 3.0, 60.0
"""Seconds between two copies: the first ones, and those of a log in thousands of parts, which in a bucket cost."""
PARTS_PER_SECOND = 100
FULL_PART, PIECE = 2**20, 2**24
"""Bytes after which a part is complete, and those that are copied at once."""
KILLED_S = 1.0
"""Seconds for what a killed job wrote last."""
DAY_S = 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogCopy:
    """Copy of a growing file as the parts of a record.

    What a part has is read from its size, so that an append that failed half-way is neither lost nor repeated.

    Args:
        source: The open file.
        folder: The open folder of the record.
    """

    def __init__(self, source: int, folder: int) -> None:
        self.source, self.folder = source, folder
        self.part, self.start = 0, 0
        self.error: OSError | None = None

    def step(self) -> bool:
        """Copy at most one piece, and return whether there was one. `error` is that of this step."""
        self.error = None
        try:
            size = self._size()
            if size >= FULL_PART:
                self._next(size)
                size = 0
            at = self.start + size
            data = os.pread(self.source, min(PIECE, LARGEST_LOG - at), at) if at < LARGEST_LOG else b""
            if not data:
                return False
            try:
                file = os.open(part(self.part), _APPEND if size else _NEW, 0o600, dir_fd=self.folder)
            except OSError:
                if not size:
                    raise
                self._next(size)  # this file system does not append
                file = os.open(part(self.part), _NEW, 0o600, dir_fd=self.folder)
            try:
                os.write(file, data)
            finally:
                os.close(file)  # uploads it to a bucket
            return True
        except OSError as error:
            self.error = error
            return False

    @property
    def done(self) -> int:
        """Bytes that are kept."""
        return self.start + self._size()

    def _size(self) -> int:
        """Return the size of the current part; an empty one, which a failed write leaves, is written again."""
        try:
            size = os.stat(part(self.part), dir_fd=self.folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0
        if not size:
            os.unlink(part(self.part), dir_fd=self.folder)
        return size

    def _next(self, size: int) -> None:
        self.part, self.start = self.part + 1, self.start + size


@contextmanager
def jobs_folder(storage: str) -> Iterator[int]:
    """Open the folder of all records, and create it. OSError if a part of it is a link, or another user's."""
    with open_folder(os.path.realpath(storage)) as here:
        inner = os.dup(here)
        try:
            for name, mode in zip(FOLDERS, (0o755, 0o700), strict=True):
                outer, inner = inner, _inner(inner, name, mode)
                os.close(outer)
            yield inner
        finally:
            os.close(inner)


def _inner(folder: int, name: str, mode: int) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)
    inner = os.open(name, _FOLDER, dir_fd=folder)
    # Its owner can replace what is in it. The file systems of buckets have one owner, which may be root.
    if os.fstat(inner).st_uid not in (0, os.geteuid()):
        os.close(inner)
        raise PermissionError(f"the folder {name} in the storage belongs to another user")
    return inner


def write_new(folder: int, name: str, data: bytes) -> None:
    """Write a file of a record. OSError if there is one."""
    file = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def keep(record: JobRecord, source: int, control: int) -> str | None:
    """Keep a job until its end, and return why the record is incomplete.

    Args:
        source: The open file with its log.
        control: Descriptor from which the end is read: {"code": INT, "stopped": BOOL} as JSON, or nothing.
    """
    told, error = b"", None
    try:
        with jobs_folder(record.folder) as jobs:
            folder = _inner(jobs, untrusted.file_name(record.id), 0o700)
            write_new(folder, JOB, line(record.start(time.time())))
            threading.Thread(target=remove_old, args=(jobs, record), daemon=True).start()
            copy = LogCopy(source, folder)
            while True:
                pause = min(max(PAUSE_S, copy.part / PARTS_PER_SECOND), LONGEST_PAUSE_S)
                if select.select([control], [], [], pause)[0]:
                    told = os.read(control, LARGEST_FILE)
                    if not told:
                        time.sleep(KILLED_S)
                    break
                copy.step()
            while copy.step():
                pass
            cut = copy.error is not None or os.fstat(source).st_size > LARGEST_LOG
            write_new(folder, END, line({"schema": END_SCHEMA, "id": record.id, **_end(told, copy.done, cut)}))
            error = copy.error
            if error is None and cut:
                return f"only its first {LARGEST_LOG // 2**20} MiB"
    except OSError as failed:
        error = failed
    return None if error is None else f"{error.strerror or error}"


def _end(told: bytes, size: int, cut: bool) -> dict[str, Any]:
    """Return the content of end.json."""
    end = {"ended": time.time(), "bytes": size, "cut": cut}
    if not told:
        return end | {"status": UNKNOWN, "exit_code": None}
    found = json.loads(told)
    status = "STOPPED" if found["stopped"] else "FAILED" if found["code"] else "SUCCEEDED"
    return end | {"status": status, "exit_code": found["code"]}


def remove_old(jobs: int, record: JobRecord) -> None:
    """Remove the records that are older than they are to be kept: those of this cluster by its setting of today, others
    by their own. Nothing else is removed: a folder is a record if it has a job.json of this project."""
    with suppress(OSError):
        for name in os.listdir(jobs):
            with suppress(OSError):
                folder = os.open(name, _FOLDER, dir_fd=jobs)
                try:
                    if _is_old(folder, record):
                        _remove(folder)
                        os.rmdir(name, dir_fd=jobs)
                finally:
                    os.close(folder)


def _is_old(folder: int, record: JobRecord) -> bool:
    with open_regular(JOB, folder) as (file, _):
        found = document(os.read(file, LARGEST_FILE + 1), SCHEMA)
    if found is None:
        return False
    days = record.days if found.get("cluster") == record.cluster else untrusted.number(found.get("days"), least=1)
    last = max(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime for name in _files(folder))
    return days is not None and time.time() - last > days * DAY_S


def _files(folder: int) -> list[str]:
    """Return the names of a record's files, job.json last: without it, the rest would be no record."""
    return sorted((name for name in os.listdir(folder) if name in (END, JOB) or PART.fullmatch(name)), key=JOB.__eq__)


def _remove(folder: int) -> None:
    for name in _files(folder):
        os.unlink(name, dir_fd=folder)


def main() -> None:
    """Keep the job that stdin describes. The argument is the descriptor of its log."""
    if os.fork():  # Ray waits for the children of a job, and signals them
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    first = bytearray()
    while (byte := os.read(0, 1)) not in (b"\n", b""):
        first += byte
    problem = keep(JobRecord.of(first.decode()), int(sys.argv[1]), 0) if first else None
    if problem is not None:
        os.write(1, f"{problem}\n".encode())
