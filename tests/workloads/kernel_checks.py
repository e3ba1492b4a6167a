"""Print the errors of the Triton kernels as JSON for test_convnext_kernels.py, in a separate process.

Without a GPU it runs with TRITON_INTERPRET=1, which Triton reads at its import.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from workloads.train.convnext import depthwise
from workloads.train.convnext.model import Depthwise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = {
    "smaller than the kernel, odd channels": ((1, 5, 4, 6), torch.float32),
    "wider than a tile": ((1, 3, 1, 18), torch.float32),
    "two images, more channels than lanes, bf16": ((2, 66, 1, 2), torch.bfloat16),
}


def errors(shape: tuple[int, ...], kind: torch.dtype) -> dict[str, Any]:
    """Return type and layout of the output, and the largest errors over the largest elements."""
    torch.manual_seed(0)
    channels = shape[1]
    images = torch.randn(shape).to(DEVICE, kind).requires_grad_()
    weight = torch.randn(channels, 1, 7, 7, device=DEVICE, requires_grad=True)
    bias = torch.randn(channels, device=DEVICE, requires_grad=True)
    gradient = torch.randn(shape).to(DEVICE, kind)
    out = depthwise.convolve(images, weight, bias)
    wide = images.detach().double().requires_grad_()
    expected = torch.nn.functional.conv2d(wide, weight.double(), bias.double(), padding=3, groups=channels)
    found = [out, *torch.autograd.grad(out, (images, weight, bias), gradient)]
    right = [expected, *torch.autograd.grad(expected, (wide, weight, bias), gradient.double())]
    worst = [
        ((one.double() - other.double()).abs().max() / other.abs().max()).item()
        for one, other in zip(found, right, strict=True)
    ]
    return {
        "kind": str(out.dtype),
        "channels_last": out.is_contiguous(memory_format=torch.channels_last),
        "errors": dict(zip(("output", "images", "weight", "bias"), worst, strict=True)),
    }


def under_autocast() -> dict[str, Any]:
    """Compare the model's layer with both kernels and the same weights."""
    eager, fused = Depthwise(4, "eager"), Depthwise(4, "fused")
    fused.load_state_dict(eager.state_dict())
    depthwise.check(DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        one, other = (layer.to(DEVICE)(torch.ones(1, 4, 3, 3, device=DEVICE)) for layer in (eager, fused))
    return {"kinds": [str(one.dtype), str(other.dtype)], "error": (one - other).abs().max().item()}


def contract() -> dict[str, str]:
    """Run torch's operator check: schema, autograd, fake tensors, AOTAutograd."""
    arguments = tuple(
        torch.randn(size, device=DEVICE, requires_grad=True) for size in ((1, 1, 1, 2), (1, 1, 7, 7), (1,))
    )
    return torch.library.opcheck(torch.ops.rdma_ray.depthwise7.default, arguments)


if __name__ == "__main__":
    found = {name: errors(*case) for name, case in SHAPES.items()}
    print(json.dumps({"cases": found, "autocast": under_autocast(), "contract": contract()}))
