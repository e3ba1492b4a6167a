"""ConvNeXt's operations: the published figure, the count by layer, and why torch's own counter is not used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from workloads.train.convnext import flops
from workloads.train.convnext.flops import SIZES
from workloads.train.convnext.model import ConvNeXt

BASE = SIZES["base"]


def test_base_matches_the_paper_and_the_reference() -> None:
    forward = sum(count for _, count in flops.macs(BASE))
    assert forward == pytest.approx(15.4e9, rel=0.005)  # the paper's "FLOPs" are multiply-accumulates
    assert flops.per_image(BASE) == pytest.approx(92.1e9, rel=0.001)


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


def test_torchs_counter_counts_a_grouped_backward_pass_as_dense() -> None:
    """The forward count agrees with ours; the backward one of a depthwise convolution is `channels` times too high."""
    with torch.device("meta"):
        layer, images = nn.Conv2d(512, 512, 7, padding=3, groups=512), torch.empty(1, 512, 14, 14, requires_grad=True)
    forward, both = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with forward:
        out = layer(images)
    with both:
        torch.autograd.backward(layer(images).sum())
    true = 2 * out.numel() * 7**2
    assert forward.get_total_flops() == true
    backward = both.get_total_flops() - true
    assert backward > 100 * 2 * true, "the counter was right, so it could be used again"


def test_torchs_counter_would_triple_the_mfu() -> None:
    with torch.device("meta"):
        model, counter = ConvNeXt(BASE), FlopCounterMode(display=False)
        with counter:
            torch.autograd.backward(model(torch.empty(1, 3, 224, 224)).sum())
    assert counter.get_total_flops() / flops.per_image(BASE) > 2.5


def test_mfu() -> None:
    h200 = flops.peak("NVIDIA H200")
    assert h200 is not None
    assert h200 / flops.per_image(BASE) == pytest.approx(10_735, rel=0.001)
    assert flops.mfu(1500, flops.per_image(BASE), h200) == pytest.approx(0.1397, abs=0.0001)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_peak_is_known_or_none(name: str, known: float | None) -> None:
    assert flops.peak(name) == known
