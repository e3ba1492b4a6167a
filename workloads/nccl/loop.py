"""One row on one rank: verify, warm up, time, check the result of the timed runs, verify again.

All verification is outside the timed region, with the same buffers, size and algorithm. It detects a wrong element in
any verified run and in the last timed run. It does not detect an element that one timed run gets wrong and the next one
overwrites.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch.distributed as dist

from workloads.nccl.answer import RankAnswer, RowRequest
from workloads.nccl.device import Call, Device
from workloads.nccl.operations import Operation
from workloads.nccl.options import Fault
from workloads.nccl.pattern import flip


def faulty(
    run: Call, operation: Operation, kind: str, hits: Callable[[int], bool], position: int = 0
) -> Callable[[], None]:
    """Return an operation's run with a fault in the calls for which `hits` is true; calls count from 0.

    `corrupt` flips one bit of the received element at `position` (from the end if negative) after the call; `stale`
    restores the receive buffers' previous content.
    """

    calls = count()

    def call() -> None:
        if not hits(next(calls)):
            run()
            return
        buffers = [buffer for buffer, _ in operation.checks()]
        kept = [buffer.clone() for buffer in buffers] if kind == "stale" else []
        run()  # the stream or, over gloo, the host has waited for it when the next line runs
        for buffer, before in zip(buffers, kept, strict=False):
            buffer.copy_(before)
        if kind == "corrupt" and buffers:
            flip(buffers[0], position)

    return call


def faulty_calls(when: str | None, kind: str, warmup: int, check: int, iterations: int) -> Callable[[int], bool]:
    """Return which calls of a row have the fault; `when` as in options.Fault."""
    timed = check + warmup
    after = timed + iterations
    times = {
        "before": range(check),
        # The next timed run overwrites a corrupt element, and the previous run's data equals a stale one's.
        "timed": range(timed if kind == "stale" else after - 1, after),
        "after": range(after, after + check),
    }
    chosen = [times[when]] if when else list(times.values())
    return lambda call: any(call in calls for calls in chosen)


@dataclass
class Loop:
    """The measuring loop of one rank. `stage` is its position in a row, for reports of a hang."""

    device: Device
    fault: Fault | None = None
    stage: str = "not in a row"
    salt: int = 0  # the same on all ranks, because all of them verify equally often

    def measure(self, operation: Operation, row: RowRequest) -> RankAnswer:
        """Measure one row."""
        self.stage = "in the first verification"
        run = self._run(operation, row)
        wrong = sum(self._verify(operation, run) for _ in range(row.check))
        self.salt += 1
        operation.fill(self.salt)
        # Directly before the timed runs: filling and checking buffers leaves cold caches, and a slow first run.
        self.stage = "in the warm-up"
        for _ in range(row.warmup):
            if operation.restore is not None:
                operation.restore()
            run()
        operation.arm()
        self.stage = "in the timed runs"
        dist.barrier()
        timing = self.device.time(run, row.iterations, row.mode, operation.restore)
        self.stage = "in the last verification"
        if row.check:
            wrong += operation.wrong()
        wrong += sum(self._verify(operation, run) for _ in range(row.check))
        self.stage = "not in a row"
        return RankAnswer(
            size=operation.size,
            count=operation.count,
            takes_part=operation.takes_part,
            timing=timing,
            wrong=wrong if row.check else None,
        )

    def _run(self, operation: Operation, row: RowRequest) -> Call:
        """Return the operation's call, with the injected fault if there is one."""
        if row.mode == "graph":
            # The first call opens connections, which cannot be captured.
            operation.run()
        if self.fault is None or self.fault.kind == "hang":
            return operation.run
        hits = faulty_calls(self.fault.when, self.fault.kind, row.warmup, row.check, row.iterations)
        return faulty(operation.run, operation, self.fault.kind, hits)

    def _verify(self, operation: Operation, run: Call) -> int:
        """Return the number of wrong elements of one run on new data."""
        self.salt += 1
        operation.fill(self.salt)
        # NCCL reads the buffers on the stream that filled them; gloo reads them immediately, and they are complete.
        run()
        self.device.synchronize()
        return operation.wrong()
