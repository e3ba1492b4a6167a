"""A checkpoint as `rdma-ray train digits` writes it, without Ray Train."""

from __future__ import annotations

from pathlib import Path

import torch

from workloads.train import shards
from workloads.train.checkpoints import RunFolder, label_of
from workloads.train.data.source import RankShare
from workloads.train.digits import DigitsTask
from workloads.train.options import DigitsOptions
from workloads.train.state import TrainState


def trained(storage: Path, steps: int) -> DigitsTask:
    """Train for so many steps, write the checkpoint of the run `digits`, and return the task."""
    task, cpu = DigitsTask(DigitsOptions()), torch.device("cpu")
    torch.manual_seed(0)
    state = TrainState(task.model(cpu), None)
    state.optimizer = task.optimizer(state.model)
    state.schedule = task.schedule(state.optimizer, max(1, steps))
    share = RankShare(rank=0, world=1, first_step=0, steps=steps, batch=128, seed=0)
    for batch in task.data.batches(share, cpu):
        state.optimizer.zero_grad()
        torch.autograd.backward(task.loss(state.model, batch))
        state.optimizer.step()
        state.progress.step += 1
    shards.save(RunFolder(str(storage), "digits"), label_of(steps), state.snapshot({"seed": 0, "batch": 128}), keep=1)
    return task
