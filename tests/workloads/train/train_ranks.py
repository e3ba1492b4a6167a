"""Ranks of the trainer as processes of this machine, on gloo and without Ray: a start takes a second."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from infra.local.loopback import free_ports
from tests.workloads.gloo_ranks import PRELOADED
from tests.workloads.train.tiny_task import TinyOptions
from workloads.train import task, trainer
from workloads.train.place import TrainerRank
from workloads.train.result import Record

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(list(PRELOADED))


def specification(storage: Path, name: str, **options: Any) -> TinyOptions:
    """Return a run of the tiny task. `{rank}` in the storage's path becomes the rank's number: a folder of its own."""
    chosen = {"global_batch": 12, "steps": 30, "look_every": 5, "workers": 1, "wait": 30} | options
    return TinyOptions(name=name, checkpoint_dir=str(storage), **chosen)


def run(spec: TinyOptions, world: int, **start: Any) -> list[Record | BaseException]:
    """Train on `world` ranks, and return each one's record, or what ended it. `start`: see `_rank`."""
    [port] = free_ports(1)
    with ExitStack() as pools:
        # A pool for each rank: the end of a process ends its whole pool.
        ranks = [pools.enter_context(ProcessPoolExecutor(1, CONTEXT)) for _ in range(world)]
        asked = spec.model_dump_json()
        calls = [pool.submit(_rank, rank, world, port, asked, **start) for rank, pool in enumerate(ranks)]
        return [call.exception() or call.result() for call in calls]


def record(spec: TinyOptions, world: int, **start: Any) -> Record:
    """Return rank 0's record of a run that no rank broke off."""
    outcomes = [outcome for outcome in run(spec, world, **start) if isinstance(outcome, Record)]
    assert len(outcomes) == world
    return outcomes[0]


def _rank(
    rank: int, world: int, port: int, spec: str, preempted: bool = False, submitted: float | None = None
) -> Record:
    """Train on this rank. `preempted`: Ray announces the end of rank 1's node; `submitted`: now by default."""
    task.FACTORIES["tiny"] = "tests.workloads.train.tiny_task:TinyTask"
    address, timeout = f"tcp://127.0.0.1:{port}", timedelta(seconds=300)
    dist.init_process_group("gloo", address, timeout, rank=rank, world_size=world)
    began = time.time()
    notice: Any = SimpleNamespace(deadline_ms=1000 * (began + 100), preempted_ranks=[1]) if preempted else None
    place = replace(TrainerRank(rank, world, torch.device("cpu")), warning=lambda: notice)
    options = TinyOptions.model_validate_json(spec.replace("{rank}", str(rank)))
    try:
        return trainer.train(options.model_copy(update={"submitted": submitted or began}), place, began)
    finally:
        dist.destroy_process_group()  # else the other ranks would wait for one that has left
