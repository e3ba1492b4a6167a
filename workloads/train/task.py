"""Interface of the models to the trainer: one loop trains every Task."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.exits import WorkloadError
from workloads.train.data.source import Batch, TrainingData
from workloads.train.options import TrainRunOptions

# Factory of each task, by name.
FACTORIES = {
    "digits": "workloads.train.digits:DigitsTask",
    "convnext": "workloads.train.convnext:ConvNeXtTask",
    "gpt": "workloads.train.gpt.task:GPTTask",
}


class Task(Protocol):
    """A model with its data and its loss, created on every rank. `device` is the rank's own."""

    data: TrainingData
    unit: Literal["images", "tokens"] = "images"
    units: int = 1
    """Unit of the rates, and the number of units in a sample (a row of a batch)."""
    flops_per_sample: float | None = None
    """Floating-point operations of one sample, forward and backward, from the architecture. None: no MFU."""
    memory_format: torch.memory_format = torch.contiguous_format
    """Of the samples that `loss` receives."""
    identity: Mapping[str, Any] = MappingProxyType({})
    """Values that must be equal on all ranks and over the whole run, besides seed and batch: the text's digest."""

    def model(self, device: torch.device) -> nn.Module:
        """Return a new model on the device, in its memory format, not wrapped. The trainer seeds the generators."""

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Return the callable of a step: the model compiled, and in DistributedDataParallel if there are other ranks.

        FSDP2 shards the model in place: its state then holds DTensors, each rank's part of one whole tensor. DDP must
        not rebuild its buckets if a resumed run has to end bit for bit like an uninterrupted one.
        """
        return parallel(model, device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of the bare model's parameters."""

    def schedule(self, optimizer: torch.optim.Optimizer, epoch_steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the schedule of the learning rate. The trainer steps it after every optimizer step."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the mean loss over the batch's rows (a scalar), under the task's autocast."""

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Return figures of the bare model over all ranks' test data, equal on every rank; {} without test data."""
        del model, device
        return {}

    def report(self) -> dict[str, Any]:
        """Return the task's own figures after training, as plain data: compiled graphs and graph breaks."""
        return {}


def parallel(model: nn.Module, device: torch.device, **options: Any) -> nn.Module:
    """Return the model in DistributedDataParallel with these options, or as it is if there is no other rank."""
    if place()[1] == 1:
        return model
    if unknown := options.keys() - inspect.signature(DistributedDataParallel).parameters:
        raise WorkloadError(
            f"the image of the Ray nodes is too old to train: the DDP of torch {torch.__version__} has no"
            f" {', '.join(sorted(unknown))}; set ray.image to one with torch 2.13 or newer"
        )
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None, **options)


def warm_up_and_cosine(step: int, warm_up: int, decay: int | None, least: float = 0.0) -> float:
    """Return the factor on the learning rate: a linear warm-up, then constant or a half cosine from 1 to `least`."""
    if step < warm_up:
        return (step + 1) / warm_up
    if decay is None:
        return 1.0
    return least + (1 - least) * (1 + math.cos(math.pi * min(1.0, (step - warm_up) / decay))) / 2


def place() -> tuple[int, int]:
    """Return this rank and the number of ranks: (0, 1) without a process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def load(options: TrainRunOptions) -> Task:
    """Return the task of a run. Imports its module, which requires torch."""
    task: Task = resolve_name(FACTORIES[options.task])(options)
    return task
