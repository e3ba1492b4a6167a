"""Training data: its options, the order of its images, each rank's share, and one interface for all kinds.

The global batch of a step is a pure function of (seed, step) for every kind, and every rank takes its rows of it.
A run therefore resumes at any step, on any number of workers, over the same images in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from workloads.exits import WorkloadError
from workloads.options import Hidden, option

if TYPE_CHECKING:
    import torch


Batch: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Images (bytes, or normalized float32) and int64 labels of one rank's share of one step."""


class DataOptions(BaseModel, frozen=True, extra="forbid"):
    """Options of the images that a run trains on."""

    data: Annotated[
        Literal["synthetic", "fakedata", "imagefolder", "ray"], option(show_choices=False, show_default=False)
    ] = Field(
        "fakedata",
        description="synthetic (on the device), fakedata, imagefolder or ray. [default: the preset's]",
    )
    data_path: Annotated[str | None, option(metavar="PATH")] = Field(
        None, description="Folder of class folders, or of Parquet files for --data ray."
    )
    loader: Hidden[int] = Field(4, ge=0, description="Processes of each worker that generate or decode images.")
    items: Hidden[int] = Field(1_280_000, ge=1, description="Number of generated images; about ImageNet's by default.")
    image: Hidden[int] = Field(224, ge=32, multiple_of=32, description="Side of an image in pixels.")
    classes: Hidden[int] = Field(1000, ge=1, description="Number of classes.")
    channels_last: Hidden[bool] = Field(False, description="Store images and weights as NHWC.")
    pool: Hidden[int] = Field(4, ge=1, description="Number of different batches of synthetic data.")

    @model_validator(mode="after")
    def _require_path(self) -> DataOptions:
        if self.data in ("imagefolder", "ray") and not self.data_path:
            raise ValueError(f"--data {self.data}: choose the folder of the images with --data-path")
        return self


@dataclass(frozen=True)
class RankShare:
    """Part of a run's global batches that one rank trains on: `rows` of each.

    `batch` counts the images of a global batch; `steps` is the end of the run (exclusive).
    """

    rank: int
    world: int
    first_step: int
    steps: int
    batch: int
    seed: int

    @property
    def rows(self) -> slice:
        """This rank's rows of a global batch. Shares differ by at most one row; the trainer weights losses by them."""
        return slice(self.batch * self.rank // self.world, self.batch * (self.rank + 1) // self.world)

    @property
    def local(self) -> int:
        """Number of this rank's rows."""
        return len(range(self.batch)[self.rows])


class TrainingData(Protocol):
    """Data of a run. Every rank has its own."""

    def order(self, batch: int, seed: int) -> Order:
        """Return the order of the data in global batches of this size.

        Called before anything else: WorkloadError if the data is missing or differs from the options.
        """

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        """Yield this rank's rows of global batches first_step … steps − 1, in main memory or on the device."""


@dataclass(frozen=True)
class Order:
    """Items of each global batch. With `shuffle`, (seed, epoch) determines each epoch's order.

    An epoch has full batches only, so that all steps weigh the same: items that fill none are left out, or, without
    `drop_last`, the epoch's first items fill up its last batch.
    """

    items: int
    batch: int
    seed: int
    shuffle: bool = True
    drop_last: bool = True

    @property
    def epoch_steps(self) -> int:
        """Steps of one pass over the data."""
        if not self.drop_last:
            return -(-self.items // self.batch)
        if self.batch > self.items:
            raise WorkloadError(
                f"a batch of {self.batch} over all workers: the data has {self.items} samples; use a smaller --batch or"
                " fewer --workers"
            )
        return self.items // self.batch

    def epoch(self, step: int) -> int:
        """Return the epoch that a step belongs to."""
        return step // self.epoch_steps

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the items [batch] of global batch number `step`, counted from 0 over the whole run."""
        places = np.arange(self.batch, dtype=np.int64) + step % self.epoch_steps * self.batch
        places %= self.items
        return _epoch(self.items, self.seed, self.epoch(step))[0][places] if self.shuffle else places

    def draws(self, step: int) -> NDArray[np.int64]:
        """Return [batch, 2]: each row's seed, a function of (seed, epoch, item) for its random crop, and its item."""
        rows = self.rows(step)
        return np.stack([_epoch(self.items, self.seed, self.epoch(step))[1][rows], rows], axis=1)


@lru_cache(maxsize=1)  # permuting a million items takes as long as a step
def _epoch(items: int, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of an epoch's items, and a seed for each item."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(items), rng.integers(2**32, size=items)
