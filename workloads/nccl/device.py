"""GPU and CPU ranks: backend, device and timing.

CUDA work is asynchronous: CUDA events on the stream that waits for the collective measure it, and the wall clock around
the synchronized region cross-checks them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from workloads.nccl.answer import Timing
from workloads.nccl.presets import Mode

Call = Callable[[], object]
HOLD_CYCLES = 2**22
"""SM cycles, about 2 ms: longer than Python takes to launch an operation, with all sends and receives of an incast."""


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

    def time(self, run: Call, iterations: int, mode: Mode = "throughput", restore: Call | None = None) -> Timing:
        """Time runs back to back; in latency mode and after `restore`, each after a barrier. Neither is timed."""
        if mode == "graph":
            raise ValueError("graph mode replays CUDA graphs, but this rank has no GPU: use --mode throughput")
        seconds = []
        for _ in range(iterations):
            if restore is not None:
                restore()
            if mode == "latency" or restore is not None:
                dist.barrier()
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
        return Timing(seconds, span=sum(seconds), wall=sum(seconds))


class Cuda:
    """One GPU, over NCCL: cuda:0, because an actor sees only its own GPUs."""

    backend = "nccl"
    torch_device = torch.device("cuda", 0)

    def __init__(self) -> None:
        # The current device is per thread.
        torch.cuda.set_device(self.torch_device)
        self.token = torch.zeros(1, device=self.torch_device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def time(self, run: Call, iterations: int, mode: Mode = "throughput", restore: Call | None = None) -> Timing:
        """Time runs by CUDA events. `restore`, which takes its own time on each rank, is not timed.

        throughput: back to back, so that a short run takes as long as its launch from Python.
        latency: each run is in the stream before the device reaches it, and all ranks start it together.
        graph: all runs and their events are one CUDA graph, replayed once, as in nccl-tests (-G, src/common.cu).
        """
        graph, latency = mode == "graph", mode == "latency"
        unused = [_event(graph) for _ in range(2 * iterations + 1)]
        events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        late = 0

        def mark() -> torch.cuda.Event:
            event = unused.pop()
            event.record()
            return event

        def region() -> None:
            nonlocal late
            after = mark()
            for _ in range(iterations):
                if restore is not None:
                    restore()
                if latency:
                    self._hold()
                if latency or restore is not None:
                    self._align()
                    after = mark()
                before = after
                # A torch.distributed call makes the current stream wait for the collective; the event comes after it.
                run()
                after = mark()
                events.append((before, after))
                # The device was faster than the host: this run's time includes a part of its launch.
                query: Callable[[], bool] = before.query  # untyped in torch
                late += latency and query()

        go = self._capture(region) if graph else region
        start, end = _event(), _event()
        self.synchronize()
        began = time.perf_counter()
        start.record()
        if graph:
            self._hold()
            self._align()
        go()
        end.record()
        self.synchronize()
        wall = time.perf_counter() - began
        return Timing([_seconds(before, after) for before, after in events], _seconds(start, end), wall, late)

    def _hold(self) -> None:
        """Hold the stream while the host fills it."""
        self.synchronize()
        sleep: Callable[[int], None] = torch.cuda._sleep  # untyped in torch, whose own tests fill streams with it
        sleep(HOLD_CYCLES)

    def _align(self) -> None:
        """Let what follows in the stream start on all ranks at the same time; dist.barrier would block the host."""
        dist.all_reduce(self.token)

    def _capture(self, region: Call) -> Call:
        """Capture a region as a CUDA graph, and return its replay on the current stream, in the same buffers."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        # thread_local: torch's watchdog queries events of earlier collectives from its own thread.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            region()
        return graph.replay


def _event(in_graph: bool = False) -> torch.cuda.Event:
    """Return an event with a time. In a graph it has to be external (torch 2.9, pytorch#155372)."""
    event: Callable[..., torch.cuda.Event] = torch.cuda.Event  # torch leaves its constructor untyped
    return event(enable_timing=True, external=True) if in_graph else event(enable_timing=True)


def _seconds(before: torch.cuda.Event, after: torch.cuda.Event) -> float:
    return float(before.elapsed_time(after)) / 1e3


Device = Cpu | Cuda
