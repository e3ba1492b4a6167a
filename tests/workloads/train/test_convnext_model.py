"""Our ConvNeXt against torchvision's: names, numbers, dropped images, layouts and types; its operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.convnext import CNBlockConfig

from workloads.train.convnext import flops
from workloads.train.convnext.flops import SIZES
from workloads.train.convnext.model import ConvNeXt

TINY = SIZES["tiny"]


def theirs(stochastic_depth: float = 0.0) -> Any:
    """torchvision's own class in the tiny size."""
    dims = (*TINY.dims, None)
    blocks = [CNBlockConfig(dims[i], dims[i + 1], depth) for i, depth in enumerate(TINY.depths)]
    return torchvision.models.ConvNeXt(blocks, stochastic_depth, num_classes=TINY.classes)


def pair(stochastic_depth: float = 0.0) -> tuple[ConvNeXt, Any]:
    """Ours and theirs with the same weights; the layer scales are large enough for the blocks to matter."""
    torch.manual_seed(0)
    other = theirs(stochastic_depth)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if name.endswith("layer_scale"):
                parameter.uniform_(0.5, 1.5)
    own = ConvNeXt(TINY, stochastic_depth=stochastic_depth)
    own.load_state_dict(other.state_dict())
    return own, other


def images(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, TINY.image, TINY.image, generator=torch.Generator().manual_seed(1))


def run(model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits and gradients by name of one seeded training pass."""
    torch.manual_seed(5)
    model.zero_grad(set_to_none=True)
    logits = model(batch)
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits, torch.arange(len(batch)) % TINY.classes))
    return logits.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def same(first: Any, second: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    (logits, gradients), (others, expected) = first, second
    torch.testing.assert_close(logits, others, rtol=rtol, atol=atol)
    assert list(gradients) == list(expected)
    torch.testing.assert_close(gradients, expected, rtol=rtol, atol=atol)


def test_base_is_torchvisions_by_name_and_shape() -> None:
    with torch.device("meta"):
        own, other = ConvNeXt(SIZES["base"]), torchvision.models.convnext_base()
    assert [(name, value.shape) for name, value in own.state_dict().items()] == [
        (name, value.shape) for name, value in other.state_dict().items()
    ]


@pytest.mark.parametrize("stochastic_depth", [0.0, 0.5])
def test_logits_and_gradients_are_torchvisions(stochastic_depth: float) -> None:
    """In training, with the same images dropped for the same seed; without dropping after it."""
    own, other = pair(stochastic_depth)
    same(run(own, images(8)), run(other, images(8)))
    torch.testing.assert_close(own.eval()(images()), other.eval()(images()))


def test_a_new_model_starts_as_torchvisions_does() -> None:
    """The same draws in the same order, so one seed gives both the same weights."""
    torch.manual_seed(3)
    own = ConvNeXt(TINY).state_dict()
    torch.manual_seed(3)
    torch.testing.assert_close(own, theirs().state_dict(), rtol=0, atol=0)


def test_channels_last_changes_the_layout_only() -> None:
    own, other = pair()
    own = own.to(memory_format=torch.channels_last)
    same(run(own, images().to(memory_format=torch.channels_last)), run(other, images()), rtol=1e-3, atol=1e-5)


def test_the_bf16_stream_is_the_same_function_in_bf16() -> None:
    """Within bf16's 8 bits of mantissa, relative to the largest logit, from block to block."""
    own, other = pair()
    narrow = ConvNeXt(TINY, stream="bf16")
    narrow.load_state_dict(own.state_dict())
    kinds = []
    narrow.features[3].register_forward_hook(lambda _module, _inputs, out: kinds.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        logits = narrow(images())
    expected = other(images())
    assert kinds == [torch.bfloat16]
    assert (logits - expected).abs().max() < 0.03 * expected.abs().max()


@pytest.mark.parametrize(("size", "image"), [("tiny", 32), ("tiny", 64), ("small", 96), ("base", 224)])
def test_the_count_by_layer_matches_the_layers(size: str, image: int) -> None:
    found = []

    def count(module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            found.append(output.numel() * module.weight[0].numel())
        elif isinstance(module, nn.Linear):
            found.append(output.numel() * module.in_features)

    with torch.device("meta"):
        model = ConvNeXt(SIZES[size])
        for module in model.modules():
            module.register_forward_hook(count)
        model(torch.empty(1, 3, image, image))
    assert [number for _, number in flops.macs(replace(SIZES[size], image=image))] == found


def test_base_needs_the_published_operations() -> None:
    assert flops.per_image(SIZES["base"]) == pytest.approx(92.1e9, rel=0.001)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_peak_is_known_or_none(name: str, known: float | None) -> None:
    assert flops.peak(name) == known
