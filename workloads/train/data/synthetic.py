"""Images that are noise, made once and kept on the device: what training costs without its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from workloads.train.data.order import epoch_steps
from workloads.train.data.source import DataConfig

if TYPE_CHECKING:
    from workloads.train.task import Batch, Share


class Synthetic:
    """A pool of different global batches, used by turns; images and labels are fixed by (seed, batch, row).

    Each row has its own generator, so that a rank makes its rows only, and another cut gives the same ones.
    """

    def __init__(self, config: DataConfig) -> None:
        self.config = config

    def check(self) -> None:
        """Nothing that could be missing."""

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(self.config.items, batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        used = {step % self.config.pool for step in range(share.first_step, share.steps)[: self.config.pool]}
        pool = {number: self._batch(share, number, device) for number in sorted(used)}
        for step in range(share.first_step, share.steps):
            yield pool[step % self.config.pool]

    def _batch(self, share: Share, number: int, device: torch.device) -> Batch:
        side = self.config.image
        images = np.empty((share.local, 3, side, side), dtype=np.float32)
        labels = np.empty(share.local, dtype=np.int64)
        for at, row in enumerate(range(share.batch)[share.rows]):
            rng = np.random.default_rng([share.seed, number, row])
            labels[at] = rng.integers(self.config.classes)
            rng.standard_normal(dtype=np.float32, out=images[at])
        memory = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return torch.from_numpy(images).to(device, memory_format=memory), torch.from_numpy(labels).to(device)
