"""A small ConvNet on real handwritten digits: the training loop that each worker runs.

Data: scikit-learn's `load_digits`, 1797 images of 8 by 8 pixels with values 0 … 16 (UCI, Alpaydin and Kaynak 1998).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray.train
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from ray.train.torch import get_device, prepare_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from workloads.events import emit
from workloads.train import checkpoints

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
    """One training run. `batch` counts images over all workers; the learning rate falls by `decay` each epoch,
    whatever the number of epochs, so that a run can be resumed for more of them.
    """

    epochs: int = 8
    batch: int = 64
    learning_rate: float = 3e-3
    decay: float = 0.85
    weight_decay: float = 1e-2
    seed: int = 0


def train_loop(settings: dict[str, Any]) -> dict[str, Any]:
    """What every worker runs: `settings` are {config, digits, submitted}. Returns the run's record; rank 0's counts."""
    logging.getLogger("ray.train").setLevel(logging.WARNING)  # else every rank tells of every report
    config: Config = settings["config"]
    digits: Digits = settings["digits"]
    rank, world, device = (
        ray.train.get_context().get_world_rank(),
        ray.train.get_context().get_world_size(),
        get_device(),
    )
    if device.type == "cpu":
        torch.set_num_threads(1)  # a worker has one CPU; a thread pool each would make them fight over it

    torch.manual_seed(config.seed)
    # find_unused_parameters keeps DDP's buckets as they are: rebuilt ones sum in another order, and a resumed run,
    # which starts with the first layout again, would differ from one that was never interrupted.
    model = prepare_model(ConvNet(), parallel_strategy_kwargs={"find_unused_parameters": True})
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    optimizer = torch.optim.AdamW(plain.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, config.decay)

    data = _tensors(digits.train_images, digits.train_labels)
    sampler: DistributedSampler[Any] = DistributedSampler(data, world, rank, seed=config.seed)
    loader = DataLoader(data, batch_size=max(1, config.batch // world), sampler=sampler)
    test = _tensors(digits.test_images[rank::world], digits.test_labels[rank::world])

    record: dict[str, Any] = {"world": world, "device": str(device), "resumed_from": None, "history": []}
    record["start_up_s"] = round(time.time() - settings["submitted"], 3)
    if (state := checkpoints.latest()) is not None:
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        record |= {"history": state["history"], "resumed_from": len(state["history"])}
    if rank == 0:
        emit("plan", epochs=config.epochs, done=len(record["history"]), workers=world)

    for epoch in range(len(record["history"]), config.epochs):
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        loss = _train_epoch(model, loader, optimizer, device)
        schedule.step()
        seconds = _over_ranks(time.perf_counter() - began, dist.ReduceOp.MAX, device)
        accuracy = _accuracy(plain, test, device)
        row = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy, "seconds": seconds, "images": len(data)}
        record["history"].append(row)
        state = None
        if rank == 0:
            state = {
                "model": plain.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "history": record["history"],
            }
        with checkpoints.written(state) as checkpoint:
            ray.train.report(row, checkpoint=checkpoint, checkpoint_dir_name=f"epoch-{epoch + 1:04}")
        if rank == 0:
            emit("epoch", **row)
    return record


def _train_epoch(
    model: nn.Module, loader: DataLoader[Any], optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """One pass over this rank's share; the mean loss over all ranks."""
    model.train()
    total = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.detach()
    return _over_ranks(total.item() / len(loader), dist.ReduceOp.SUM, device) / _world()


def _accuracy(model: nn.Module, shard: TensorDataset, device: torch.device) -> float:
    """The share of right answers over the whole test set: each image is on exactly one rank, none is padded in."""
    model.eval()
    images, labels = (tensor.to(device) for tensor in shard.tensors)
    with torch.inference_mode():
        right = int((model(images).argmax(1) == labels).sum()) if len(labels) else 0
    return _over_ranks(right, dist.ReduceOp.SUM, device) / _over_ranks(len(labels), dist.ReduceOp.SUM, device)


def _over_ranks(value: float, reduce: Any, device: torch.device) -> float:
    """`value` reduced over all ranks; itself where there is no process group (Ray Train's local mode)."""
    if not dist.is_initialized():
        return value
    # Double precision: sums of counts and of losses come out the same on every rank.
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, reduce)
    return tensor.item()


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _tensors(images: Bytes, labels: Bytes) -> TensorDataset:
    """images [n, 1, 8, 8] as floats 0 … 1, labels [n] as int64."""
    return TensorDataset(torch.tensor(images).float().div(16).unsqueeze(1), torch.tensor(labels).long())
