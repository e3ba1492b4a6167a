"""Run a function as another user of this machine: one who attacks, or one who is attacked."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.other_user import NOBODY

ATTACKER, VICTIM = NOBODY, 1234
SECONDS = 20  # for what takes less than one; a busy machine needs several

T = TypeVar("T")


def as_user(uid: int, work: Callable[[], T]) -> T:
    """Return the function's result, from a child process of this user. AssertionError if it fails or does not end."""
    read, write = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o022)
            with os.fdopen(write, "wb") as answer:
                try:
                    answer.write(pickle.dumps((True, work())))
                except BaseException as error:
                    answer.write(pickle.dumps((False, repr(error))))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read()
    _, ended = os.waitpid(child, 0)
    assert ended == 0, f"user {uid}: not over within {SECONDS} s" if ended == signal.SIGALRM else f"status {ended}"
    right, value = pickle.loads(said)
    assert right, f"user {uid}: {value}"
    return value  # type: ignore[no-any-return]


@contextmanager
def shared_folder(mode: int = 0o1777) -> Iterator[Path]:
    """A folder like /tmp, where all users write. Those of pytest are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="rdma-ray-shared-"))
    try:
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)


def plant(tmp: Path, prefix: str, target: Path, many: int) -> None:
    """Fill a folder like /tmp with whatever could stop, mislead or slow a program that looks for its folders."""

    def folder(name: str, mode: int = 0o777) -> Path:
        path = tmp / f"{prefix}{name}"
        path.mkdir()
        path.chmod(mode)
        return path

    os.mkfifo(tmp / f"{prefix}fifo", 0o666)
    (tmp / f"{prefix}file").touch()
    (tmp / f"{prefix}dangling").symlink_to("/nowhere")
    (tmp / f"{prefix}link").symlink_to(target)
    (tmp / f"{prefix}loop").symlink_to(f"{prefix}loop")
    (tmp / f"{prefix}zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp / f"{prefix}socket"))
    os.mkfifo(folder("with-a-fifo") / "lock", 0o666)
    (folder("with-a-link") / "lock").symlink_to(target / "results")
    (folder("with-a-device") / "lock").symlink_to("/dev/zero")
    (folder("with-a-folder") / "lock").mkdir()
    (folder("open") / "lock").touch(0o666)
    folder("closed", 0)
    os.mkfifo(folder("sticky", 0o1777) / "lock", 0o666)
    for number in range(many):
        os.mkfifo(folder(f"{number}") / "lock", 0o666)


def unplant(tmp: Path, prefix: str, uid: int) -> None:
    """Remove what a user planted, and release a program that waits for one of his FIFOs."""
    for path in tmp.glob(f"{prefix}*"):
        if path.lstat().st_uid == uid:
            for fifo in (path, path / "lock"):
                with suppress(OSError):
                    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
