"""What a model brings to the trainer: one loop trains every Task; a Task holds everything that is not the loop's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch
    from torch import nn

Batch: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Images and labels of one rank's share of one step, on the device."""

# A task by its name, as the specification carries it: the module's function takes the task's plain configuration.
FACTORIES = {
    "digits": "workloads.train.digits:task",
    "convnext": "workloads.train.convnext.task:task",
}


@dataclass(frozen=True)
class Share:
    """The part of a run's global batches that one rank trains on.

    Global batch number `step` (from 0, over the whole run) is a pure function of (seed, step), whatever the number of
    ranks; each rank takes `rows` of it. So a run goes on at any step, on another number of ranks, over the same data.
    `batch` counts the images of one global batch; `steps` is where the run ends (exclusive).
    """

    rank: int
    world: int
    first_step: int
    steps: int
    batch: int
    seed: int

    @property
    def rows(self) -> slice:
        """This rank's rows of a global batch. Shares differ by one row at most; the trainer weights losses by them."""
        return slice(self._first(self.rank), self._first(self.rank + 1))

    @property
    def local(self) -> int:
        """The number of this rank's rows."""
        return self._first(self.rank + 1) - self._first(self.rank)

    def _first(self, rank: int) -> int:
        return self.batch * rank // self.world


class Task(Protocol):
    """A model with its data and its loss. Built on every rank from plain data; `device` is the rank's own."""

    name: str
    flops_per_sample: float | None
    """Floating-point operations of one image, forward and backward, counted analytically; None: no MFU."""

    def check(self) -> None:
        """Raise WorkloadError where the run cannot begin (no such data set). Called on every rank, before the model."""

    def epoch_steps(self, batch: int) -> int | None:
        """Steps of one pass over the data; None where the data has no end."""

    def model(self, device: torch.device) -> nn.Module:
        """A new model on the device, in its memory format, not wrapped. The trainer has seeded the generators."""

    def prepare(self, model: nn.Module, device: torch.device) -> nn.Module:
        """What is called in the step: the model in DistributedDataParallel where there is a process group, compiled.

        DDP must not rebuild its buckets where the run has to end bit for bit as an uninterrupted one would.
        """

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of the bare model's parameters."""

    def schedule(
        self, optimizer: torch.optim.Optimizer, epoch_steps: int | None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """The learning rate as a function of the step: the trainer steps it once after every optimiser step."""

    def batches(self, share: Share, device: torch.device) -> Iterator[Batch]:
        """This rank's share of the batches first_step … steps − 1, in order."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean loss over the batch's rows (a scalar), under the task's autocast."""

    def evaluate(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Figures of the bare model over all ranks' test data, the same on every rank; {} where there is none."""

    def report(self) -> dict[str, Any]:
        """What the task knows after training, as plain data: graphs compiled, graph breaks, its configuration."""


def load(name: str, config: dict[str, Any]) -> Task:
    """The task of this name with its configuration. The module is imported here: on the cluster, not by the client."""
    module, function = FACTORIES[name].split(":")
    task: Task = getattr(import_module(module), function)(config)
    return task
