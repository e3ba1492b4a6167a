"""What the GPU's timing measures: a simulated stream and a host that launches slowly, instead of torch.cuda."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist

from workloads.nccl.answer import RowRequest, Timing
from workloads.nccl.device import Cuda
from workloads.nccl.driver import doubts
from workloads.nccl.kinds import COLLECTIVES, RankPosition
from workloads.nccl.loop import Loop
from workloads.nccl.operations import Operation
from workloads.nccl.presets import Mode

LAUNCH, RUN, RESTORE, TOKEN, HOLD, REPLAY = 30e-6, 5e-6, 2e-6, 3e-6, 2e-3, 4e-6
"""Seconds that the host needs to launch anything, and the device for each thing."""
RUNS = 10


@dataclass
class Stream:
    """Times of the host and of the device's only stream. A graph is the list of the steps that it captured."""

    host: float = 0.0
    device: float = 0.0
    launch: float = LAUNCH
    captured: list[Callable[[], None]] | None = None

    def do(self, seconds: float, launch: float | None = None, at_end: Callable[[], None] = lambda: None) -> None:
        """Launch work of this length, or add it to the graph that is being captured."""
        self.host += self.launch if launch is None else launch

        def step() -> None:
            self.device += seconds
            at_end()

        if self.captured is not None:
            self.captured.append(step)
        else:
            self.device = max(self.device, self.host)
            step()

    def synchronize(self, *_: object) -> None:
        self.host = max(self.host, self.device)

    @contextmanager
    def graph(self, graph: Graph, **_: object) -> Iterator[None]:
        self.captured = graph.steps
        yield
        self.captured = None


@dataclass
class Graph:
    stream: Stream
    steps: list[Callable[[], None]] = field(default_factory=list)

    def replay(self) -> None:
        self.stream.do(REPLAY)
        for step in self.steps:
            step()


@dataclass
class Event:
    stream: Stream
    external: bool
    at: float = 0.0

    def record(self) -> None:
        assert self.external == (self.stream.captured is not None)  # else it would have no time
        self.stream.do(0, 1e-6, self._pass)

    def _pass(self) -> None:
        self.at = self.stream.device

    def query(self) -> bool:
        return self.at <= self.stream.host

    def elapsed_time(self, later: Event) -> float:
        return (later.at - self.at) * 1e3


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()
    monkeypatch.setattr(Cuda, "torch_device", torch.device("cpu"))
    cuda: dict[str, Any] = {
        "set_device": lambda _device: None,
        "synchronize": stream.synchronize,
        "Event": lambda external=False, **_: Event(stream, external),
        "CUDAGraph": lambda: Graph(stream),
        "graph": stream.graph,
        "_sleep": lambda _cycles: stream.do(HOLD),
    }
    for name, double in cuda.items():
        monkeypatch.setattr(torch.cuda, name, double)
    monkeypatch.setattr(dist, "all_reduce", lambda _tensor: stream.do(TOKEN))
    monkeypatch.setattr(dist, "barrier", stream.synchronize)
    monkeypatch.setattr(time, "perf_counter", lambda: stream.host)
    return stream


def measured(stream: Stream, op: str, mode: Mode) -> Timing:
    operation = Operation(COLLECTIVES[op], RankPosition(0, 2, 2), 1024, torch.float32, torch.device("cpu"))
    operation.run = lambda: stream.do(RUN)  # type: ignore[method-assign]
    if operation.restore is not None:
        operation.restore = lambda: stream.do(RESTORE)
    runs = {"iterations": RUNS, "warmup": 1, "check": 0}
    return (
        Loop(Cuda()).measure(operation, RowRequest(op=op, variant=None, mode=mode, dtype="fp32", size=1, **runs)).timing
    )


@pytest.mark.parametrize("op", ["all_gather", "all_reduce"])
@pytest.mark.parametrize("mode", ["latency", "graph"])
def test_latency_and_graphs_time_the_device_alone(stream: Stream, op: str, mode: Mode) -> None:
    """Neither the launch from Python nor the start of a graph nor restored input is in a run's time."""
    timing = measured(stream, op, mode)
    assert timing.per_iteration == pytest.approx([RUN] * RUNS)
    assert not list(doubts(0, timing))


@pytest.mark.parametrize("op", ["all_gather", "all_reduce"])
def test_throughput_of_short_runs_is_that_of_launches(stream: Stream, op: str) -> None:
    timing = measured(stream, op, "throughput")
    assert timing.mean == pytest.approx(LAUNCH + RUN, rel=0.2)
    assert not list(doubts(0, timing))


def test_runs_that_the_host_launches_too_late_are_reported(stream: Stream) -> None:
    stream.launch = 2 * HOLD
    timing = measured(stream, "all_gather", "latency")
    assert timing.mean > HOLD
    assert f"{RUNS} of {RUNS} runs include a launch" in " ".join(doubts(0, timing))
