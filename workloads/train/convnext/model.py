"""ConvNeXt without torchvision: equivalent to torchvision 0.29.2's `convnext_base`, and loads its state dicts.

The constructor's alternatives (depthwise kernels, type of the residual stream) are equal up to rounding.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from workloads.train.convnext.flops import Size

Kernels = Literal["eager", "fused"]
Stream = Literal["as-computed", "bf16"]


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [n, c, h, w]."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = functional.layer_norm(
            images.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps
        )
        return rows.permute(0, 3, 1, 2)


class Permute(nn.Module):
    """[n, c, h, w] to [n, h, w, c] or back: a view."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.permute(self.order)


class Depthwise(nn.Conv2d):
    """7 by 7 convolution of each channel, by PyTorch's kernels (`eager`) or this project's (`fused`)."""

    def __init__(self, channels: int, kernels: Kernels) -> None:
        super().__init__(channels, channels, kernel_size=7, padding=3, groups=channels)
        self.kernels = kernels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.kernels == "eager":
            return super().forward(images)
        from workloads.train.convnext import depthwise

        assert self.bias is not None
        if torch.is_autocast_enabled(images.device.type):
            images = images.to(torch.get_autocast_dtype(images.device.type))
        convolved: torch.Tensor = depthwise.convolve(images, self.weight, self.bias)
        return convolved


class Block(nn.Module):
    """Residual block: depthwise convolution, norm and two linear layers with GELU, scaled by channel."""

    def __init__(self, channels: int, drop: float, kernels: Kernels, stream: Stream) -> None:
        super().__init__()
        # The indexes in this Sequential are torchvision's names in the state dict.
        self.block = nn.Sequential(
            Depthwise(channels, kernels),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(channels, eps=1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))
        self.drop = drop
        self.stream = stream

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        branch: torch.Tensor = self.layer_scale * self.block(images)
        if self.training and self.drop > 0:
            # As in torchvision, so that one seed drops the same images in both.
            kept = branch.new_empty(branch.shape[0], 1, 1, 1).bernoulli_(1 - self.drop)
            branch = branch * kept.div_(1 - self.drop)
        added = branch + images
        return added.to(torch.bfloat16) if self.stream == "bf16" else added


class ConvNeXt(nn.Module):
    """[n, 3, h, w] to [n, classes] logits; h and w are multiples of 32.

    `stochastic_depth` is the probability that an image skips the last block; it decreases linearly towards the first.
    `stream` "bf16" keeps activations between blocks in bf16: under autocast, fp32 scales and norms promote them.
    """

    def __init__(
        self,
        size: Size,
        *,
        stochastic_depth: float = 0.0,
        kernels: Kernels = "eager",
        stream: Stream = "as-computed",
    ) -> None:
        super().__init__()
        dims, blocks, block = size.dims, sum(size.depths), 0
        layers: list[nn.Module] = [
            nn.Sequential(nn.Conv2d(3, dims[0], kernel_size=4, stride=4), ChannelNorm(dims[0], eps=1e-6))
        ]
        for stage, (depth, channels) in enumerate(zip(size.depths, dims, strict=True)):
            if stage:
                before = dims[stage - 1]
                layers.append(
                    nn.Sequential(ChannelNorm(before, eps=1e-6), nn.Conv2d(before, channels, kernel_size=2, stride=2))
                )
            drops = [stochastic_depth * (block + i) / (blocks - 1) for i in range(depth)]
            layers.append(nn.Sequential(*(Block(channels, drop, kernels, stream) for drop in drops)))
            block += depth
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            ChannelNorm(dims[-1], eps=1e-6), nn.Flatten(1), nn.Linear(dims[-1], size.classes)
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.avgpool(self.features(images)))
        return logits

    def blocks(self) -> list[Block]:
        """Return all blocks, in order."""
        return [module for module in self.modules() if isinstance(module, Block)]
