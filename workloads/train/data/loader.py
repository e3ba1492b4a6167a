"""Sources of training data: synthetic images on the device, torch's DataLoader, and Ray Data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from workloads.train.data.items import ImageFolder, Item, Items, ParquetTensors, Read
from workloads.train.data.source import Batch, DataOptions, Order, Share, Source, epoch_steps

# ImageNet's, by channel, on a scale from 0 to 1: torchvision's models and the published trainer use them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def source(options: DataOptions) -> Source:
    """Return the data that the options name."""
    match options.data:
        case "synthetic":
            return Synthetic(options)
        case "ray":
            return RayData(options)
        case _:
            return Loaded(options)


class Synthetic:
    """Noise generated on the device, to measure training without data loading.

    A pool of global batches, used in turn. (seed, batch, row) fixes an image and its label: each row has its own
    generator, so that a rank generates its own rows only, and any number of ranks gets the same ones.
    """

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    def check(self) -> None:
        """Do nothing: generated data cannot be missing."""

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(self.options.items, batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        size = self.options.pool
        used = {step % size for step in range(share.first_step, share.steps)[:size]}
        pool = {number: self._batch(share, number, device) for number in sorted(used)}
        for step in range(share.first_step, share.steps):
            yield pool[step % size]

    def _batch(self, share: Share, number: int, device: torch.device) -> Batch:
        side = self.options.image
        images = np.empty((share.local, 3, side, side), dtype=np.float32)
        labels = np.empty(share.local, dtype=np.int64)
        for at, row in enumerate(range(share.batch)[share.rows]):
            rng = np.random.default_rng([share.seed, number, row])
            labels[at] = rng.integers(self.options.classes)
            rng.standard_normal(dtype=np.float32, out=images[at])
        return on_device(torch.from_numpy(images), torch.from_numpy(labels), device, self.options.channels_last)


class Loaded:
    """FakeData in its own order, as in the published trainer, or an image folder in another order each epoch."""

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    @cached_property
    def items(self) -> Items:
        options = self.options
        if options.data == "fakedata":
            return FakeData(options.items, options.image, options.classes)
        return ImageFolder(options.data_path or "", options.image, options.classes)

    def check(self) -> None:
        len(self.items)

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(len(self.items), batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        order = Order(len(self.items), share.batch, share.seed, shuffle=self.options.data != "fakedata")
        steps = range(share.first_step, share.steps)
        loader = DataLoader(
            Numbered(self.items, share.seed),
            batch_sampler=([(order.epoch(step), int(row)) for row in order.rows(step)[share.rows]] for step in steps),
            num_workers=self.options.loader,
            pin_memory=device.type == "cuda",
        )
        for images, labels in loader:
            yield on_device(images, labels, device, self.options.channels_last)


class RayData(Loaded):
    """Folder of class folders or of Parquet files, read by up to `loader` tasks of one CPU each, on any node.

    Every rank runs a pipeline over its own rows, in order. Ray Train's own split (`get_dataset_shard`) gives blocks to
    the rank that requests one first and starts over after a restart: batches would depend on timing, and a resumed run
    would train on other images than an uninterrupted one.
    """

    @cached_property
    def items(self) -> Items:
        path = self.options.data_path or ""
        kind = ParquetTensors if any(Path(path).glob("*.parquet")) else ImageFolder
        return kind(path, self.options.image, self.options.classes)

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


class FakeData:
    """torchvision's FakeData with ToTensor and Normalize, bit for bit: noise that depends on the index only.

    Source: torchvision 0.29.2, datasets/fakedata.py and transforms; the published trainer uses it.
    """

    def __init__(self, items: int, side: int, classes: int) -> None:
        self.items, self.side, self.classes = items, side, classes

    def __len__(self) -> int:
        return self.items

    def item(self, index: int, draw: tuple[int, int]) -> Item:  # noqa: ARG002 (only the index matters)
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.side, self.side, generator=generator)
        label = int(torch.randint(0, self.classes, (1,), generator=generator))
        # To bytes and back, as through torchvision's PIL image.
        return normalized(image.mul(255).byte()).numpy(), label


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Return […, 3, h, w] uint8 as float32 of mean 0 and deviation 1 over ImageNet: ToTensor and Normalize."""
    scaled = images.float().div(255)
    mean, std = (torch.tensor(of, device=images.device).view(3, 1, 1) for of in (MEAN, STD))
    return scaled.sub_(mean).div_(std)


def on_device(images: torch.Tensor, labels: torch.Tensor, device: torch.device, channels_last: bool) -> Batch:
    """Copy a batch to the device. Bytes are copied as bytes and normalized there."""
    memory = torch.channels_last if channels_last else torch.contiguous_format
    moved = images.to(device, non_blocking=True)
    moved = normalized(moved) if moved.dtype == torch.uint8 else moved
    return moved.contiguous(memory_format=memory), labels.to(device, non_blocking=True)


class Numbered(Dataset[tuple[torch.Tensor, int]]):
    """Items for a DataLoader, by (epoch, index)."""

    def __init__(self, items: Items, seed: int) -> None:
        self.items, self.seed = items, seed

    def __getitem__(self, place: tuple[int, int]) -> tuple[torch.Tensor, int]:
        epoch, index = place
        image, label = self.items.item(index, (self.seed, epoch))
        return torch.from_numpy(image), label
