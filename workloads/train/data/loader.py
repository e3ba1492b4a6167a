"""Data through torch's DataLoader: processes beside the worker make or decode the images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from workloads.train.data.fakedata import FakeData, normalised
from workloads.train.data.items import ImageFolder, Items
from workloads.train.data.order import Order, epoch_steps
from workloads.train.data.source import DataConfig

if TYPE_CHECKING:
    from workloads.train.task import Batch, Share

Place = tuple[int, int]
"""An epoch and an item's number."""


class Loaded:
    """FakeData in its own order, as the published trainer has it; an image folder in another order each epoch."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self._found: Items | None = None

    def check(self) -> None:
        self._items()

    def epoch_steps(self, batch: int) -> int:
        return epoch_steps(len(self._items()), batch)

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        items = self._items()
        order = Order(len(items), share.batch, share.seed, shuffle=self.config.kind != "fakedata")
        loader = DataLoader(
            Numbered(items, share.seed),
            batch_sampler=Rows(order, share),
            num_workers=self.config.loader,
            pin_memory=device.type == "cuda",
            persistent_workers=False,
        )
        for images, labels in loader:
            yield on_device(images, labels, device, self.config.channels_last)

    def _items(self) -> Items:
        if self._found is None:
            config = self.config
            if config.kind == "fakedata":
                self._found = FakeData(config.items, config.image, config.classes)
            else:
                self._found = ImageFolder(config.path or "", config.image, config.classes)
        return self._found


def on_device(images: torch.Tensor, labels: torch.Tensor, device: torch.device, channels_last: bool) -> Batch:
    """Bytes travel as bytes, and are normalised where they arrive."""
    memory = torch.channels_last if channels_last else torch.contiguous_format
    moved = images.to(device, non_blocking=True)
    moved = normalised(moved) if moved.dtype == torch.uint8 else moved
    return moved.contiguous(memory_format=memory), labels.to(device, non_blocking=True)


class Numbered(Dataset[tuple[torch.Tensor, int]]):
    """Items for a DataLoader, asked for by epoch and number."""

    def __init__(self, items: Items, seed: int) -> None:
        self.items, self.seed = items, seed

    def __getitem__(self, place: Place) -> tuple[torch.Tensor, int]:
        epoch, index = place
        image, label = self.items.item(index, (self.seed, epoch))
        return torch.from_numpy(image), label


class Rows(Sampler[list[Place]]):
    """This rank's rows of each global batch of its share, a list of places for each step."""

    def __init__(self, order: Order, share: Share) -> None:
        self.order, self.share = order, share

    def __iter__(self) -> Iterator[list[Place]]:
        for step in range(self.share.first_step, self.share.steps):
            epoch = self.order.epoch(step)
            yield [(epoch, int(index)) for index in self.order.rows(step)[self.share.rows]]

    def __len__(self) -> int:
        return self.share.steps - self.share.first_step
