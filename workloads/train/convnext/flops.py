"""Sizes of ConvNeXt, their floating-point operations, and the share of a GPU's peak that these are. Pure.

Do not use torch's FlopCounterMode: it counts the backward pass of a grouped convolution as if it were dense, which
turns ConvNeXt-Base's 92.1 GFLOP per image into 272.9 and triples the MFU (torch 2.15.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Blocks per stage (`depths`), their channels (`dims`), side of an image in pixels, and number of classes."""

    depths: tuple[int, ...]
    dims: tuple[int, ...]
    image: int
    classes: int


SIZES = {
    # torchvision/models/convnext.py: convnext_base; 88,591,464 parameters
    "base": Size((3, 3, 27, 3), (128, 256, 512, 1024), 224, 1000),
    # The same layers in seconds on a CPU. Not a published model.
    "tiny": Size((1, 1, 1, 1), (8, 16, 32, 64), 64, 10),
    # Enough gradients (3.9 MB) for several of DDP's buckets, whose first is 1 MiB: shows overlap on a CPU.
    "small": Size((1, 1, 1, 1), (32, 64, 128, 256), 64, 10),
}

# A multiplication and an addition. A backward pass is twice the forward's work: gradients of inputs and of weights.
_PER_MAC = 2
_PASSES = 3

# Dense bf16 peaks in FLOP/s of SXM modules: the rates behind published MFU figures of ConvNeXt (2026-11). An H200
# computes like an H100.
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}


def macs(size: Size) -> Iterator[tuple[str, int]]:
    """Yield (layer, multiply-accumulates of one image's forward pass) for each convolution and linear layer, in order.

    Norms, GELU, scales and biases are left out, as in the paper: they are under 1 % of the operations.
    """
    side = size.image // 4
    yield "stem", side**2 * size.dims[0] * 3 * 4**2
    for stage, (depth, channels) in enumerate(zip(size.depths, size.dims, strict=True)):
        if stage:
            side //= 2
            yield f"downsample {stage}", side**2 * channels * size.dims[stage - 1] * 2**2
        for block in range(depth):
            yield f"stage {stage} block {block} depthwise", side**2 * channels * 7**2
            yield f"stage {stage} block {block} expand", side**2 * channels * 4 * channels
            yield f"stage {stage} block {block} reduce", side**2 * 4 * channels * channels
    yield "classifier", size.dims[-1] * size.classes


def per_image(size: Size) -> float:
    """Return the FLOP of one image's training step, forward and backward: 92.1e9 for "base" at 224 by 224."""
    return float(_PASSES * _PER_MAC * sum(count for _, count in macs(size)))


def peak(gpu: str) -> float | None:
    """Return the dense bf16 peak in FLOP/s of a GPU by its CUDA name ("NVIDIA H200"), or None if it is unknown.

    The table is of SXM modules: PCIe cards have similar names and lower peaks.
    """
    words = gpu.replace("-", " ").upper().split()
    if "PCIE" in words or "NVL" in words:
        return None
    return next((rate for name, rate in PEAKS.items() if name in words), None)


def mfu(per_s: float, flops: float, peak_flops: float) -> float:
    """Return the model FLOP utilization of one GPU, 0 … 1, at this rate of images or tokens and the FLOP of each."""
    return per_s * flops / peak_flops
