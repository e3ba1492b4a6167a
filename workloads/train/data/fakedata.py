"""Images made up by torchvision's recipe, and the normalisation that goes with it."""

from __future__ import annotations

import torch

from workloads.train.data.items import Item

# ImageNet's, by channel, on a scale from 0 to 1: torchvision's models and the published trainer use them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def normalised(images: torch.Tensor) -> torch.Tensor:
    """[…, 3, h, w] uint8 as float32 of mean 0 and deviation 1 over ImageNet: ToTensor and Normalize."""
    scaled = images.float().div(255)
    mean, std = (torch.tensor(of, device=images.device).view(3, 1, 1) for of in (MEAN, STD))
    return scaled.sub_(mean).div_(std)


class FakeData:
    """torchvision's FakeData with ToTensor and Normalize, bit for bit: noise that depends on the index only.

    Source: torchvision 0.29.2, datasets/fakedata.py and transforms; the published trainer uses it.
    """

    def __init__(self, items: int, side: int, classes: int) -> None:
        self.items, self.side, self.classes = items, side, classes

    def __len__(self) -> int:
        return self.items

    def item(self, index: int, draw: tuple[int, int]) -> Item:  # noqa: ARG002 (nothing is drawn but by the index)
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.side, self.side, generator=generator)
        label = int(torch.randint(0, self.classes, (1,), generator=generator))
        # As bytes and back, as it goes through a PIL image there.
        return normalised(image.mul(255).byte()).numpy(), label
