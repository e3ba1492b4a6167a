"""What differs between a GPU rank and a CPU rank: the backend, the device, and how time is taken.

CUDA work is asynchronous, so that its time is taken by events on the stream that waits for the collective, and
cross-checked against the wall clock around the synchronised region.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds. `per_iteration` has one value per run; `wall` is the same region by the host's clock."""

    total: float
    per_iteration: list[float]
    wall: float

    @property
    def clocks_disagree(self) -> bool:
        """Whether the device's clock and the host's differ by more than 5 % (and more than a launch costs, 50 µs)."""
        return abs(self.wall - self.total) > max(0.05 * self.total, 50e-6)


class Cpu:
    """A rank on CPU cores, over gloo. Calls return when their data is there."""

    backend = "gloo"
    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        # Several ranks share these cores; a thread pool per rank would only make them fight.
        torch.set_num_threads(1)

    @property
    def name(self) -> str:
        return "cpu"

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def time(self, run: Callable[[], None], iterations: int) -> Timing:
        marks = [time.perf_counter()]
        for _ in range(iterations):
            run()
            marks.append(time.perf_counter())
        total = marks[-1] - marks[0]
        return Timing(total, [b - a for a, b in pairwise(marks)], wall=total)


class Cuda:
    """A rank on one GPU, over NCCL. Ray shows an actor only its own GPU, so that it is always cuda:0."""

    backend = "nccl"
    torch_device = torch.device("cuda", 0)

    def __init__(self) -> None:
        # Once per thread: the current device belongs to the thread that asks.
        torch.cuda.set_device(self.torch_device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def time(self, run: Callable[[], None], iterations: int) -> Timing:
        event_on_stream: Callable[..., torch.cuda.Event] = torch.cuda.Event  # torch leaves its constructor untyped
        events = [event_on_stream(enable_timing=True) for _ in range(iterations + 1)]
        self.synchronize()
        began = time.perf_counter()
        events[0].record()
        for event in events[1:]:
            # A torch.distributed call makes the current stream wait for the collective: the event stands behind it.
            run()
            event.record()
        self.synchronize()
        wall = time.perf_counter() - began
        milliseconds = [a.elapsed_time(b) for a, b in pairwise(events)]
        return Timing(events[0].elapsed_time(events[-1]) / 1e3, [ms / 1e3 for ms in milliseconds], wall)


Device = Cpu | Cuda


def pick(use_gpu: bool) -> Device:
    return Cuda() if use_gpu else Cpu()
