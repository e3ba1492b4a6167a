"""A run's folder on storage that every node sees: whole checkpoints or none, written while training goes on.

A checkpoint is a folder with the state and, written after it, its card: a folder without a card does not count.
On object stores a file appears whole; elsewhere it is written beside its name and then renamed.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs  # type: ignore[import-untyped]  # pyarrow ships no types

from workloads.exits import WorkloadError

STATE = "state.pt"
CARD = "checkpoint.json"


@dataclass(frozen=True)
class Found:
    """A whole checkpoint: its folder's name, and the step that it goes on at."""

    label: str
    step: int


class Folder:
    """A run's folder: `storage` is a path or a URI such as gs://…, `name` the run's."""

    def __init__(self, storage: str, name: str) -> None:
        try:
            self.filesystem, root = fs.FileSystem.from_uri(storage)
        except (ValueError, OSError) as error:
            raise WorkloadError(
                f"--checkpoint-dir {storage}: neither a whole path nor a known URI ({error})"
            ) from error
        self.shown = f"{storage}/{name}"
        self.path = f"{root}/{name}"
        self.local = isinstance(self.filesystem, fs.LocalFileSystem)

    def check_writable(self) -> None:
        """WorkloadError where nothing can be written: known before anything is trained."""
        try:
            self.write("writable", b"")
            self.filesystem.delete_file(f"{self.path}/writable")
        except OSError as error:
            raise WorkloadError(
                f"cannot write to {self.shown}: {reason(error)}; name a folder that every node can write to by"
                " --checkpoint-dir"
            ) from error

    def names(self, under: str = "") -> list[str]:
        """The names in the folder, sorted; none where it is not there."""
        selector = fs.FileSelector(f"{self.path}/{under}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def read(self, name: str) -> bytes:
        """A file of the folder. OSError where there is none."""
        with self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
            data: bytes = stream.read()
        return data

    def write(self, name: str, content: bytes | dict[str, Any]) -> None:
        """A file of the folder, whole or not at all: bytes as they are, a state as torch saves it."""
        target = f"{self.path}/{name}"
        unfinished = f"{target}.unfinished" if self.local else target
        self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(unfinished) as stream:
            if isinstance(content, bytes):
                stream.write(content)
            else:
                torch.save(content, stream)
        if self.local:
            with Path(unfinished).open("rb") as written:
                os.fsync(written.fileno())  # else a rename may reach the disk before the content
            self.filesystem.move(unfinished, target)

    def checkpoints(self) -> list[Found]:
        """The whole checkpoints, the oldest first."""
        found = []
        for label in self.names():
            if label.startswith(("epoch-", "step-")):
                try:
                    card = json.loads(self.read(f"{label}/{CARD}"))
                except (OSError, ValueError):
                    continue
                found.append(Found(label, card["step"]))
        return sorted(found, key=lambda one: one.step)

    def load(self, found: Found) -> dict[str, Any]:
        """A checkpoint's state, in main memory."""
        with self.filesystem.open_input_file(f"{self.path}/{found.label}/{STATE}") as file:
            # weights_only: a checkpoint is data, and must not be able to run code.
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def save(self, label: str, state: dict[str, Any], keep: int) -> None:
        """Write a checkpoint, and only when it is whole take away all but the newest `keep`."""
        step = state["progress"]["step"]
        self.write(f"{label}/{STATE}", state)
        self.write(f"{label}/{CARD}", json.dumps({"step": step, "written": time.time()}).encode())
        kept = {found.label for found in self.checkpoints()[-keep:]} | {label}
        for name in self.names():
            if name.startswith(("epoch-", "step-")) and name not in kept:
                self.filesystem.delete_dir(f"{self.path}/{name}")

    def discard(self, label: str) -> None:
        """Take away what is left of a checkpoint that could not be written, so that its space is free."""
        if f"{label}" in self.names() and label not in {found.label for found in self.checkpoints()}:
            self.filesystem.delete_dir(f"{self.path}/{label}")


class Writer:
    """Writes one checkpoint at a time on a thread of its own. `error` holds what went wrong, for people."""

    def __init__(self, folder: Folder, run: str, keep: int) -> None:
        self.folder, self.run, self.keep = folder, run, keep
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        self.error: str | None = None

    def save(self, label: str, state: dict[str, Any]) -> None:
        """Begin to write; waits for the checkpoint before this one."""
        self.wait()
        self.pending = self.pool.submit(self._save, label, state)

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def _save(self, label: str, state: dict[str, Any]) -> None:
        try:
            self.folder.save(label, state, self.keep)
        except OSError as error:
            self.error = f"checkpoint {label} could not be written to {self.folder.shown}: {reason(error)}; "
            try:
                self.folder.discard(label)
                good = self.folder.checkpoints()
            except OSError:
                good = []
            self.error += (
                f"the last good one is {good[-1].label}: make room or mend it, then --resume {self.run}"
                if good
                else "there was none before it"
            )


def reason(error: OSError) -> str:
    """The system's own words for an error, without Arrow's around them."""
    if error.errno:
        return os.strerror(error.errno)
    return str(error).splitlines()[0]


def exists(storage: str, name: str) -> bool:
    """Whether `storage` holds a run `name` with a checkpoint to resume from."""
    return bool(Folder(storage, name).checkpoints())
