"""Labeled images by their draw (seed, index): the same draw always returns the same image, in any process.

This module imports torch and torchvision only where images are decoded: an import would delay each process of Ray
Data's tasks, and the cluster's image may lack torchvision.
"""

from __future__ import annotations

import bisect
import io
import socket
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.exits import WorkloadError

if TYPE_CHECKING:
    import torch

# torchvision's references/classification: the side of a picture whose middle is evaluated, relative to the crop's.
MARGIN = 256 / 224

Item = tuple["torch.Tensor | NDArray[np.uint8]", int]
"""One image [3, side, side] with its label: uint8 from 0 to 255, or normalized float32."""


class Items(Protocol):
    """Data set of known length. A draw of `Order.draws` is an item's seed, which determines its crop, and its index."""

    def __len__(self) -> int: ...

    def __getitem__(self, draw: Sequence[int]) -> Item:
        """Return image and label number `index`, always the same for the same draw (seed, index)."""


class Drawn:
    """Data set of torchvision whose transform the draw determines.

    torchvision's transforms use torch's generator, which is therefore seeded for each item and not restored: the loop
    seeds it again after it has fetched a batch. `names` are the classes', in the order of their labels.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.names: list[str] | None = getattr(dataset, "classes", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, draw: Sequence[int]) -> Item:
        _seed(draw)
        item: Item = self.dataset[draw[1]]
        return item


def image_folder(path: str, side: int, classes: int, training: bool) -> Drawn:
    """Return torchvision's ImageFolder: one folder of images per class, in the order of their names.

    WorkloadError if the folder is missing or empty, a class has no images, or there are not `classes` classes.
    """
    if not Path(path).is_dir():
        raise WorkloadError(f"--data-path {path}: no such folder on node {socket.gethostname()}; every node needs it")
    try:
        dataset = torchvision().datasets.ImageFolder(path, transform=transform(side, training), loader=decoded)
    except FileNotFoundError as error:
        raise WorkloadError(
            f"--data-path {path}: {error} Create one folder of images per class, and remove those without images"
        ) from error
    if (number := len(dataset.classes)) != classes:
        raise WorkloadError(
            f"--data-path {path}: {number} class folders, but the model has {classes} classes; choose the folder of all"
            f" classes, or use --set classes={number}"
        )
    return Drawn(dataset)


class ParquetImages:
    """Parquet files with columns `image` (a flat list of 3 · side · side bytes, or an encoded picture) and `label`.

    The files, in the order of their names, are one data set. Whole row groups are read and the last one is cached:
    files with row groups of about a batch read fastest. WorkloadError if there are no files, or their columns or sizes
    differ.
    """

    def __init__(self, path: str, side: int, classes: int, training: bool) -> None:
        from pyarrow import parquet, types  # type: ignore[import-untyped]  # pyarrow ships no types

        self.side, self.classes = side, classes
        self.transform: Any = None
        files = sorted(str(file) for file in Path(path).glob("*.parquet"))
        if not files:
            raise WorkloadError(f"--data-path {path}: no *.parquet files on node {socket.gethostname()}")
        self.groups: list[tuple[str, int]] = []
        self.ends: list[int] = []
        total = 0
        for file in files:
            parquet_file = parquet.ParquetFile(file)
            if missing := {"image", "label"} - set(parquet_file.schema_arrow.names):
                raise WorkloadError(
                    f"{file}: no column {', '.join(sorted(missing))}; it has {parquet_file.schema_arrow.names}"
                )
            if not types.is_nested(parquet_file.schema_arrow.field("image").type):
                self.transform = self.transform or transform(side, training)
            for group in range(parquet_file.metadata.num_row_groups):
                total += parquet_file.metadata.row_group(group).num_rows
                self.groups.append((file, group))
                self.ends.append(total)

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, draw: Sequence[int]) -> Item:
        group = bisect.bisect_right(self.ends, draw[1])
        file, number = self.groups[group]
        table = _row_group(file, number)
        row = draw[1] - self.ends[group]  # from the end of the group
        label = int(table["label"][row].as_py())
        if not 0 <= label < self.classes:
            raise WorkloadError(f"{file}: label {label}, but the model has {self.classes} classes")
        value = table["image"][row]
        if not hasattr(value, "values"):
            _seed(draw)
            return self.transform(decoded(value.as_py(), f"{draw[1]} in {file}")), label
        pixels: NDArray[np.uint8] = np.asarray(value.values.to_numpy(zero_copy_only=False), dtype=np.uint8)
        if pixels.size != 3 * self.side**2:
            raise WorkloadError(
                f"{file}: an image of {pixels.size} bytes, not 3 · {self.side} · {self.side}; set its side with --set"
                " image=SIDE"
            )
        return pixels.reshape(3, self.side, self.side), label


@lru_cache(maxsize=1)
def _row_group(file: str, number: int) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file).read_row_group(number, columns=["image", "label"])


def read(batch: dict[str, Any], items: Items) -> dict[str, Any]:
    """Read a batch in a task: draws [n, 2] to images [n, 3, side, side] as bytes and labels [n]."""
    images, labels = zip(*(items[draw] for draw in batch["data"].tolist()), strict=True)
    return {"image": np.stack(images), "label": np.array(labels, dtype=np.int64)}


def transform(side: int, training: bool) -> Any:
    """Return the transform of pictures of bytes to `side` by `side`: a random crop, or the middle."""
    v2 = torchvision().transforms.v2
    if training:
        return v2.Compose([v2.RandomResizedCrop(side), v2.RandomHorizontalFlip()])
    return v2.Compose([v2.Resize(round(MARGIN * side)), v2.CenterCrop(side)])


def decoded(source: str | bytes, name: str = "") -> torch.Tensor:
    """Return an encoded picture, from its path or its bytes, as RGB bytes [3, h, w].

    torchvision's decoder is faster than Pillow (docs/measurements.md), which reads what it does not: BMP, TIFF, 16-bit
    PNG, animations, and all where a torchvision after 0.29, which deprecates its decoder, has none. WorkloadError with
    the name of a picture that is damaged.
    """
    import torch
    from PIL import Image

    vision = torchvision()
    try:
        encoded = source if isinstance(source, str) else torch.frombuffer(bytearray(source), dtype=torch.uint8)
        picture: torch.Tensor = vision.io.decode_image(encoded, "RGB")
        if picture.dtype == torch.uint8 and picture.ndim == 3:
            return picture
    except (AttributeError, RuntimeError):
        pass  # another format, damaged, or no decoder
    try:
        with Image.open(source if isinstance(source, str) else io.BytesIO(source)) as opened:
            picture = vision.transforms.v2.functional.pil_to_tensor(opened.convert("RGB"))
    except OSError as error:
        shown = source if isinstance(source, str) else name
        raise WorkloadError(f"cannot read the image {shown}: {error}; repair or remove it") from error
    return picture


def torchvision() -> Any:
    """Return torchvision. WorkloadError if this node's image lacks it, or has it for another torch."""
    try:
        import torchvision.datasets
        import torchvision.io
        import torchvision.models
        import torchvision.transforms.v2
    except (ImportError, RuntimeError) as error:
        raise WorkloadError(
            f"node {socket.gethostname()} has no torchvision for its torch ({error}): set ray.image to an image that"
            " has both"
        ) from error
    return torchvision


def _seed(draw: Sequence[int]) -> None:
    import torch

    torch.default_generator.manual_seed(draw[0])
