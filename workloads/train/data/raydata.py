"""Data through Ray Data: tasks anywhere in the cluster read and decode, and stream batches to the worker.

Every rank runs a pipeline over its own rows, in order. Ray Train's own split (`get_dataset_shard`) hands blocks to
whichever rank asks first and begins anew after a restart: batches would depend on timing, and a resumed run would
train on other images than an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workloads.train.data.items import ImageFolder, Items, ParquetTensors, Read
from workloads.train.data.loader import on_device
from workloads.train.data.order import Order, epoch_steps
from workloads.train.data.source import DataConfig, is_parquet

if TYPE_CHECKING:
    from workloads.train.task import Batch, Share


class RayData:
    """A folder of class folders, or of Parquet files, read by tasks of one CPU each, `loader` of them at a time."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self._found: Items | None = None

    def check(self) -> None:
        self._items()

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(len(self._items()), batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        import ray.data

        items = self._items()
        order = Order(len(items), share.batch, share.seed, shuffle=True)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        read = Read(items, share.seed)
        step = share.first_step
        while step < share.steps:
            # An epoch at a time: its rows are known before, and a pipeline over all epochs would hold all their rows.
            end = min(share.steps, (order.epoch(step) + 1) * order.epoch_steps)
            rows = [_places(order, at, share) for at in range(step, end)]
            pipeline = ray.data.from_numpy(rows).map_batches(
                read, batch_size=share.local, concurrency=max(1, self.config.loader), num_cpus=1
            )
            for batch in pipeline.iter_batches(batch_size=share.local, prefetch_batches=2):
                # Ray's arrays are views of its shared memory, which may not be written to.
                images, labels = (torch.from_numpy(np.array(batch[name])) for name in ("image", "label"))
                yield on_device(images, labels, device, self.config.channels_last)
            step = end

    def _items(self) -> Items:
        if self._found is None:
            config = self.config
            path = config.path or ""
            kind = ParquetTensors if is_parquet(path) else ImageFolder
            self._found = kind(path, config.image, config.classes)
        return self._found


def _places(order: Order, step: int, share: Share) -> np.ndarray[Any, np.dtype[np.int64]]:
    rows = order.rows(step)[share.rows]
    return np.stack([np.full_like(rows, order.epoch(step)), rows], axis=1)
