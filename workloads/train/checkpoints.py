"""Folder of a run on storage that every node shares: atomic checkpoints, written while training continues.

A checkpoint is a folder with the state and, written last, its card: a folder without a card does not count.
Files appear atomically on object stores; elsewhere they are written under a temporary name and renamed.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyarrow import fs  # type: ignore[import-untyped]  # pyarrow ships no types

from workloads.exits import WorkloadError
from workloads.results import loads

STATE = "state.pt"
CARD = "checkpoint.json"


class Folder:
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
            self.filesystem.delete_file(f"{self.path}/writable")
        except OSError as error:
            raise WorkloadError(
                f"cannot write to {self.shown}: {reason(error)}; name a folder that every node can write to by"
                " --checkpoint-dir"
            ) from error

    def names(self, under: str = "") -> list[str]:
        """Return the sorted names in the folder; none if it does not exist."""
        selector = fs.FileSelector(f"{self.path}/{under}".rstrip("/"), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def read(self, name: str) -> bytes:
        """Return the content of a file. OSError if it does not exist."""
        with self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
            data: bytes = stream.read()
        return data

    def write(self, name: str, content: bytes | dict[str, Any]) -> None:
        """Write a file atomically: bytes as they are, a state in torch's format."""
        target = f"{self.path}/{name}"
        unfinished = f"{target}.unfinished" if self.local else target
        self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(unfinished) as stream:
            if isinstance(content, bytes):
                stream.write(content)
            else:
                import torch

                torch.save(content, stream)
        if self.local:
            with Path(unfinished).open("rb") as written:
                os.fsync(written.fileno())  # else the rename may reach the disk before the content
            self.filesystem.move(unfinished, target)

    def checkpoints(self) -> list[str]:
        """Return the names of the complete checkpoints, oldest first."""
        steps: dict[str, int] = {}
        for label in self.names():
            if label.startswith(("epoch-", "step-")):
                try:
                    steps[label] = int(loads(self.read(f"{label}/{CARD}"))["step"])
                except (LookupError, OSError, TypeError, ValueError):
                    continue
        return sorted(steps, key=lambda label: steps[label])

    def load(self, label: str) -> dict[str, Any]:
        """Return a checkpoint's state, in main memory."""
        import torch

        with self.filesystem.open_input_file(f"{self.path}/{label}/{STATE}") as file:
            # weights_only: a checkpoint is data, and must not be able to run code.
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def save(self, label: str, state: dict[str, Any], keep: int) -> None:
        """Write a checkpoint; once it is complete, delete all but the newest `keep`."""
        step = state["progress"]["step"]
        self.write(f"{label}/{STATE}", state)
        self.write(f"{label}/{CARD}", json.dumps({"step": step, "written": time.time()}).encode())
        kept = {*self.checkpoints()[-keep:], label}
        for name in self.names():
            if name.startswith(("epoch-", "step-")) and name not in kept:
                self.filesystem.delete_dir(f"{self.path}/{name}")

    def discard(self, label: str) -> None:
        """Delete the rest of a checkpoint that could not be written, to free its space."""
        if label in self.names() and label not in self.checkpoints():
            self.filesystem.delete_dir(f"{self.path}/{label}")


class Writer:
    """Writes one checkpoint at a time on a thread. `error` is the message of a failed write."""

    def __init__(self, folder: Folder, run: str, keep: int) -> None:
        self.folder, self.run, self.keep = folder, run, keep
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        self.error: str | None = None

    def save(self, label: str, state: dict[str, Any]) -> None:
        """Start to write, once the previous checkpoint is complete."""
        self.wait()
        self.pending = self.pool.submit(self._save, label, state)

    def wait(self) -> None:
        """Wait until the current write is complete."""
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
                f"the last good one is {good[-1]}: free space or repair it, then --resume {self.run}"
                if good
                else "there was none before it"
            )


def reason(error: OSError) -> str:
    """Return the operating system's message of an error, without Arrow's."""
    if error.errno:
        return os.strerror(error.errno)
    return str(error).splitlines()[0]
