"""Run a function on several gloo ranks: real processes on this machine, without Ray."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from typing import Any, TypeVar

from infra.local.loopback import free_ports

Found = TypeVar("Found")

PRELOADED = ("torch._dynamo", "torch.distributed", "workloads.train.trainer")
"""Imports of the fork server, the one process that all ranks are forked from. Without them, every rank would import the
modules itself, such as torch._dynamo for its optimizer (2 s of CPU time, 6 s if Python may not write .pyc files)."""


def on_ranks(function: Callable[..., Found], world: int, *arguments: Any, timeout_s: float = 600) -> list[Found]:
    """Call `function(rank, world, *arguments)` on `world` ranks of one process group. Returns the results by rank.

    The ranks are forks of one process that has imported torch, and end with this call.

    Raises:
        TimeoutError: The ranks did not end in time. What a rank raises is raised too.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    (port,) = free_ports(1)
    pool = ProcessPoolExecutor(world, mp_context=context)
    try:
        calls = [pool.submit(_rank, function, rank, world, port, timeout_s, arguments) for rank in range(world)]
        return [call.result(timeout_s) for call in calls]
    finally:
        # Ranks that wait for a failed rank would wait for their own timeout.
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()


def _rank(function: Callable[..., Found], rank: int, world: int, port: int, timeout_s: float, arguments: Any) -> Found:
    import os

    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

    from workloads.rendezvous import interface_of

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = interface_of("127.0.0.1") or "lo"
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, timeout=timedelta(seconds=timeout_s))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s))
    try:
        return function(rank, world, *arguments)
    finally:
        dist.destroy_process_group()
