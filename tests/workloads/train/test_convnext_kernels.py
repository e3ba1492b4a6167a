"""The Triton kernels against torch, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from workloads.exits import WorkloadError
from workloads.train.convnext import depthwise
from workloads.train.convnext.model import Depthwise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def triton() -> Iterator[ProcessPoolExecutor]:
    """A process that runs the kernels: Triton reads TRITON_INTERPRET at its import."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        with pytest.MonkeyPatch.context() as patch:
            if DEVICE == CPU:
                patch.setenv("TRITON_INTERPRET", "1")
            process.submit(os.getpid)  # starts it in this environment
        yield process


def _convolves(shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Compare with a fp64 convolution, relative to the largest element; bf16 has 8 bits."""
    torch.manual_seed(0)
    channels = shape[1]
    images = torch.randn(shape).to(DEVICE, kind).requires_grad_()
    weight = torch.randn(channels, 1, 7, 7, device=DEVICE, requires_grad=True)
    bias = torch.randn(channels, device=DEVICE, requires_grad=True)
    gradient = torch.randn(shape).to(DEVICE, kind)
    out = depthwise.convolve(images, weight, bias)
    assert out.dtype == kind
    assert out.is_contiguous(memory_format=torch.channels_last)
    wide = images.detach().double().requires_grad_()
    expected = torch.nn.functional.conv2d(wide, weight.double(), bias.double(), padding=3, groups=channels)
    found = [out, *torch.autograd.grad(out, (images, weight, bias), gradient)]
    right = [expected, *torch.autograd.grad(expected, (wide, weight, bias), gradient.double())]
    # Parameters and their gradients are fp32 in both.
    narrow = 1e-5 if kind == torch.float32 else 8e-3
    for one, other, share in zip(found, right, (narrow, narrow, 1e-5, 1e-5), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=share * other.abs().max().item())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        pytest.param((1, 3, 3, 4), torch.float32, id="smaller than the kernel, odd channels"),
        pytest.param((1, 3, 1, 18), torch.float32, id="wider than a tile"),
        pytest.param((2, 66, 1, 1), torch.bfloat16, id="two images, more channels than lanes, bf16"),
    ],
)
def test_forward_and_gradients_are_conv2ds(
    triton: ProcessPoolExecutor, shape: tuple[int, ...], kind: torch.dtype
) -> None:
    triton.submit(_convolves, shape, kind).result()


def _contract() -> dict[str, str]:
    sizes = ((1, 1, 1, 2), (1, 1, 7, 7), (1,))
    arguments = tuple(torch.randn(size, device=DEVICE, requires_grad=True) for size in sizes)
    return torch.library.opcheck(torch.ops.rdma_ray.depthwise7.default, arguments)


def test_the_operator_keeps_torchs_contract(triton: ProcessPoolExecutor) -> None:
    """Schema, autograd, fake tensors and AOTAutograd, which torch.compile relies on."""
    found = triton.submit(_contract).result()
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) >= 4


def _under_autocast() -> None:
    eager, fused = Depthwise(4, "eager"), Depthwise(4, "fused")
    fused.load_state_dict(eager.state_dict())
    depthwise.check(DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        one, other = (layer.to(DEVICE)(torch.ones(1, 4, 3, 3, device=DEVICE)) for layer in (eager, fused))
    assert one.dtype == other.dtype == torch.bfloat16
    assert (one - other).abs().max() < 2e-2


def test_the_model_takes_them_under_autocast(triton: ProcessPoolExecutor) -> None:
    """The output is bf16, as in the eager layer, which also rounds its weights: the last bits differ."""
    triton.submit(_under_autocast).result()


def test_without_a_gpu_the_kernels_are_rejected() -> None:
    """This process does not use Triton's interpreter."""
    with pytest.raises(WorkloadError, match="use kernels=eager"):
        depthwise.check(CPU)
