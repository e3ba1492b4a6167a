"""Everything that a run needs to go on as if it had never stopped, in one state.

The generators of random numbers (Python, NumPy, torch, CUDA) are seeded before every step by (seed, step, rank), and
the order of the data is a function of (seed, step): so the step stands for both, and no generator's state is kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from workloads.exits import WorkloadError

VERSION = 1


@dataclass
class Progress:
    """How far a run is. `losses` are [step, mean loss since the one before]; `epoch` sums up the unfinished epoch."""

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    epoch_loss: float = 0.0
    epoch_steps: int = 0


class TrainState:
    """A model, its optimiser and schedule, the moving average of its weights, and the progress, to save and load."""

    def __init__(self, model: nn.Module, ema: float | None) -> None:
        self.model = model
        self.progress = Progress()
        self.decay = ema
        self.optimizer: torch.optim.Optimizer
        self.schedule: torch.optim.lr_scheduler.LRScheduler
        self.average = [p.detach().clone() for p in model.parameters()] if ema is not None else []

    def update_average(self) -> None:
        """One step of the moving average, all weights in a few kernels."""
        if self.decay is not None:
            weights = [parameter.detach() for parameter in self.model.parameters()]
            torch._foreach_lerp_(self.average, weights, 1 - self.decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged weights in the model's place; where there are none, the model as it is."""
        if self.decay is None:
            yield
            return
        weights = [parameter.detach().clone() for parameter in self.model.parameters()]
        _copy(self.average, self.model)
        try:
            yield
        finally:
            _copy(weights, self.model)

    def parts(self) -> dict[str, Any]:
        """Model, optimiser, schedule and average: live tensors, not copies."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": list(self.average),
        }

    def finite(self) -> torch.Tensor:
        """Whether no number of the state is NaN or infinite: a boolean on the device, so that nobody waits for it."""
        leaves, _ = tree_flatten(self.parts())
        checks = [leaf.isfinite().all() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        device = next(self.model.parameters()).device
        return torch.stack([check.to(device) for check in checks]).all()

    def snapshot(self, seed: int, batch: int, config: dict[str, Any]) -> dict[str, Any]:
        """A copy in main memory that training no longer touches. Takes one device synchronisation."""
        copied: dict[str, Any] = tree_map(_copied, self.parts())
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        progress = vars(self.progress) | {
            "losses": list(self.progress.losses),
            "history": [dict(row) for row in self.progress.history],
        }
        return copied | {"progress": progress, "version": VERSION, "seed": seed, "batch": batch, "config": config}

    def load_model(self, saved: dict[str, Any], seed: int, batch: int) -> None:
        """Before the model is wrapped. WorkloadError where the run was another one, with its data in another order."""
        for name, now in (("seed", seed), ("batch", batch)):
            if saved[name] != now:
                raise WorkloadError(
                    f"the run was begun with {name} {saved[name]} and cannot go on with {now}: give it the same, or"
                    " begin a run of another name"
                )
        if (self.decay is not None) != bool(saved["average"]):
            raise WorkloadError("the moving average (--ema) must be on or off for the whole run: as it was begun")
        try:
            self.model.load_state_dict(saved["model"])
        except RuntimeError as error:
            raise WorkloadError(f"the checkpoint is of another model: {str(error).splitlines()[-1].strip()}") from error
        for mine, kept in zip(self.average, saved["average"], strict=True):
            mine.copy_(kept)
        progress = dict(saved["progress"])
        progress["losses"] = [(int(step), float(loss)) for step, loss in progress["losses"]]
        self.progress = Progress(**progress)

    def load_optimizer(self, saved: dict[str, Any]) -> None:
        """After the optimiser and the schedule are there."""
        self.optimizer.load_state_dict(saved["optimizer"])
        self.schedule.load_state_dict(saved["schedule"])


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Every generator, as a function of (seed, step, rank) alone: some 50 µs."""
    value = int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)  # the CUDA generators, too


def _copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.device.type == "cpu":
        return leaf.detach().clone()
    # Pinned memory takes a copy at the bus's full speed, and without waiting for it.
    room = torch.empty_like(leaf, device="cpu", pin_memory=True)
    return room.copy_(leaf.detach(), non_blocking=True)


@torch.no_grad()
def _copy(weights: list[torch.Tensor], model: nn.Module) -> None:
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        parameter.copy_(weight)
