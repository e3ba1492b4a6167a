"""Where a rank stands: its number, its device, and how it agrees with the others."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

Notice = tuple[float | None, list[int]]
"""A preemption announced: its deadline (seconds since 1970, None: not told), and the ranks that lose their node."""


def no_warning() -> Notice | None:
    """Where nobody takes nodes away."""
    return None


def no_metrics(metrics: dict[str, float]) -> None:
    """Where nobody collects metrics."""
    del metrics


@dataclass(frozen=True)
class Place:
    """A rank among `world`. `warning` and `report` are barriers of Ray Train's: all ranks call them equally often."""

    rank: int
    world: int
    device: torch.device
    node_id: str = ""
    warning: Callable[[], Notice | None] = field(default=no_warning)
    report: Callable[[dict[str, float]], None] = field(default=no_metrics)

    @property
    def host(self) -> str:
        return socket.gethostname()

    @property
    def gpu(self) -> str | None:
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None

    def sums(self, values: torch.Tensor) -> list[float]:
        """The values (float64, on the device) summed over all ranks. Waits for the device."""
        if dist.is_initialized():
            dist.all_reduce(values)
        return [float(value) for value in values.tolist()]

    def most(self, value: float) -> float:
        """The greatest of all ranks' values."""
        if not dist.is_initialized():
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value (plain data), by rank."""
        if not dist.is_initialized():
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def differing(self, checksums: torch.Tensor) -> list[int]:
        """Which of these whole numbers are not the same on all ranks, by index."""
        if not dist.is_initialized():
            return []
        least, most = checksums.clone(), checksums.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return [int(index) for index in (least != most).nonzero().flatten().tolist()]


def in_ray_train() -> Place:
    """The place of a worker of Ray Train."""
    import ray
    import ray.train
    from ray.train.torch import get_device

    context = ray.train.get_context()
    device = get_device()
    if isinstance(device, Sequence):
        device = device[0]

    def warning() -> Notice | None:
        info = ray.train.get_preemption_info()
        if info is None:
            return None
        return (None if info.deadline_ms is None else info.deadline_ms / 1e3, info.preempted_ranks)

    watched = context.get_world_size() > 0 and os.environ.get("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER") != "0"
    return Place(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        device=device,
        node_id=ray.get_runtime_context().get_node_id(),
        warning=warning if watched else no_warning,
        report=lambda metrics: ray.train.report(metrics),
    )
