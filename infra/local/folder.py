"""The folder of one local cluster: `/tmp/rdma-ray-UID/KEY`.

The path is short and outside the clone, because Ray's sockets are in this folder and Unix allows 107 bytes for the path
of a socket. Nothing is written elsewhere on the machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        """Return the folder of a stack, which is unique among stacks and clones."""
        key = hashlib.sha256(f"{project}\0{stack}".encode()).hexdigest()[:8]
        return cls(Path("/tmp") / f"rdma-ray-{os.getuid()}" / key)

    @property
    def key(self) -> str:
        """Prefix of every process mark in this cluster."""
        return self.path.name

    @property
    def token(self) -> Path:
        """File with Ray's token, readable by the user only."""
        return self.path / "token"

    @property
    def storage(self) -> Path:
        """Folder that all nodes see, for checkpoints and results; deleted with the stack."""
        return self.path / "storage"

    @property
    def python(self) -> Path:
        """This interpreter, at a path without spaces.

        Ray passes its own paths to a shell and to LD_PRELOAD unquoted, so it does not start from a clone whose path
        contains a space. Through a link, a virtual environment has the path of the link.
        """
        return self.path / "environment" / "bin" / Path(sys.executable).name

    def node(self, name: str) -> Path:
        """Return the folder of one node, for Ray's session, sockets and logs.

        Each node has its own: nodes that start at the same moment in one folder choose the same socket names.
        """
        return self.path / name

    def head_address(self, name: str) -> str | None:
        """Return `HOST:PORT` of Ray's control store, which a started head writes (Ray 2.60: scripts/scripts.py); None
        before that."""
        try:
            return (self.node(name) / "ray_current_cluster").read_text().strip() or None
        except FileNotFoundError:
            return None

    def make(self) -> None:
        """Create the folders, private to the user. Raises FolderError as `parent` does."""
        with suppress(FileExistsError):
            self.path.parent.mkdir(mode=0o700)
        with self.parent() as parent:
            os.fchmod(parent, 0o700)
            for folder in (self.path, self.storage):
                folder.mkdir(mode=0o700, exist_ok=True)
        environment = self.path / "environment"
        environment.unlink(missing_ok=True)
        environment.symlink_to(sys.prefix)

    @contextmanager
    def parent(self) -> Iterator[int]:
        """Open the parent folder. In /tmp, which has the sticky bit, no other user can replace it afterwards.

        Raises:
            FolderError: Another program was there first: it is not a folder, or belongs to another user, who could read
                or replace its contents.
            FileNotFoundError: It is not there.
        """
        path, parent = self.path.parent, -1
        with suppress(NotADirectoryError, PermissionError):
            # Does not wait for the other end of a FIFO.
            parent = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if parent < 0 or os.fstat(parent).st_uid != os.getuid():
                raise FolderError(
                    f"{path} is not a folder, or belongs to another user; remove it, or ask its owner to, and try again"
                )
            yield parent
        finally:
            if parent >= 0:
                os.close(parent)

    @contextmanager
    def start_alone(self) -> Iterator[None]:
        """Wait until no other cluster of this user starts its head, which binds ports some time after it picks them."""
        with self.parent() as parent:
            # The system releases the lock when this process ends. No other user can open the folder to take it.
            fcntl.flock(parent, fcntl.LOCK_EX)
            yield

    def own(self) -> bool:
        """Return whether the folder is this user's, if it exists.

        A cleaner of /tmp may have removed it, and another user may have taken its name since.
        """
        with suppress(FolderError, FileNotFoundError), self.parent():
            return True
        return False

    def write_token(self, token: str) -> None:
        """Write the token; no other user can read it at any moment."""
        self.token.unlink(missing_ok=True)
        self.token.touch(mode=0o600, exist_ok=False)
        self.token.write_text(token)

    def read_token(self) -> str:
        """Return the token. Raises FolderError as `parent` does."""
        with self.parent():
            return self.token.read_text()

    def discard(self) -> None:
        """Undo `make` after a head failed to start; results of an earlier head in this cluster stay."""
        if any(self.storage.iterdir()):
            self.token.unlink(missing_ok=True)
        else:
            self.remove()

    def remove(self) -> None:
        """End all processes of this cluster and remove its files. Raises OSError for a file that remains."""
        processes.end_marked(f"{self.key}/")
        if self.own() and self.path.exists():
            shutil.rmtree(self.path)
        # Another cluster of this user may still use the parent folder.
        with suppress(OSError):
            self.path.parent.rmdir()
