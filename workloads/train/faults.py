"""Faults to order, so that what a run survives can be tried: `--inject-fault kill:RANK:STEP` and others.

kill:RANK:STEP  the rank's process is killed before it trains step STEP
nan:STEP        the loss of step STEP is NaN
disk:STEP       from step STEP on a checkpoint finds the disk full
gradient:RANK   the rank's gradients are changed behind DDP's back
Each kill happens once in a run's life: the run's folder remembers it. A result tells that a fault was injected.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from workloads.exits import WorkloadError
from workloads.train.checkpoints import Folder

KINDS = {"kill": 2, "nan": 1, "disk": 1, "gradient": 1}


@dataclass(frozen=True)
class Fault:
    """A fault as the option writes it, taken apart."""

    kind: str
    numbers: tuple[int, ...]

    @staticmethod
    def parse(text: str) -> Fault:
        """WorkloadError where there is no such fault."""
        kind, *numbers = text.split(":")
        if KINDS.get(kind) != len(numbers) or not all(number.isdecimal() for number in numbers):
            raise WorkloadError(
                f"--inject-fault {text}: use kill:RANK:STEP, nan:STEP, disk:STEP or gradient:RANK, with numbers"
            )
        return Fault(kind, tuple(int(number) for number in numbers))


class Faults:
    """What the trainer asks at each of its turns; without a fault it answers that there is none."""

    def __init__(self, text: str | None, rank: int, folder: Folder) -> None:
        self.fault = Fault.parse(text) if text else None
        self.rank = rank
        self.folder = FullFolder(folder, self._numbers()[0]) if self._is("disk") else folder

    def before_step(self, step: int) -> None:
        """Kill this process where it is its turn."""
        if self._is("kill") and self._numbers() == (self.rank, step) and "killed" not in self.folder.names():
            self.folder.write("killed", f"rank {self.rank} before step {step}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def loss(self, loss: torch.Tensor, step: int) -> torch.Tensor:
        """The loss, or NaN where it is its turn."""
        return loss * float("nan") if self._is("nan") and self._numbers() == (step,) else loss

    def gradients(self, model: nn.Module) -> None:
        """Change one rank's gradients, after they were reduced."""
        if self._is("gradient") and self._numbers() == (self.rank,):
            next(p.grad for p in model.parameters() if p.grad is not None).add_(1)

    def _is(self, kind: str) -> bool:
        return self.fault is not None and self.fault.kind == kind

    def _numbers(self) -> tuple[int, ...]:
        return self.fault.numbers if self.fault else ()


class FullFolder(Folder):
    """A folder on a disk that is full from a step on: half of a state is written, then there is no room."""

    def __init__(self, folder: Folder, first_step: int) -> None:
        vars(self).update(vars(folder))
        self.first_step = first_step

    def write(self, name: str, content: bytes | dict[str, Any]) -> None:
        if isinstance(content, dict) and content["progress"]["step"] >= self.first_step:
            super().write(f"{name}.unfinished", b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(name, content)
