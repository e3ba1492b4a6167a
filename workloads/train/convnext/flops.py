"""A ConvNeXt's floating-point operations, counted from its architecture, and their share of a GPU's peak. Pure.

torch's FlopCounterMode must not be used for it: it counts the backward pass of a grouped convolution as if it were
dense, which makes ConvNeXt-Base's 92.1 GFLOP an image 272.9 and an MFU three times too high (seen in torch 2.15.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from workloads.train.convnext.shapes import Size

Precision = Literal["fp32", "tf32", "bf16"]

# A multiplication and an addition; a backward pass does twice the forward's work: gradients of inputs and of weights.
_PER_MAC = 2
_PASSES = 3

# Dense peaks in FLOP/s of SXM modules. bf16: the rates behind published MFU figures of ConvNeXt (2026-11); fp32 (not on
# the tensor cores) and TF32: from memory of NVIDIA's data sheets, 2026-11. An H200 is an H100 with another memory.
PEAKS: dict[str, dict[Precision, float]] = {
    "A100": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12},
    "H100": {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989e12},
    "H200": {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989e12},
    "B200": {"bf16": 2250e12},
}


def macs(size: Size, image: int | None = None, classes: int | None = None) -> Iterator[tuple[str, int]]:
    """(layer, multiply-accumulates of one image's forward pass) for each convolution and linear layer, in order.

    Norms, GELU, scales and biases are left out, as the paper does; they are under 1 % of the operations.
    """
    side = (image or size.image) // 4
    yield "stem", side**2 * size.dims[0] * 3 * 4**2
    for stage, (depth, channels) in enumerate(zip(size.depths, size.dims, strict=True)):
        if stage:
            side //= 2
            yield f"downsample {stage}", side**2 * channels * size.dims[stage - 1] * 2**2
        for block in range(depth):
            yield f"stage {stage} block {block} depthwise", side**2 * channels * 7**2
            yield f"stage {stage} block {block} expand", side**2 * channels * 4 * channels
            yield f"stage {stage} block {block} reduce", side**2 * 4 * channels * channels
    yield "classifier", size.dims[-1] * (classes or size.classes)


def per_image(size: Size, image: int | None = None, classes: int | None = None) -> float:
    """FLOP of one image's training step, forward and backward: 92.1e9 for "base" at 224 by 224."""
    return float(_PASSES * _PER_MAC * sum(count for _, count in macs(size, image, classes)))


def peak(gpu: str, precision: Precision) -> float | None:
    """The peak in FLOP/s of a GPU by its CUDA name ("NVIDIA H200"); None where it is not in the table: no MFU then.

    The table's figures are SXM's: a PCIe card is another machine under a similar name.
    """
    words = gpu.replace("-", " ").upper().split()
    if "PCIE" in words or "NVL" in words:
        return None
    return next((rates.get(precision) for name, rates in PEAKS.items() if name in words), None)


def mfu(images_per_s: float, flops_per_image: float, peak_flops: float) -> float:
    """Model FLOP utilisation of one GPU, 0 … 1: what the model needs over what the GPU could have done."""
    return images_per_s * flops_per_image / peak_flops
