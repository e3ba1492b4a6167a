"""The sizes of ConvNeXt that can be trained. Pure: the client reads it, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """depths: blocks per stage; dims: their channels; image: the side of an image in pixels; classes: logits."""

    depths: tuple[int, ...]
    dims: tuple[int, ...]
    image: int
    classes: int


SIZES = {
    # torchvision/models/convnext.py: convnext_base; 88,591,464 parameters
    "base": Size((3, 3, 27, 3), (128, 256, 512, 1024), 224, 1000),
    # The same layers in seconds on a CPU; nobody's published model.
    "tiny": Size((1, 1, 1, 1), (8, 16, 32, 64), 64, 10),
    # Enough gradients (3.9 MB) for several of DDP's buckets, whose first is 1 MiB: what shows overlap on a CPU.
    "small": Size((1, 1, 1, 1), (32, 64, 128, 256), 64, 10),
}
