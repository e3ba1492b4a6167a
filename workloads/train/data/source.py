"""The kinds of data behind one interface: what a task needs of its data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from workloads.exits import WorkloadError

if TYPE_CHECKING:
    import torch

    from workloads.train.task import Batch, Share

Kind = Literal["synthetic", "fakedata", "imagefolder", "ray"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """`image` is the side in pixels. `items` is the length of made-up data (ImageNet's, roughly, by default).

    `loader` counts the processes of each worker that make or decode images (0: the worker itself does). `pool` is how
    many different batches synthetic data have. `channels_last` is the images' memory format on the device.
    """

    kind: Kind
    image: int
    classes: int
    path: str | None = None
    loader: int = 4
    channels_last: bool = False
    items: int = 1_280_000
    pool: int = 4

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise WorkloadError(f"data {self.kind!r}: use one of {', '.join(get_args(Kind))}")
        if self.kind in ("imagefolder", "ray") and not self.path:
            raise WorkloadError(f"data {self.kind}: it needs the place of the images, --data-path")


class Source(Protocol):
    """Data for a run. Built on every rank."""

    def check(self) -> None:
        """Raise WorkloadError where the data are not there, or not as the configuration says."""

    def epoch_steps(self, batch: int) -> int:
        """Steps of one pass over the data with this global batch."""

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        """This rank's rows of global batches first_step … steps − 1: images float32, normalised; labels int64."""


def source(config: DataConfig) -> Source:
    """The data of this configuration; heavy imports come with it."""
    match config.kind:
        case "synthetic":
            from workloads.train.data.synthetic import Synthetic

            return Synthetic(config)
        case "fakedata" | "imagefolder":
            from workloads.train.data.loader import Loaded

            return Loaded(config)
        case "ray":
            from workloads.train.data.raydata import RayData

            return RayData(config)


def is_parquet(path: str) -> bool:
    """Whether `path` is a folder of Parquet files, rather than of class folders."""
    return any(Path(path).glob("*.parquet"))
