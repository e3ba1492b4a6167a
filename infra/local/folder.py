"""The folder of one local cluster: `/tmp/rdma-ray-UID/KEY`.

It is short, because Ray's sockets below it must fit into the 107 bytes that Unix allows for a socket's path, and it
lies outside the clone, whose path may be long. Nothing else on the machine is written to.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local import processes


class FolderError(RuntimeError):
    """The folder cannot be used safely."""


@dataclass(frozen=True)
class ClusterFolder:
    """The folder of one local cluster, private to the user."""

    path: Path

    @classmethod
    def of(cls, project: Path, stack: str) -> ClusterFolder:
        """The folder of a stack: two stacks, or two clones, never share one."""
        key = hashlib.sha256(f"{project}\0{stack}".encode()).hexdigest()[:8]
        return cls(Path("/tmp") / f"rdma-ray-{os.getuid()}" / key)

    @classmethod
    def at(cls, path: str) -> ClusterFolder:
        """The folder at `path`, as resources carry it."""
        return cls(Path(path))

    @property
    def key(self) -> str:
        """The first part of every mark in this cluster."""
        return self.path.name

    @property
    def token(self) -> Path:
        """The file with Ray's token, readable by the user alone."""
        return self.path / "token"

    @property
    def storage(self) -> Path:
        """A folder that all nodes see, for checkpoints and results. It goes when the stack is destroyed."""
        return self.path / "storage"

    @property
    def python(self) -> Path:
        """This interpreter, under a path without spaces.

        Ray passes its own paths to a shell and to LD_PRELOAD unquoted, so it does not start from a clone whose path
        has a space. Seen from a link, a virtual environment has the link's path.
        """
        return self.path / "environment" / "bin" / Path(sys.executable).name

    def node(self, name: str) -> Path:
        """The folder of one node; Ray keeps its session, sockets and logs there.

        Two nodes never share one: nodes that start at the same moment in one folder choose the same socket names.
        """
        return self.path / name

    def make(self) -> None:
        """Make the folders, private to the user.

        Raises:
            FolderError: the folder's parent belongs to somebody else, who could read or replace what lies in it.
        """
        parent = self.path.parent
        parent.mkdir(mode=0o700, exist_ok=True)
        if parent.is_symlink() or parent.stat().st_uid != os.getuid():
            raise FolderError(f"{parent} belongs to another user; remove it, or ask its owner to, and try again")
        parent.chmod(0o700)
        for folder in (self.path, self.storage):
            folder.mkdir(mode=0o700, exist_ok=True)
        environment = self.path / "environment"
        environment.unlink(missing_ok=True)
        environment.symlink_to(sys.prefix)

    @contextmanager
    def start_alone(self) -> Iterator[None]:
        """Wait until no other cluster of this user starts its head: ports are found free before Ray binds them."""
        parent = os.open(self.path.parent, os.O_RDONLY)
        try:
            # Given up with the descriptor, however this process ends.
            fcntl.flock(parent, fcntl.LOCK_EX)
            yield
        finally:
            os.close(parent)

    def write_token(self, token: str) -> None:
        """Write the token so that at no moment anybody else can read it."""
        self.token.unlink(missing_ok=True)
        descriptor = os.open(self.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)

    def discard(self) -> None:
        """Undo `make` after a head that did not start; results of an earlier head in this cluster stay."""
        if any(self.storage.iterdir()):
            self.token.unlink(missing_ok=True)
        else:
            self.remove()

    def remove(self) -> None:
        """End whatever still runs in this cluster, and remove its files. Raises OSError for one that stays."""
        processes.end_marked(f"{self.key}/")
        if self.path.exists():
            shutil.rmtree(self.path)
        try:
            self.path.parent.rmdir()
        except OSError:
            # Another cluster of this user lives beside it, or it is gone already.
            return
