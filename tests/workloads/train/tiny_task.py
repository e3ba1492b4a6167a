"""Task for tests of the trainer: drop-out to test generators, several of DDP's buckets, data by the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn

from workloads.exits import WorkloadError
from workloads.train.data.source import Batch, Order, RankShare
from workloads.train.options import TrainRunOptions
from workloads.train.task import Task, parallel


class TinyOptions(TrainRunOptions):
    """Options of the tiny task.

    `epoch`: steps of an epoch, longer than a run by default. `missing_on`: the rank that does not find its data.
    `mixing`: drop-out, and batch norm over a rank's rows. `broken_at`: the step whose data rank 1 cannot read.
    `slow`: the rank whose loss computes more.
    """

    task: Literal["tiny"] = "tiny"
    epoch: int = 10_000
    missing_on: int | None = None
    mixing: bool = True
    broken_at: int = -1
    slow: int | None = None


class TinyData:
    """Random images that their step and the seed determine."""

    def __init__(self, options: TinyOptions) -> None:
        self.options = options

    def order(self, batch: int, seed: int) -> Order:
        if self.options.missing_on is not None and dist.get_rank() == self.options.missing_on:
            raise WorkloadError("no data set at /nowhere: name one by --data-dir")
        return Order(self.options.epoch * batch, batch, seed)

    def batches(self, share: RankShare, device: torch.device) -> Iterator[Batch]:
        for step in range(share.first_step, share.steps):
            if step == self.options.broken_at and share.rank == 1:
                raise WorkloadError(f"image {step} of the data set cannot be read")
            source = torch.Generator().manual_seed(share.seed * 1_000_003 + step)
            images = torch.randn(share.batch, 16, generator=source)
            labels = images[:, :10].argmax(1)
            yield images[share.rows].to(device), labels[share.rows].to(device)


class TinyTask(Task):
    """Task of two thousand weights."""

    flops_per_sample = 1e3

    def __init__(self, options: TinyOptions) -> None:
        self.options = options
        self.data = TinyData(options)

    def model(self, device: torch.device) -> nn.Module:
        mixing = [nn.BatchNorm1d(64), nn.Dropout(0.1)] if self.options.mixing else [nn.LayerNorm(64)]
        return nn.Sequential(nn.Linear(16, 64), nn.GELU(), *mixing, nn.Linear(64, 10)).to(device)

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        # Small buckets, so that DDP has some to put in another order after its first pass.
        return parallel(model, device, bucket_cap_mb=0.001)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-2)

    def schedule(self, optimizer: torch.optim.Optimizer, epoch_steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.StepLR(optimizer, min(epoch_steps, 7), 0.9)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        if self.options.slow is not None and self.options.slow == dist.get_rank():
            for _ in range(5):
                torch.mm(torch.ones(512, 512), torch.ones(512, 512))
        return nn.functional.cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        images = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).to(device)
        with torch.inference_mode():
            return {"accuracy": float((model(images).argmax(1) == images[:, :10].argmax(1)).double().mean())}
