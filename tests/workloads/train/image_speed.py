"""Measure how many images a core decodes and crops: the trainer's data path over a plain loop of torchvision's.

    python -m tests.workloads.train.image_speed [--images N] [--rounds N]

All loops read the same JPEGs of 500 by 400 pixels (generated, about ImageNet's size) through torch's DataLoader with
one process, and return random crops of 224 by 224 as bytes, half of them mirrored. They alternate within one run, and
a ratio is computed per round. A rate is images by CPU time of both processes, which other load changes little.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image
from torchvision.transforms import v2

from workloads.train.data.loader import source
from workloads.train.data.source import DataOptions, Share

SIDE, BATCH = 224, 32
CROPS = (v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip())


def generate(folder: Path, images: int) -> None:
    """Write JPEGs of 500 by 400 pixels in two classes: smooth shapes with noise, about 80 kB each."""
    rng = np.random.default_rng(0)
    for number in range(images):
        shapes = Image.fromarray(rng.integers(0, 256, (50, 63, 3), dtype=np.uint8)).resize((500, 400))
        noisy = np.asarray(shapes).astype(np.int16) + rng.integers(-12, 13, (400, 500, 3))
        place = folder / f"class-{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(place / f"{number}.jpg", quality=90)


def ours(folder: str, images: int) -> Iterator[Any]:
    """Return the batches of `--data imagefolder` before they are copied to the device."""
    options = DataOptions(data="imagefolder", data_path=folder, classes=2, image=SIDE, loader=1)
    return source(options).batches(Share(0, 1, 0, images // BATCH, BATCH, 0), torch.device("cpu"))


def plain(folder: str, _images: int, **options: Any) -> Iterator[Any]:
    """Return the batches of torchvision's ImageFolder, with its own loader (Pillow) if the options name no other."""
    transform = v2.Compose([*CROPS, v2.PILToTensor()] if not options else CROPS)
    dataset = ImageFolder(folder, transform=transform, **options)
    return iter(DataLoader(dataset, BATCH, shuffle=True, num_workers=1, drop_last=True))


LOOPS: dict[str, Callable[[str, int], Iterator[Any]]] = {
    "ours": ours,
    "plain, Pillow": plain,
    "plain, decode_image": lambda folder, images: plain(folder, images, loader=lambda path: decode_image(path, "RGB")),
}


def rate(loop: Callable[[str, int], Iterator[Any]], folder: str, images: int) -> float:
    """Return the images per CPU second of a loop, from its start until its process has ended."""
    before, count = _cpu_s(), 0
    for pictures, _ in loop(folder, images):
        assert pictures.shape == (BATCH, 3, SIDE, SIDE)
        assert pictures.dtype == torch.uint8
        count += len(pictures)
    return count / (_cpu_s() - before)


def _cpu_s() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 2 if ours is slower than a plain loop."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.workloads.train.image_speed", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--images", type=int, default=512, help="images of one turn  [512]")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each loop  [9]")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rates: dict[str, list[float]] = {name: [] for name in LOOPS}
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), asked.images)
        for number in range(-1, asked.rounds):  # the first round warms up
            for place in range(len(LOOPS)):
                name = list(LOOPS)[(number + place) % len(LOOPS)]
                found = rate(LOOPS[name], folder, asked.images)
                if number >= 0:
                    rates[name].append(found)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    print(f"{asked.rounds} rounds of {asked.images} images, {load}; images/s of one core, and ours over it")
    ratios = {}
    for name, values in rates.items():
        each = [one / other for one, other in zip(rates["ours"], values, strict=True)]
        ratios[name] = median(each)
        print(f"{name:<22}{median(values):>8.1f}   {ratios[name]:.3f}, {min(each):.3f} to {max(each):.3f}")
    return 2 if min(ratios.values()) < 1 else 0


if __name__ == "__main__":
    raise SystemExit(main())
