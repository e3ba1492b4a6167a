"""GPU and CPU ranks: backend, device and timing.

CUDA work is asynchronous: CUDA events on the stream that waits for the collective measure it, and the wall clock around
the synchronized region cross-checks them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds. `per_iteration` has one value per run; `wall` is the total by the host's clock in `regions` regions."""

    total: float
    per_iteration: list[float]
    wall: float
    regions: int = 1

    @property
    def mean(self) -> float:
        """Seconds per run by the device's clock."""
        return self.total / len(self.per_iteration)

    @property
    def clocks_disagree(self) -> bool:
        """Whether the device's and the host's clock differ by more than 5 % and by more than a launch.

        Only the host's time includes a launch and a wait, 50 µs per region.
        """
        return abs(self.wall - self.total) > max(0.05 * self.total, 50e-6 * self.regions)


class Cpu:
    """CPU cores, over gloo. Calls return when their data is complete."""

    backend = "gloo"
    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        # Several ranks share these cores; a thread pool per rank would oversubscribe them.
        torch.set_num_threads(1)

    name = "cpu"

    def synchronize(self) -> None:
        """Do nothing: calls are synchronous."""

    def capture(self, run: Call) -> Call:
        """Raise ValueError: a CPU has no graphs."""
        raise ValueError(f"graph mode replays CUDA graphs of {run}, and this rank has no GPU: use --mode throughput")

    def time(self, run: Call, iterations: int) -> Timing:
        """Time runs back to back."""
        return self.time_apart(run, iterations, lambda: None)

    def time_apart(self, run: Call, iterations: int, barrier: Call) -> Timing:
        """Time each run after an untimed barrier."""
        seconds = []
        for _ in range(iterations):
            barrier()
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
        return Timing(sum(seconds), seconds, wall=sum(seconds))


class Cuda:
    """One GPU, over NCCL: cuda:0, because an actor sees only its own GPUs."""

    backend = "nccl"
    torch_device = torch.device("cuda", 0)

    def __init__(self) -> None:
        # The current device is per thread.
        torch.cuda.set_device(self.torch_device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def capture(self, run: Call) -> Call:
        """Capture a run as a CUDA graph, and return its replay on the current stream, in the same buffers."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        # thread_local: torch's watchdog queries events of earlier collectives from its own thread.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
        return graph.replay

    def time(self, run: Call, iterations: int) -> Timing:
        """Time runs back to back."""
        events = [_event() for _ in range(iterations + 1)]
        self.synchronize()
        began = time.perf_counter()
        events[0].record()
        for event in events[1:]:
            # A torch.distributed call makes the current stream wait for the collective; the event comes after it.
            run()
            event.record()
        self.synchronize()
        wall = time.perf_counter() - began
        return Timing(_seconds(events[0], events[-1]), [_seconds(a, b) for a, b in pairwise(events)], wall)

    def time_apart(self, run: Call, iterations: int, barrier: Call) -> Timing:
        """Time each run on an idle device after an untimed barrier."""
        events = [(_event(), _event()) for _ in range(iterations)]
        wall = 0.0
        for before, after in events:
            barrier()
            self.synchronize()
            began = time.perf_counter()
            before.record()
            run()
            after.record()
            self.synchronize()
            wall += time.perf_counter() - began
        seconds = [_seconds(before, after) for before, after in events]
        return Timing(sum(seconds), seconds, wall, regions=iterations)


def _event() -> torch.cuda.Event:
    event: Callable[..., torch.cuda.Event] = torch.cuda.Event  # torch leaves its constructor untyped
    return event(enable_timing=True)


def _seconds(before: torch.cuda.Event, after: torch.cuda.Event) -> float:
    return float(before.elapsed_time(after)) / 1e3


Device = Cpu | Cuda
