"""Data that the worker generates or loads: synthetic images on the device, and torch's DataLoader for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from workloads.train.data.items import ImageFolder, Item, Items
from workloads.train.data.source import DataOptions, Order, epoch_steps

if TYPE_CHECKING:
    from workloads.train.task import Batch, Share

# ImageNet's, by channel, on a scale from 0 to 1: torchvision's models and the published trainer use them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Synthetic:
    """Noise on the device: what training costs without its data.

    A pool of global batches, used in turn. (seed, batch, row) fixes an image and its label: each row has its own
    generator, so that a rank generates its own rows only, and any number of ranks gets the same ones.
    """

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    def check(self) -> None:
        """Nothing can be missing."""

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
