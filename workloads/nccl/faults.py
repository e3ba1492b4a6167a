"""Planted faults: what shows that verification would see real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workloads.nccl.operation import Operation
from workloads.nccl.pattern import flip


@dataclass
class Planted:
    """An operation's run with a fault in the calls that `hits` picks by number, counted from 0.

    `corrupt` flips one bit of the received element at `position` (counted from the end where negative) after the call;
    `stale` puts back what the receive buffers held before it.
    """

    run: Callable[[], None]
    operation: Operation
    synchronize: Callable[[], None]
    kind: str
    hits: Callable[[int], bool]
    position: int = 0
    calls: int = 0

    def __call__(self) -> None:
        hit = self.hits(self.calls)
        self.calls += 1
        if not hit:
            self.run()
            return
        buffers = [check.got for check in self.operation.checks() if check.got.numel()]
        kept = [buffer.clone() for buffer in buffers] if self.kind == "stale" else []
        self.run()
        self.synchronize()
        for buffer, before in zip(buffers, kept, strict=False):
            buffer.copy_(before)
        if self.kind == "corrupt" and buffers:
            flip(buffers[0], self.position)


def moment(when: str | None, kind: str, warmup: int, check: int, iterations: int) -> Callable[[int], bool]:
    """Which calls of a row are hit: `before`, `timed` and `after` as in spec.Fault, None for all three."""
    timed = check + warmup
    after = timed + iterations
    times = {
        "before": range(check),
        # The next timed run writes over a corrupt element, and stale data of the run before is the same data.
        "timed": range(timed if kind == "stale" else after - 1, after),
        "after": range(after, after + check),
    }
    chosen = [times[when]] if when else list(times.values())
    return lambda call: any(call in calls for calls in chosen)
