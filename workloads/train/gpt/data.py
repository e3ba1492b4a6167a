"""Text as bytes: the part that a language model trains on, and the held-out end for its evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.exits import WorkloadError
from workloads.train.data.source import Batch, Order, RankShare

BUILT_IN = "pydoc_data.topics"
"""The Python reference, 0.5 MB, in the standard library of every image: no download, the same on all nodes of one
Python version."""
HELD_OUT = 0.1
"""Share of the text, at its end, that no step trains on."""
EVALUATED = 256
"""Most sequences of the held-out part that an evaluation uses, evenly spread."""


class Text:
    """Bytes of a file, of all files of a folder in the order of their paths, or of Python's reference.

    `sha256` covers all of it: `sha256sum` of a file prints the same. WorkloadError if it cannot be read.
    """

    def __init__(self, path: str | None) -> None:
        self.name = path or BUILT_IN
        try:
            self.data = self._read(Path(path)) if path else np.frombuffer(_built_in(), np.uint8)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            why = getattr(error, "strerror", None) or "it is empty"
            raise WorkloadError(f"--data-path {path}: {why}; every node must have this text") from None
        self.sha256 = hashlib.sha256(self.data.data).hexdigest()

    @staticmethod
    def _read(path: Path) -> NDArray[np.uint8]:
        if not path.is_dir():
            return np.memmap(path, np.uint8, mode="r")
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return np.concatenate([np.fromfile(file, np.uint8) for file in files])


def _built_in() -> bytes:
    try:
        topics: dict[str, str] = import_module(BUILT_IN).topics
    except ModuleNotFoundError:
        raise WorkloadError(f"this Python has no {BUILT_IN}: choose a text with --data-path") from None
    return "".join(topics[name] for name in sorted(topics)).encode()


class Sequences:
    """Sequences of `context` tokens and the one after them, in another order every epoch; none overlap."""

    def __init__(self, text: Text, context: int) -> None:
        self.context = context
        held_out = max(int(len(text.data) * HELD_OUT), context + 1)
        self.training, self.held_out = text.data[:-held_out], text.data[-held_out:]
        if len(self.training) <= context:
            raise WorkloadError(
                f"--data-path {text.name}: {len(text.data)} bytes, of which {held_out} are held out, are too few for"
                f" sequences of {context} tokens: use a longer text, or --set context=N"
            )

    def order(self, batch: int, seed: int) -> Order:
        return Order((len(self.training) - 1) // self.context, batch, seed)

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        del device  # Feed pins and copies
        order = self.order(share.batch, share.seed)
        for step in range(share.first_step, share.steps):
            yield self._windows(self.training, order.rows(step)[share.rows])

    def test_batches(self, rank: int, world: int, batch: int) -> Iterator[tuple[Batch, int]]:
        """Yield batches of this rank's held-out sequences, and how many of each count: the rest fills it up.

        As many on every rank, since a forward pass of a sharded model is collective.
        """
        count = (len(self.held_out) - 1) // self.context
        used = np.linspace(0, count - 1, min(count, EVALUATED)).astype(np.int64)
        for first in range(0, len(used), batch * world):
            rows = used[first + rank * batch :][:batch]
            yield self._windows(self.held_out, np.resize(rows if len(rows) else used, batch)), len(rows)

    def _windows(self, data: NDArray[np.uint8], rows: NDArray[np.int64]) -> Batch:
        windows = data[rows[:, None] * self.context + np.arange(self.context + 1)].astype(np.int64)
        return torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])
