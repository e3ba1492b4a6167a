"""Folder of a run on storage that every node shares, and the conditions for a valid checkpoint in it.

A checkpoint is a folder `step-…`. `workloads.train.shards` writes its files; the card, written last, has the size and
the SHA-256 of each. A folder without a card does not count, and a file that differs from the card is not used.
Files appear atomically on object stores; elsewhere small ones are written under a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pyarrow import fs  # type: ignore[import-untyped]  # pyarrow ships no types
from pydantic import Field

from workloads.exits import WorkloadError, last_line
from workloads.results.documents import ResultPart
from workloads.results.files import loads

CARD = "checkpoint.json"


class DamagedError(Exception):
    """A checkpoint cannot be used. The message says why."""


class FileDigest(ResultPart):
    """Content of a file: its size and SHA-256, as `sha256sum` prints it."""

    bytes: int
    sha256: str


class Card(ResultPart):
    """Content of a checkpoint: every file but the card."""

    format: Literal["rdma-ray/checkpoint/1"] = "rdma-ray/checkpoint/1"
    step: int = Field(ge=0)
    written: float
    files: dict[str, FileDigest]


class Hashed(io.RawIOBase):
    """Stream that hashes what it writes. `close` leaves the other stream open."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.size, self.sha256 = stream, 0, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.stream.write(data)
        written = memoryview(data).nbytes
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    @property
    def entry(self) -> FileDigest:
        return FileDigest(bytes=self.size, sha256=self.sha256.hexdigest())


def label_of(step: int) -> str:
    """Return the name of the checkpoint after `step` steps. Names sort by step."""
    return f"step-{step:09}"


class RunFolder:
    """Folder of the run `name` in `storage`, a path or a URI such as gs://…."""

    def __init__(self, storage: str, name: str) -> None:
        try:
            self.filesystem, root = fs.FileSystem.from_uri(storage)
        except (ValueError, OSError) as error:
            raise WorkloadError(
                f"--checkpoint-dir {storage}: neither an absolute path nor a known URI ({error})"
            ) from error
        self.shown = f"{storage}/{name}"
        self.path = f"{root}/{name}"
        self.local = isinstance(self.filesystem, fs.LocalFileSystem)

    def check_writable(self) -> None:
        """Raise WorkloadError if the folder is not writable."""
        try:
            self.write("writable", b"")
            self.remove("writable")
        except OSError as error:
            raise WorkloadError(
                f"cannot write to {self.shown}: {reason(error)}; choose a folder that every node can write to"
                " with --checkpoint-dir"
            ) from error

    def names(self, under: str = "") -> list[str]:
        """Return the sorted names in the folder; none if it does not exist."""
        selector = fs.FileSelector(f"{self.path}/{under}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or folder."""
        return bool(self.filesystem.get_file_info(f"{self.path}/{name}").type != fs.FileType.NotFound)

    def read(self, name: str) -> bytes:
        """Return the content of a file. OSError if it does not exist."""
        with self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
            data: bytes = stream.read()
        return data

    @contextmanager
    def create(self, name: str) -> Iterator[Hashed]:
        """Open a new file. After the block its content is on the storage."""
        path = f"{self.path}/{name}"
        self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(path) as stream:
            yield Hashed(stream)
        if self.local:
            with Path(path).open("rb") as written:
                os.fsync(written.fileno())

    def write(self, name: str, content: bytes) -> FileDigest:
        """Write a file atomically."""
        unfinished = f"{name}.unfinished" if self.local else name
        with self.create(unfinished) as stream:
            stream.write(content)
        if self.local:
            self.move(unfinished, name)
        return stream.entry

    def move(self, name: str, to: str) -> None:
        """Rename a file."""
        self.filesystem.move(f"{self.path}/{name}", f"{self.path}/{to}")

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.filesystem.delete_file(f"{self.path}/{name}")

    def delete(self, name: str) -> None:
        """Delete a folder and all that is in it."""
        self.filesystem.delete_dir(f"{self.path}/{name}")

    def started(self) -> list[str]:
        """Return the names of all checkpoints, oldest first, including those that were not written completely."""
        return [name for name in self.names() if name.startswith("step-")]

    def checkpoints(self) -> list[str]:
        """Return the names of the checkpoints with a card, oldest first."""
        return [label for label in self.started() if self.exists(f"{label}/{CARD}")]

    def card(self, label: str) -> Card:
        """Return a checkpoint's card. Raises DamagedError."""
        if not self.exists(f"{label}/{CARD}"):
            raise DamagedError(f"it has no {CARD}: writing it did not finish")
        try:
            card = Card.model_validate(loads(self.read(f"{label}/{CARD}")))
        except OSError as error:
            raise DamagedError(f"{CARD} cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise DamagedError(f"{CARD} is not a manifest of this version ({last_line(error)})") from error
        if label_of(card.step) != label:
            raise DamagedError(f"{CARD} is from step {card.step}")
        return card

    def verified(self, label: str, card: Card, name: str) -> bytes:
        """Return the content of a checkpoint's file. Raises DamagedError if it changed after it was written."""
        try:
            entry, content = card.files[name], self.read(f"{label}/{name}")
        except KeyError:
            raise DamagedError(f"{CARD} does not name {name}") from None
        except OSError as error:
            raise DamagedError(f"{name} cannot be read: {reason(error)}") from error
        if len(content) != entry.bytes:
            raise DamagedError(f"{name} has {len(content)} bytes, but had {entry.bytes} when it was written")
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise DamagedError(f"{name} has changed since it was written: its SHA-256 differs")
        return content

    def finish(self, label: str, files: dict[str, FileDigest], keep: int, damaged: Collection[str]) -> None:
        """Write the card. Then delete unfinished checkpoints, and those before the newest `keep` good ones.

        Those after `label` stay: a run that fell back past them writes them again.
        """
        card = Card(step=int(label.removeprefix("step-")), written=time.time(), files=files)
        self.write(f"{label}/{CARD}", card.model_dump_json().encode())
        complete = self.checkpoints()
        oldest = [name for name in complete if name <= label and name not in damaged][-keep:][0]
        for name in self.started():
            if name < oldest or name not in complete:
                self.delete(name)

    def discard(self, label: str) -> None:
        """Delete the rest of a checkpoint that could not be written, to free its space."""
        if label in self.started() and label not in self.checkpoints():
            self.delete(label)


def reason(error: OSError) -> str:
    """Return the operating system's message of an error, without Arrow's."""
    if error.errno:
        return os.strerror(error.errno)
    return str(error).splitlines()[0]
