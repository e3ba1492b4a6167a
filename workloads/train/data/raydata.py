"""Data through Ray Data: tasks anywhere in the cluster read and decode images, and stream batches to the worker.

Every rank runs a pipeline over its own rows, in order. Ray Train's own split (`get_dataset_shard`) gives blocks to the
rank that requests one first and starts over after a restart: batches would depend on timing, and a resumed run would
train on other images than an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.train.data.items import ImageFolder, Items, ParquetTensors, Read
from workloads.train.data.loader import on_device
from workloads.train.data.source import DataOptions, Order, epoch_steps, is_parquet

if TYPE_CHECKING:
    from workloads.train.task import Batch, Share


class RayData:
    """Folder of class folders or of Parquet files, read by up to `loader` tasks of one CPU each."""

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    @cached_property
    def items(self) -> Items:
        path = self.options.data_path or ""
        kind = ParquetTensors if is_parquet(path) else ImageFolder
        return kind(path, self.options.image, self.options.classes)

    def check(self) -> None:
        len(self.items)

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(len(self.items), batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        import ray.data

        order = Order(len(self.items), share.batch, share.seed, shuffle=True)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        read = Read(self.items, share.seed)
        step = share.first_step
        while step < share.steps:
            # One pipeline per epoch: a pipeline over all epochs would hold the rows of all of them.
            end = min(share.steps, (order.epoch(step) + 1) * order.epoch_steps)
            pipeline = ray.data.from_numpy([_places(order, at, share) for at in range(step, end)]).map_batches(
                read, batch_size=share.local, concurrency=max(1, self.options.loader), num_cpus=1
            )
            for batch in pipeline.iter_batches(batch_size=share.local, prefetch_batches=2):
                # Ray's arrays are read-only views of its shared memory.
                images, labels = (torch.from_numpy(np.array(batch[name])) for name in ("image", "label"))
                yield on_device(images, labels, device, self.options.channels_last)
            step = end


def _places(order: Order, step: int, share: Share) -> NDArray[np.int64]:
    rows = order.rows(step)[share.rows]
    return np.stack([np.full_like(rows, order.epoch(step)), rows], axis=1)
