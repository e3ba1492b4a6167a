"""Labeled images by index: the same index always returns the same image.

This module does not import torch, which would delay each process of Ray Data's tasks.
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
    from PIL.Image import Image

# torchvision 0.29, datasets/folder.py: suffixes of an image folder's files.
SUFFIXES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}
# Inception's random crop (Szegedy et al. 2014), as in torchvision: share of the area, ratio of the sides, attempts.
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10

Item = tuple[NDArray[np.generic], int]
"""One image [3, side, side] with its label: uint8 from 0 to 255, or normalized float32."""


class Items(Protocol):
    """Data set of known length, by (seed, epoch, index): all three determine an item's random crop."""

    def __len__(self) -> int: ...

    def __getitem__(self, draw: Sequence[int]) -> Item:
        """Return image and label number `index`, always the same for the same draw (seed, epoch, index)."""


class ImageFolder:
    """Folder with one folder of images per class, in the order of their names, cropped and mirrored at random.

    WorkloadError if the folder is missing or empty, a class has no images, or there are not `classes` classes.
    """

    def __init__(self, path: str, side: int, classes: int) -> None:
        self.side = side
        root = Path(path)
        if not root.is_dir():
            raise WorkloadError(
                f"--data-path {path}: no such folder on node {socket.gethostname()}; every node needs it"
            )
        names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
        if not names:
            raise WorkloadError(f"--data-path {path}: it has no class folders; create one folder of images per class")
        if len(names) != classes:
            raise WorkloadError(
                f"--data-path {path}: {len(names)} class folders, and the model has {classes} classes; name the folder"
                f" of all classes, or use --set classes={len(names)}"
            )
        self.samples: list[tuple[Path, int]] = []
        for label, name in enumerate(names):
            found = sorted(file for file in (root / name).rglob("*") if file.suffix.lower() in SUFFIXES)
            if not found:
                raise WorkloadError(
                    f"--data-path {path}: class folder {name} has no images ({', '.join(sorted(SUFFIXES))});"
                    " add some, or remove the folder and the class"
                )
            self.samples += [(file, label) for file in found]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, draw: Sequence[int]) -> Item:
        file, label = self.samples[draw[2]]
        return decoded(file, str(file), self.side, draw), label


class ParquetTensors:
    """Parquet files with columns `image` (a flat list of 3 · side · side bytes, or an encoded picture) and `label`.

    The files, in the order of their names, are one data set. Whole row groups are read and the last one is cached:
    files with row groups of about a batch read fastest. WorkloadError if there are no files, or their columns or sizes
    differ.
    """

    def __init__(self, path: str, side: int, classes: int) -> None:
        from pyarrow import parquet  # type: ignore[import-untyped]  # pyarrow ships no types

        self.side, self.classes = side, classes
        files = sorted(str(file) for file in Path(path).glob("*.parquet"))
        if not files:
            raise WorkloadError(f"--data-path {path}: no *.parquet files on node {socket.gethostname()}")
        self.groups: list[tuple[str, int]] = []
        self.ends: list[int] = []
        total = 0
        for file in files:
            found = parquet.ParquetFile(file)
            if missing := {"image", "label"} - set(found.schema_arrow.names):
                raise WorkloadError(
                    f"{file}: no column {', '.join(sorted(missing))}; it has {found.schema_arrow.names}"
                )
            for group in range(found.metadata.num_row_groups):
                total += found.metadata.row_group(group).num_rows
                self.groups.append((file, group))
                self.ends.append(total)

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, draw: Sequence[int]) -> Item:
        group = bisect.bisect_right(self.ends, draw[2])
        file, number = self.groups[group]
        table = _row_group(file, number)
        row = draw[2] - self.ends[group]  # from the end of the group
        label = int(table["label"][row].as_py())
        if not 0 <= label < self.classes:
            raise WorkloadError(f"{file}: label {label}, and the model has {self.classes} classes")
        value = table["image"][row]
        if not hasattr(value, "values"):
            return decoded(io.BytesIO(value.as_py()), f"{draw[2]} in {file}", self.side, draw), label
        pixels: NDArray[np.uint8] = np.asarray(value.values.to_numpy(zero_copy_only=False), dtype=np.uint8)
        if pixels.size != 3 * self.side**2:
            raise WorkloadError(
                f"{file}: an image of {pixels.size} bytes, not 3 · {self.side} · {self.side}; set its side by --set"
                " image=SIDE"
            )
        return pixels.reshape(3, self.side, self.side), label


@lru_cache(maxsize=1)
def _row_group(file: str, number: int) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file).read_row_group(number, columns=["image", "label"])


def read(batch: dict[str, Any], items: Items) -> dict[str, Any]:
    """Read a batch in a task: draws [n, 3] to images [n, 3, side, side] as bytes and labels [n]."""
    images, labels = zip(*(items[draw] for draw in batch["data"].tolist()), strict=True)
    return {"image": np.stack(images), "label": np.array(labels, dtype=np.int64)}


def decoded(file: Path | io.BytesIO, name: str, side: int, draw: Sequence[int]) -> NDArray[np.uint8]:
    """Return the part of an encoded picture that `draw` determines. WorkloadError if the picture is damaged."""
    image = _pillow()
    try:
        with image.open(file) as opened:
            picture = opened.convert("RGB")
    except OSError as error:
        raise WorkloadError(f"cannot read the image {name}: {error}; repair or remove it") from error
    return cropped(picture, side, np.random.default_rng(draw))


def cropped(picture: Image, side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a random part of the picture as [3, side, side], mirrored half of the time."""
    from PIL.Image import Resampling, Transpose

    left, top, width, height = crop_box(picture.width, picture.height, rng)
    box = (left, top, left + width, top + height)
    scaled = picture.resize((side, side), Resampling.BILINEAR, box=box)
    if rng.random() < 0.5:
        scaled = scaled.transpose(Transpose.FLIP_LEFT_RIGHT)
    return np.ascontiguousarray(np.asarray(scaled, dtype=np.uint8).transpose(2, 0, 1))


def crop_box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Return (left, top, width, height) of a random crop, or of the middle if no attempt fits into the picture."""
    for _ in range(TRIES):
        area = width * height * rng.uniform(*AREA)
        ratio = float(np.exp(rng.uniform(np.log(RATIO[0]), np.log(RATIO[1]))))
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise WorkloadError(
            f"decoding images requires Pillow, which node {socket.gethostname()} lacks: use a ray.image that has it"
            " (pip install pillow==13.0.0), or --data synthetic"
        ) from error
    return Image
