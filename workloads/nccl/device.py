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

Call = Callable[[], None]


@dataclass(frozen=True)
class Timing:
    """Seconds. `per_iteration` has one value per run; `wall` is the same by the host's clock, in `regions` pieces."""

    total: float
    per_iteration: list[float]
    wall: float
    regions: int = 1

    @property
    def clocks_disagree(self) -> bool:
        """Whether the device's clock and the host's differ by more than 5 %, and more than launches cost.

        The host's region holds a launch and a wait that the device's does not: 50 µs, for each region.
        """
        return abs(self.wall - self.total) > max(0.05 * self.total, 50e-6 * self.regions)


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

    def capture(self, run: Call) -> Call:
        """There are no graphs to capture on a CPU: ValueError."""
        raise ValueError(f"graph mode replays CUDA graphs of {run}, and this rank has no GPU: use --mode throughput")

    def time(self, run: Call, iterations: int) -> Timing:
        """`iterations` runs back to back."""
        marks = [time.perf_counter()]
        for _ in range(iterations):
            run()
            marks.append(time.perf_counter())
        total = marks[-1] - marks[0]
        return Timing(total, [b - a for a, b in pairwise(marks)], wall=total)

    def time_apart(self, run: Call, iterations: int, barrier: Call) -> Timing:
        """Each run after a barrier of its own, which is not counted."""
        seconds = []
        for _ in range(iterations):
            barrier()
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
        return Timing(sum(seconds), seconds, wall=sum(seconds))


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

    def capture(self, run: Call) -> Call:
        """One run as a CUDA graph; calling what is returned replays it on the current stream, in the same buffers."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        # thread_local: torch's watchdog asks for events of earlier collectives from a thread of its own.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
        return graph.replay

    def time(self, run: Call, iterations: int) -> Timing:
        """`iterations` runs back to back."""
        events = [_event() for _ in range(iterations + 1)]
        self.synchronize()
        began = time.perf_counter()
        events[0].record()
        for event in events[1:]:
            # A torch.distributed call makes the current stream wait for the collective: the event stands behind it.
            run()
            event.record()
        self.synchronize()
        wall = time.perf_counter() - began
        return Timing(_seconds(events[0], events[-1]), [_seconds(a, b) for a, b in pairwise(events)], wall)

    def time_apart(self, run: Call, iterations: int, barrier: Call) -> Timing:
        """Each run after a barrier of its own, which is not counted; the device is idle when the run begins."""
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


def pick(use_gpu: bool) -> Device:
    return Cuda() if use_gpu else Cpu()
