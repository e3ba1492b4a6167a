"""What a run needs to go on as if it had never stopped, written so that half a file is never taken for one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs  # type: ignore[import-untyped]  # pyarrow ships no types
from ray.train import Checkpoint, get_checkpoint

FILE = "state.pt"
# Ray Train's own record in a run's folder: it names the checkpoints that were uploaded whole.
RECORD = "checkpoint_manager_snapshot.json"


@contextmanager
def written(state: dict[str, Any] | None) -> Iterator[Checkpoint | None]:
    """A checkpoint that holds `state`, for ray.train.report; None for a rank that has none to write.

    Ray copies it into the run's folder and only then records it, so that an interrupted copy is never resumed from.
    """
    if state is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rdma-ray-checkpoint-") as folder:
        unfinished = Path(folder) / (FILE + ".unfinished")
        torch.save(state, unfinished)
        unfinished.replace(Path(folder) / FILE)
        yield Checkpoint.from_directory(folder)


def latest() -> dict[str, Any] | None:
    """The state of the run's newest checkpoint, or None for a new run. Called on every rank."""
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        # weights_only: a checkpoint is data, and must not be able to run code.
        state: dict[str, Any] = torch.load(Path(folder) / FILE, map_location="cpu", weights_only=True)
    return state


def exists(storage: str, name: str) -> bool:
    """Whether `storage` (a path or a URI such as gs://…) holds a run `name` with a checkpoint to resume from."""
    filesystem, path = fs.FileSystem.from_uri(storage)
    record = filesystem.get_file_info(os.path.join(path, name, RECORD))  # noqa: PTH118 (a URI's path)
    return bool(record.type == fs.FileType.File)
