"""Sources of training data: synthetic images on the device, torch's DataLoader, and Ray Data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from workloads.exits import WorkloadError
from workloads.train.data.feed import MEAN, STD
from workloads.train.data.items import Drawn, Item, Items, ParquetImages, image_folder, read, torchvision
from workloads.train.data.source import Batch, DataOptions, Order, RankShare


def source(options: DataOptions) -> Loaded:
    """Return the data that the options name."""
    kinds = {"synthetic": Synthetic, "ray": RayData}
    return kinds.get(options.data, Loaded)(options)


class Loaded:
    """FakeData in its own order, as in the published trainer, or an image folder in another order each epoch."""

    def __init__(self, options: DataOptions) -> None:
        self.options = options

    @cached_property
    def items(self) -> Items:
        options = self.options
        if options.data != "fakedata":
            return self._stored(self._folders[0], training=True)
        # Normalized in the loader's processes, as in the published trainer.
        vision = torchvision()
        transform = vision.transforms.Compose(
            [vision.transforms.ToTensor(), vision.transforms.Normalize(MEAN, STD)],
        )
        size = (3, options.image, options.image)
        return Drawn(vision.datasets.FakeData(options.items, size, options.classes, transform))

    @cached_property
    def test_items(self) -> Items | None:
        """Images of the folder `val`, of which the middle is evaluated; None without one."""
        if self.options.data in ("synthetic", "fakedata") or (folder := self._folders[1]) is None:
            return None
        stored = self._stored(folder, training=False)
        if (there := getattr(stored, "names", None)) != (here := getattr(self.items, "names", None)):
            first = min({*(there or [])} ^ {*(here or [])}, default="all")
            raise WorkloadError(
                f"--data-path {self.options.data_path}: train and val have different classes ({first}), so that labels"
                " would differ: use the same folders in both"
            )
        return stored

    def order(self, batch: int, seed: int) -> Order:
        return Order(len(self.items), batch, seed, shuffle=self.options.data != "fakedata")

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        order = self.order(share.batch, share.seed)
        draws = (order.draws(step)[share.rows].tolist() for step in range(share.first_step, share.steps))
        yield from self._loaded(self.items, draws, device)

    def test_batches(self, rank: int, world: int, batch: int, device: torch.device) -> Iterator[Batch]:
        """Yield this rank's part of the test images: each of them is on one rank, once, without padding."""
        assert self.test_items is not None
        count = len(self.test_items)
        rows = range(count * rank // world, count * (rank + 1) // world)
        draws = ([[0, row] for row in rows[at : at + batch]] for at in range(0, len(rows), batch))
        yield from self._loaded(self.test_items, draws, device)

    @cached_property
    def _folders(self) -> tuple[Path, Path | None]:
        """Folders of the training and the test images: `train` and `val` of the path if it has both, as ImageNet's."""
        root = Path(self.options.data_path or "")
        both = root / "train", root / "val"
        return both if all(folder.is_dir() for folder in both) else (root, None)

    def _stored(self, folder: Path, training: bool) -> Items:
        tensors = self.options.data == "ray" and any(folder.glob("*.parquet"))
        kind = ParquetImages if tensors else image_folder
        return kind(str(folder), self.options.image, self.options.classes, training)

    def _loaded(self, items: Items, draws: Iterable[list[list[int]]], device: torch.device) -> Iterator[Batch]:
        """Yield the batches of these draws from the loader's processes."""
        loader = DataLoader(
            cast("Dataset[Item]", items),
            batch_sampler=draws,
            num_workers=self.options.loader,
            pin_memory=device.type == "cuda",
        )
        yield from loader


class Synthetic(Loaded):
    """Noise generated on the device, to measure training without data loading.

    A pool of global batches, used in turn. (seed, batch, row) fixes an image and its label: each row has its own
    generator, so that a rank generates its own rows only, and any number of ranks gets the same ones.
    """

    def order(self, batch: int, seed: int) -> Order:
        return Order(self.options.items, batch, seed)

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        size = self.options.pool
        used = {step % size for step in range(share.first_step, share.steps)[:size]}
        pool = {number: self._batch(share, number, device) for number in sorted(used)}
        for step in range(share.first_step, share.steps):
            yield pool[step % size]

    def _batch(self, share: RankShare, number: int, device: torch.device) -> Batch:
        side = self.options.image
        images = np.empty((share.local, 3, side, side), dtype=np.float32)
        labels = np.empty(share.local, dtype=np.int64)
        for at, row in enumerate(range(share.batch)[share.rows]):
            rng = np.random.default_rng([share.seed, number, row])
            labels[at] = rng.integers(self.options.classes)
            rng.standard_normal(dtype=np.float32, out=images[at])
        # In the step's format, because a step uses them as they are.
        memory = torch.channels_last if self.options.channels_last else torch.contiguous_format
        return torch.from_numpy(images).to(device).contiguous(memory_format=memory), torch.from_numpy(labels).to(device)


class RayData(Loaded):
    """Folder of class folders or of Parquet files, read by up to `loader` tasks of one CPU each, on any node.

    Every rank runs a pipeline over its own rows, in order. Ray Train's own split (`get_dataset_shard`) gives blocks to
    the rank that requests one first and starts over after a restart: batches would depend on timing, and a resumed run
    would train on other images than an uninterrupted one.
    """

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        import ray.data

        del device  # Feed pins and copies
        order = self.order(share.batch, share.seed)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        step = share.first_step
        while step < share.steps:
            # One pipeline per epoch: a pipeline over all epochs would hold the rows of all of them.
            end = min(share.steps, (order.epoch(step) + 1) * order.epoch_steps)
            pipeline = ray.data.from_numpy([order.draws(at)[share.rows] for at in range(step, end)]).map_batches(
                partial(read, items=self.items),
                batch_size=share.local,
                concurrency=max(1, self.options.loader),
                num_cpus=1,
            )
            for batch in pipeline.iter_batches(batch_size=share.local, prefetch_batches=2):
                # Ray's arrays are read-only views of its shared memory.
                yield torch.from_numpy(np.array(batch["image"])), torch.from_numpy(np.array(batch["label"]))
            step = end
