"""Small ConvNet on real handwritten digits: a task that shows on any machine that training learns.

Data: scikit-learn's `load_digits`, 1797 images of 8 by 8 pixels with values 0 … 16 (UCI, Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn

from workloads.exits import WorkloadError
from workloads.train.data.source import Batch, Order, RankShare
from workloads.train.options import DigitsOptions
from workloads.train.place import summed
from workloads.train.task import Task, place

# The learning rate falls by DECAY each epoch, whatever the number of epochs, so that a run can be resumed for more.
LEARNING_RATE, DECAY, WEIGHT_DECAY = 3e-3, 0.85, 1e-2


def load() -> tuple[Batch, Batch]:
    """Return training and test data: every fifth image of each digit is a test image.

    Images [n, 1, 8, 8] as floats 0 … 1, and labels [n] as int64.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise WorkloadError("the digits are in the package scikit-learn, which this environment lacks")
    # Only its file is read: importing scikit-learn takes as long as importing torch.
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    digits = rows[:, -1]
    chosen = np.zeros(len(rows), dtype=bool)
    for digit in range(10):
        chosen[np.flatnonzero(digits == digit)[4::5]] = True
    images = torch.tensor(rows[:, :-1], dtype=torch.float32).div(16).view(-1, 1, 8, 8)
    labels = torch.tensor(digits, dtype=torch.int64)
    return (images[~chosen], labels[~chosen]), (images[chosen], labels[chosen])


class DigitsData:
    """Training images as a source: all of them in another order every epoch."""

    def __init__(self, training: Batch) -> None:
        self.images, self.labels = training

    def order(self, batch: int, seed: int) -> Order:
        return Order(len(self.labels), batch, seed, drop_last=False)

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        images, labels, order = self.images.to(device), self.labels.to(device), self.order(share.batch, share.seed)
        for step in range(share.first_step, share.steps):
            rows = torch.from_numpy(order.rows(step)[share.rows]).to(device)
            yield images[rows], labels[rows]


class DigitsTask(Task):
    """Digits as a task."""

    def __init__(self, options: DigitsOptions) -> None:
        del options  # only the trainer uses them
        training, self.test = load()
        self.data = DigitsData(training)

    def model(self, device: torch.device) -> nn.Module:
        """[n, 1, 8, 8] to [n, 10] logits. Normalized by group, not by batch, so that ranks share no statistics."""
        return nn.Sequential(
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
        ).to(device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def schedule(self, optimizer: torch.optim.Optimizer, epoch_steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: DECAY ** (step // epoch_steps))

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return the accuracy over the whole test set. Each image is on exactly one rank, without padding."""
        rank, world = place()
        images, labels = (part[rank::world].to(device) for part in self.test)
        with torch.inference_mode():
            right = int((model(images).argmax(1) == labels).sum()) if len(labels) else 0
        right_of_all, count = summed(torch.tensor([right, len(labels)], dtype=torch.float64, device=device))
        return {"accuracy": right_of_all / count}
