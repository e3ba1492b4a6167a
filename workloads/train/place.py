"""Place of a rank: its number and device, its collectives with the other ranks, and notices of preemption."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]  # public, yet not among its typed exports
    PrefixStore,
    rendezvous,
)

from workloads.exits import WorkloadError
from workloads.rendezvous import connect, open_store, own_address, publish_rank, select_interface

if TYPE_CHECKING:
    from ray.train import PreemptionInfo

POLL_S = 5.0
"""Ray Train's watcher polls for drained nodes this often (ray.train, RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S)."""
PATIENCE_S = 1800.0
"""A collective that takes longer is a failure (ray.train.torch.TorchConfig, 2.60: timeout_s)."""
MARGIN_S, MARGIN_SHARE = 300.0, 0.1
"""A run ends this long before its nodes are reclaimed: five minutes, or a tenth of a short run's time."""

T = TypeVar("T")


@dataclass(frozen=True)
class TrainerRank:
    """A rank among `world`, in torch's process group.

    `warning` and `report` are barriers of Ray Train: all ranks call them equally often.
    """

    rank: int
    world: int
    device: torch.device
    node_id: str = ""
    warning: Callable[[], PreemptionInfo | None] = lambda: None
    report: Callable[[dict[str, float]], None] = lambda _metrics: None

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def gpu_properties(self) -> list[Any]:
        """Return torch's properties of this rank's GPU, in a list that is empty without one."""
        return [torch.cuda.get_device_properties(self.device)] if self.device.type == "cuda" else []

    def sums(self, values: torch.Tensor) -> list[float]:
        """Return the values (float64, on the device) summed over all ranks. Waits for the device."""
        return summed(values)

    def most(self, value: float) -> float:
        """Return the maximum of all ranks' values."""
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value (plain data), by rank."""
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def together(self, call: Callable[[], T]) -> T:
        """Return what `call` returns on this rank. A WorkloadError on any rank (its node has no data) is raised on all.

        No rank may wait for one that has left.
        """
        result, broken = None, ""
        try:
            result = call()
        except WorkloadError as error:
            broken = str(error)
        errors = [(rank, text) for rank, text in enumerate(self.gather(broken)) if text]
        if result is None or errors:
            rank, text = errors[0]
            alone = f"rank {rank} on {self.gather(socket.gethostname())[rank]}: " if len(errors) < self.world else ""
            raise WorkloadError(alone + text)
        return result

    def differing(self, checksums: torch.Tensor) -> list[int]:
        """Return the indexes of the integers that differ between ranks."""
        least, most = checksums.clone(), checksums.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return [int(index) for index in (least != most).nonzero().flatten().tolist()]


def summed(counts: torch.Tensor) -> list[float]:
    """Return counts summed over all ranks. Pass float64, in which they are exact."""
    if dist.is_initialized():
        dist.all_reduce(counts)
    return [float(count) for count in counts.tolist()]


def in_ray_train(use_gpu: bool) -> TrainerRank:
    """Join the process group of the workers of Ray Train, and return this worker's place.

    Ray's own backend for torch does the same, and imports torch in the driver and in the controller before the workers
    start (ray.train.torch, 2.60), which delays the first step by seconds.
    """
    import ray
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    own = own_address()
    select_interface(own)
    store = open_store(own, PATIENCE_S) if rank == 0 else None
    address, port = broadcast_from_rank_zero((own, int(store.port)) if store else ("", 0))
    publish_rank(rank, world, address, port)
    # A worker sees no GPU but its own.
    device = _join(
        0 if use_gpu else None, store=store or connect(address, port, PATIENCE_S), rank=rank, world_size=world
    )
    watched = os.environ.get("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER") != "0"
    return TrainerRank(
        rank=rank,
        world=world,
        device=device,
        node_id=ray.get_runtime_context().get_node_id(),
        warning=ray.train.get_preemption_info if watched else lambda: None,
        report=lambda metrics: ray.train.report(metrics),
    )


def in_torchrun() -> TrainerRank:
    """Join the process group that torchrun's variables name (or an equal launcher's), and return this rank's place.

    Ray Train's restarts and notices of preemption are absent: torchrun, or what started it, ends and starts ranks.
    """
    variables = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in variables if name not in os.environ]:
        raise WorkloadError(
            f"no {', '.join(missing)} in the environment: start the ranks with torchrun, as in: torchrun"
            " --nproc-per-node 2 -m workloads.train gpt --checkpoint-dir /shared/train"
        )
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if gpus > 1 and local >= gpus:
        raise WorkloadError(
            f"local rank {local} on {socket.gethostname()}, which has {gpus} GPUs: start a rank per GPU"
        )
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the address from which this node reaches the first one.
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        select_interface(probe.getsockname()[0])
    store, rank, world = next(rendezvous("env://", timeout=timedelta(seconds=PATIENCE_S)))
    # torchrun's own store outlives the ranks of a failed attempt, whose keys would mislead those of the next one
    # (torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py, 2.15).
    own = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    # One GPU of a rank's own, as Slurm gives it, is number 0.
    device = _join(local % gpus if gpus else None, store=own, rank=rank, world_size=world)
    return TrainerRank(rank=rank, world=world, device=device)


def _join(gpu: int | None, **meeting: Any) -> torch.device:
    """Initialize the process group, and return this rank's device."""
    device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
    if gpu is not None:
        torch.cuda.set_device(device)
    backend = "gloo" if gpu is None else "nccl"
    dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE_S), **meeting)
    return device


@dataclass(frozen=True)
class Leave:
    """Reason to write a checkpoint and end now. `preempted`: the run continues immediately on other nodes."""

    reason: str
    preempted: bool


class Watch:
    """Watches for preemption and the time limit, at every look. Sums over ranks make all ranks agree."""

    def __init__(self, place: TrainerRank, submitted: float, max_run: float | None, name: str) -> None:
        self.place, self.name, self.max_run = place, name, max_run
        seconds = 3600 * (max_run or math.inf)
        self.deadline = submitted + seconds - min(MARGIN_S, MARGIN_SHARE * seconds)
        self.polled = 0.0

    def flags(self) -> tuple[float, float]:
        """Return this rank's part of the sum: whether its time is up, and whether to poll for preemptions."""
        if self.place.rank != 0:
            return 0.0, 0.0
        now = time.time()
        return float(now >= self.deadline), float(now - self.polled >= POLL_S)

    def leave(self, time_is_up: float, poll: float) -> Leave | None:
        """Return why to end the run now, or None. All ranks pass the same sums."""
        if time_is_up:
            return Leave(
                f"the nodes' time of {self.max_run:g} h (--max-run) is almost over: the run stopped with a checkpoint;"
                f" continue with --resume {self.name}",
                preempted=False,
            )
        if poll:
            self.polled = time.time()
            if (notice := self.place.warning()) is not None:
                deadline = notice.deadline_ms
                left = "" if deadline is None else f" in {max(0.0, deadline / 1e3 - time.time()):.0f} s"
                return Leave(f"the nodes of ranks {notice.preempted_ranks} are preempted{left}", preempted=True)
        return None
