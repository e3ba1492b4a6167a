"""Injected faults, to test which of them a run survives: `--inject-fault kill:RANK:STEP` and others.

kill:RANK:STEP  the rank's process is killed before it trains step STEP
nan:STEP        the loss of step STEP is NaN
disk:STEP       from step STEP on a checkpoint finds the disk full
gradient:RANK   the rank's gradients are changed after their reduction
A kill happens once per run: the run's folder records it. The result names the injected fault.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workloads.exits import WorkloadError
from workloads.train.checkpoints import Hashed, RunFolder, label_of

if TYPE_CHECKING:
    import torch
    from torch import nn

KINDS = {"kill": 2, "nan": 1, "disk": 1, "gradient": 1}


def parse(text: str) -> tuple[str | int, ...]:
    """Return kind and numbers of a fault. WorkloadError if there is no such fault."""
    kind, *numbers = text.split(":")
    if KINDS.get(kind) != len(numbers) or not all(number.isdecimal() for number in numbers):
        raise WorkloadError(
            f"--inject-fault {text}: use kill:RANK:STEP, nan:STEP, disk:STEP or gradient:RANK, with numbers"
        )
    return kind, *map(int, numbers)


class Faults:
    """Injects the fault, if there is one, where the trainer calls it."""

    def __init__(self, text: str | None, rank: int, folder: RunFolder) -> None:
        self.fault = parse(text) if text else ()
        self.rank = rank
        self.folder = FullFolder(folder, int(self.fault[1])) if "disk" in self.fault else folder

    def before_step(self, step: int, written: Callable[[], None]) -> None:
        """Kill this process if the fault is for this rank and step.

        `written` waits until its share of the last checkpoint is written, so that a test knows where the run resumes.
        """
        if self.fault == ("kill", self.rank, step) and "killed" not in self.folder.names():
            written()
            self.folder.write("killed", f"rank {self.rank} before step {step}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def loss(self, loss: torch.Tensor, step: int) -> torch.Tensor:
        """Return the loss, or NaN if the fault is for this step."""
        return loss * float("nan") if self.fault == ("nan", step) else loss

    def gradients(self, model: nn.Module) -> None:
        """Change one rank's gradients after their reduction."""
        if self.fault == ("gradient", self.rank):
            next(p.grad for p in model.parameters() if p.grad is not None).add_(1)


class FullFolder(RunFolder):
    """Folder on a disk that is full from a step on: half of a file is written, then the write fails."""

    def __init__(self, folder: RunFolder, first_step: int) -> None:
        vars(self).update(vars(folder))
        self.first = label_of(first_step)

    @contextmanager
    def create(self, name: str) -> Iterator[Hashed]:
        with super().create(name) as stream:
            if name.startswith("step-") and name >= self.first:
                stream.write(b"half of it")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield stream
