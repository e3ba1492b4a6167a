"""A small ConvNet on real handwritten digits: a task that shows on any machine that training learns.

Data: scikit-learn's `load_digits`, 1797 images of 8 by 8 pixels with values 0 … 16 (UCI, Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.train.task import Batch, Share

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Digits:
    """images [n, 8, 8] and labels [n], as bytes, split once and for all into training and test."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


def load(seed: int, test_share: float = 0.2) -> Digits:
    """The whole data set, split by `seed` so that each digit has the same share of both parts."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    parts = train_test_split(
        data.images.astype(np.uint8),
        data.target.astype(np.uint8),
        test_size=test_share,
        stratify=data.target,
        random_state=seed,
    )
    train_images, test_images, train_labels, test_labels = parts
    return Digits(train_images, train_labels, test_images, test_labels)


class ConvNet(nn.Sequential):
    """[n, 1, 8, 8] → [n, 10] logits. Normalised by group, not by batch, so that ranks share no statistics."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.GroupNorm(8, 64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )


@dataclass(frozen=True)
class Config:
    """The learning rate falls by `decay` each epoch, whatever the number of epochs, so that a run can be resumed for
    more of them. `seed` splits the data; the run's own seed shuffles them.
    """

    learning_rate: float = 3e-3
    decay: float = 0.85
    weight_decay: float = 1e-2
    seed: int = 0


class DigitsTask:
    """The digits as the trainer sees them, see `workloads.train.task.Task`."""

    name = "digits"
    flops_per_sample: float | None = None

    def __init__(self, config: Config) -> None:
        self.config = config
        self.digits = load(config.seed)

    def check(self) -> None:
        """Nothing can be missing: the data comes with scikit-learn."""

    def epoch_steps(self, batch: int) -> int | None:
        return -(-len(self.digits.train_labels) // batch)

    def model(self, device: torch.device) -> nn.Module:
        return ConvNet().to(device)

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        if not dist.is_initialized():
            return model
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)

    def schedule(
        self, optimizer: torch.optim.Optimizer, epoch_steps: int | None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        assert epoch_steps is not None
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.config.decay ** (step // epoch_steps))

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        """Every epoch all images in another order; its last batch is filled up with the epoch's first images."""
        images, labels = (part.to(device) for part in _tensors(self.digits.train_images, self.digits.train_labels))
        epoch_steps = self.epoch_steps(share.batch)
        assert epoch_steps is not None
        order: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        for step in range(share.first_step, share.steps):
            epoch, number = divmod(step, epoch_steps)
            if number == 0 or step == share.first_step:
                order = np.resize(
                    np.random.default_rng([share.seed, epoch]).permutation(len(labels)), epoch_steps * share.batch
                )
            rows = torch.from_numpy(order[number * share.batch : (number + 1) * share.batch][share.rows]).to(device)
            yield images[rows], labels[rows]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """The share of right answers over the whole test set: each image is on exactly one rank, none is padded in."""
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        mine = slice(rank, None, world)
        images, labels = (
            part.to(device) for part in _tensors(self.digits.test_images[mine], self.digits.test_labels[mine])
        )
        with torch.inference_mode():
            right = int((model(images).argmax(1) == labels).sum()) if len(labels) else 0
        # Double precision: the counts come out exact on every rank.
        counts = torch.tensor([right, len(labels)], dtype=torch.float64, device=device)
        if dist.is_initialized():
            dist.all_reduce(counts)
        return {"accuracy": float(counts[0] / counts[1])}

    def report(self) -> dict[str, Any]:
        return {"config": vars(self.config)}


def task(config: dict[str, Any]) -> DigitsTask:
    """The task from its configuration as plain data."""
    return DigitsTask(Config(**config))


def _tensors(images: Bytes, labels: Bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """images [n, 1, 8, 8] as floats 0 … 1, labels [n] as int64."""
    return torch.tensor(images).float().div(16).unsqueeze(1), torch.tensor(labels).long()
