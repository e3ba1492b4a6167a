"""Ranks of the trainer as processes of this machine, on gloo and without Ray: a start takes a second."""

from __future__ import annotations

import multiprocessing
import socket
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from tests.workloads.gloo_ranks import PRELOADED
from tests.workloads.tiny_task import TinyOptions
from workloads.exits import WorkloadError
from workloads.train import task, trainer
from workloads.train.place import Place
from workloads.train.result import Record

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(PRELOADED))


def specification(storage: Path, name: str, **options: Any) -> TinyOptions:
    """Return a run of the tiny task. `{rank}` in the storage's path becomes the rank's number: a folder of its own."""
    chosen = {"global_batch": 12, "steps": 30, "look_every": 5, "workers": 1, "wait": 30} | options
    return TinyOptions(name=name, checkpoint_dir=str(storage), **chosen)


def run(spec: TinyOptions, world: int, preempted: bool = False, submitted: float | None = None) -> list[Record | str]:
    """Train on `world` ranks, and return each one's record, or what ended it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends = [CONTEXT.Pipe(duplex=False) for _ in range(world)]
    processes = [
        CONTEXT.Process(
            target=_rank, args=(rank, world, port, spec.model_dump_json(), preempted, submitted, ends[rank][1])
        )
        for rank in range(world)
    ]
    for process, (_, sender) in zip(processes, ends, strict=True):
        process.start()
        sender.close()
    outcomes: list[Record | str] = []
    try:
        for process, (receiver, _) in zip(processes, ends, strict=True):
            try:
                outcomes.append(receiver.recv() if receiver.poll(300) else "silent")
            except EOFError:
                process.join(60)
                outcomes.append(f"exit {process.exitcode}")
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    return outcomes


def record(spec: TinyOptions, world: int, preempted: bool = False, submitted: float | None = None) -> Record:
    """Return rank 0's record of a run that no rank broke off."""
    outcomes = run(spec, world, preempted, submitted)
    assert all(isinstance(outcome, Record) for outcome in outcomes), outcomes
    assert isinstance(outcomes[0], Record)
    return outcomes[0]


def _rank(
    rank: int, world: int, port: int, spec: str, preempted: bool, submitted: float | None, sender: Connection[Any, Any]
) -> None:
    task.FACTORIES["tiny"] = "tests.workloads.tiny_task:TinyTask"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    began = time.time()

    def warning() -> Any:
        return SimpleNamespace(deadline_ms=1000 * (began + 100), preempted_ranks=[1]) if preempted else None

    place = replace(Place(rank, world, torch.device("cpu")), warning=warning)
    try:
        options = TinyOptions.model_validate_json(spec.replace("{rank}", str(rank)))
        sender.send(trainer.train(options.model_copy(update={"submitted": submitted or began}), place, began))
    except (RuntimeError, WorkloadError) as error:
        sender.send(f"broke off: {str(error).splitlines()[0]}")
    dist.destroy_process_group()
