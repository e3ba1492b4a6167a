"""7 by 7 depthwise convolution over channels_last images, forward and backward, in Triton.

The convolution is under 2 % of ConvNeXt's operations, but reads and writes as much as its matrix products. Library
kernels do not reach memory bandwidth in channels_last, least of all for weight gradients (pytorch issue 91735). This
kernel has not been measured on a GPU yet, so nothing uses it by default; `make bench-gpu` compares both.

Sums are fp32 for any type of images, without atomics: every run produces the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from workloads.exits import WorkloadError

_TAPS = 49
_ROW = 8
"""Taps of one row of the kernel, and one more element for the gradient of the bias."""


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(
    images: Any, taps: Any, bias: Any, out: Any, height: Any, width: Any, channels: Any,
    tile: tl.constexpr, lanes: tl.constexpr,
) -> None:  # fmt: skip
    """Convolve `tile` neighbors in a row of an image, for `lanes` channels; images and out are dense [n, h, w, c]."""
    row, x0 = tl.program_id(0), tl.program_id(1) * tile
    channel = tl.program_id(2) * lanes + tl.arange(0, lanes)
    x = x0 + tl.arange(0, tile)
    y = row % height
    own = channel < channels
    total = tl.zeros((tile, lanes), dtype=tl.float32)
    total += tl.load(bias + channel, mask=own, other=0.0).to(tl.float32)[None, :]
    for i in tl.static_range(7):
        # A vector of equal values: Triton's interpreter confuses scalars of one bit with vectors.
        down = tl.zeros((tile,), dtype=tl.int32) + y + i - 3
        inside = (down >= 0) & (down < height)
        line = (row + i - 3) * width
        for j in tl.static_range(7):
            at = x + j - 3
            mask = (inside & (at >= 0) & (at < width))[:, None] & own[None, :]
            pixels = tl.load(images + (line + at)[:, None] * channels + channel[None, :], mask=mask, other=0.0)
            tap = tl.load(taps + (i * 7 + j) * channels + channel, mask=own, other=0.0)
            total += pixels.to(tl.float32) * tap.to(tl.float32)[None, :]
    mask = (x < width)[:, None] & own[None, :]
    place = out + (row * width + x)[:, None] * channels + channel[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _weigh(
    images: Any, gradient: Any, out: Any, rows: Any, height: Any, width: Any, channels: Any,
    tile: tl.constexpr, lanes: tl.constexpr,
) -> None:  # fmt: skip
    """Sum one row of taps over every `parts`-th row of the images: out[part, i, j, c], with j = 7 for the bias."""
    i, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    channel = tl.program_id(2) * lanes + tl.arange(0, lanes)
    own = channel < channels
    j = tl.arange(0, 8)
    total = tl.zeros((8, lanes), dtype=tl.float32)
    for row in range(part, rows, parts):
        down = tl.zeros((8, tile), dtype=tl.int32) + row % height + i - 3
        inside = (down >= 0) & (down < height)
        for x0 in range(0, width, tile):
            x = x0 + tl.arange(0, tile)
            mask = (x < width)[:, None] & own[None, :]
            arriving = tl.load(
                gradient + (row * width + x)[:, None] * channels + channel[None, :], mask=mask, other=0.0
            )
            at = x[None, :] + j[:, None] - 3
            # Pixels outside of the image are zero, which is the padding.
            found = inside & (at >= 0) & (at < width) & (j < 7)[:, None]
            offset = ((row + i - 3) * width + at)[:, :, None] * channels + channel[None, None, :]
            pixels = tl.load(images + offset, mask=found[:, :, None] & own[None, None, :], other=0.0).to(tl.float32)
            pixels = tl.where((j == 7)[:, None, None], 1.0, pixels)
            total += tl.sum(pixels * arriving.to(tl.float32)[None, :, :], axis=1)
    place = out + ((part * 7 + i) * 8 + j)[:, None] * channels + channel[None, :]
    tl.store(place, total, mask=own[None, :])


def check(device: torch.device) -> None:
    """Raise WorkloadError if the kernels cannot run: they require a CUDA GPU, or Triton's interpreter in tests."""
    if device.type != "cuda" and not triton.knobs.runtime.interpret:
        raise WorkloadError(f"kernels=fused on {device.type}: they require CUDA GPUs; use kernels=eager")


@torch.library.custom_op("rdma_ray::depthwise7", mutates_args=())
def convolve(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Convolve images [n, c, h, w] with weight [c, 1, 7, 7] and bias [c], in channels_last and the images' type.

    The same as `torch.nn.functional.conv2d(images, weight, bias, padding=3, groups=c)`, with fp32 sums and gradients of
    all three. torch.compile treats it as one opaque operator, without a graph break.
    """
    return _launch(images, _taps(weight), bias)


def _launch(images: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    images = _dense(images)
    count, channels, height, width = images.shape
    out = torch.empty_like(images, memory_format=torch.channels_last)
    tile, lanes = min(16, triton.next_power_of_2(width)), min(64, triton.next_power_of_2(channels))
    grid = (count * height, triton.cdiv(width, tile), triton.cdiv(channels, lanes))
    _convolve[grid](images, taps, bias, out, height, width, channels, tile, lanes)
    return out


def _dense(images: torch.Tensor) -> torch.Tensor:
    if images.numel() >= 2**31:
        raise ValueError(f"{images.numel()} elements: the kernels' offsets have 32 bits; use a smaller batch")
    return images.contiguous(memory_format=torch.channels_last)


def _taps(weight: torch.Tensor) -> torch.Tensor:
    """Return [c, 1, 7, 7] as [49, c], so that neighboring lanes read neighbors."""
    return weight.reshape(weight.shape[0], _TAPS).t().contiguous()


@torch.library.custom_op("rdma_ray::depthwise7_backward", mutates_args=())
def _backward(
    images: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of images, weight and bias."""
    # The gradient of the images is the same convolution with reversed taps, without bias.
    images, gradient = _dense(images), _dense(gradient)
    of_images = _launch(gradient, _taps(weight).flip(0), weight.new_zeros(weight.shape[0]))
    count, channels, height, width = images.shape
    tile, lanes = min(16, triton.next_power_of_2(width)), min(32, triton.next_power_of_2(channels))
    blocks = triton.cdiv(channels, lanes)
    # About 2,000 programs: several per multiprocessor of a GPU (132). Each part's sum is written once.
    parts = max(1, min(count * height, 2048 // (7 * blocks)))
    sums = images.new_empty((parts, 7, _ROW, channels), dtype=torch.float32)
    _weigh[(7, parts, blocks)](images, gradient, sums, count * height, height, width, channels, tile, lanes)
    total = sums.sum(0)
    of_weight = total[:, :7].reshape(_TAPS, channels).t().reshape(weight.shape).to(weight.dtype)
    return of_images, of_weight.contiguous(), total[0, 7].to(weight.dtype, copy=True)


@convolve.register_fake
def _(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: ARG001 (the schema's)
    return torch.empty_like(images, memory_format=torch.channels_last)


@_backward.register_fake
def _(
    images: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    of_images = torch.empty_like(gradient, memory_format=torch.channels_last)
    return of_images, torch.empty_like(weight, memory_format=torch.contiguous_format), weight.new_empty(images.shape[1])


def _save(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:  # noqa: ARG001 (torch passes it)
    ctx.save_for_backward(inputs[0], inputs[1])


def _gradients(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images, weight = ctx.saved_tensors
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _backward(images, weight, gradient)
    return found


convolve.register_autograd(_gradients, setup_context=_save)
