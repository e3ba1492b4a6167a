"""One row on one rank: verify, warm up, time, look at what the timed runs left, verify again.

All verification is outside the timed region, with the same buffers, size and algorithm. What this can see: a wrong
element in any verified run, in the last timed run, and for all_reduce in any timed run. What it cannot see: an element
that one timed run gets wrong and the next one writes over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import torch.distributed as dist

from workloads.nccl.device import Device, Timing
from workloads.nccl.faults import Planted, moment
from workloads.nccl.operation import Operation
from workloads.nccl.spec import Fault
from workloads.statistics import percentile, variation

if TYPE_CHECKING:
    from workloads.nccl.result import Mode


@dataclass(frozen=True)
class Measurement:
    """What to measure, the same on every rank. `index` is that of the operation among kinds(op); `size` in bytes."""

    op: str
    index: int
    size: int
    dtype: str
    mode: Mode
    iterations: int
    warmup: int
    check: int


class Answer(TypedDict):
    """What one rank has to say of one row: seconds per run, and the elements it received wrong (None: not checked).

    `time` is by the device's clock, `wall` by the host's; the percentiles, `max` and `cv` are those of single runs.
    """

    size: int
    count: int
    takes_part: bool
    time: float
    wall: float
    clocks_disagree: bool
    p50: float
    p95: float
    p99: float
    max: float
    cv: float
    wrong: int | None


@dataclass
class Loop:
    """The measuring loop of one rank. `stage` says where in a row it is, for whoever asks while it hangs."""

    device: Device
    fault: Fault | None = None
    stage: str = "not in a row"
    salt: int = field(default=0)  # the same on all ranks, because all of them verify equally often

    def measure(self, operation: Operation, row: Measurement) -> Answer:
        """Measure one row."""
        self.stage = "in the first verification"
        run = self._run(operation, row)
        wrong = sum(self._verify(operation, run) for _ in range(row.check))
        self.salt += 1
        operation.prepare(self.salt)
        # Right before the timed runs: filling and checking buffers leaves cold caches, and a slow first run.
        self.stage = "in the warm-up"
        for _ in range(row.warmup):
            run()
        operation.arm()
        self.stage = "in the timed runs"
        _barrier()
        if row.mode == "latency":
            timing = self.device.time_apart(run, row.iterations, _barrier)
        else:
            timing = self.device.time(run, row.iterations)
        self.stage = "in the last verification"
        if row.check:
            wrong += operation.left_wrong()
        wrong += sum(self._verify(operation, run) for _ in range(row.check))
        self.stage = "not in a row"
        return answer(operation, timing, wrong if row.check else None)

    def _run(self, operation: Operation, row: Measurement) -> Callable[[], None]:
        """What one run is: the operation's call or the replay of its graph, with the planted fault if there is one."""
        run = operation.run
        if row.mode == "graph":
            # Connections are made in the first call, which cannot be captured.
            operation.run()
            run = self.device.capture(operation.run)
        if self.fault is None or self.fault.kind == "hang":
            return run
        hits = moment(self.fault.when, self.fault.kind, row.warmup, row.check, row.iterations)
        return Planted(run, operation, self.device.synchronize, self.fault.kind, hits)

    def _verify(self, operation: Operation, run: Callable[[], None]) -> int:
        """The wrong elements of one run on new data."""
        self.salt += 1
        operation.fill(self.salt)
        # NCCL reads the buffers on the same stream that filled them; gloo reads them at once, and they are full.
        run()
        self.device.synchronize()
        return operation.wrong()


def _barrier() -> None:
    dist.barrier()


def answer(operation: Operation, timing: Timing, wrong: int | None) -> Answer:
    """The rank's answer, from the times of its runs."""
    runs = timing.per_iteration
    return {
        "size": operation.size,
        "count": operation.count,
        "takes_part": operation.takes_part,
        "time": timing.total / len(runs),
        "wall": timing.wall / len(runs),
        "clocks_disagree": timing.clocks_disagree,
        "p50": percentile(runs, 50),
        "p95": percentile(runs, 95),
        "p99": percentile(runs, 99),
        "max": max(runs),
        "cv": variation(runs),
        "wrong": wrong,
    }
