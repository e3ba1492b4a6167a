"""A row that the driver asks for, and a rank's answer. Imports no torch: the driver needs none."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.nccl.result import RowKey


@dataclass(frozen=True)
class Timing:
    """Seconds. `per_iteration` has one value per run.

    `span` and `wall` are one region with all runs and what is not timed between them, by the device's and by the host's
    clock. `late` counts the runs in latency mode that include a part of their launch.
    """

    per_iteration: list[float]
    span: float
    wall: float
    late: int = 0

    @property
    def total(self) -> float:
        return sum(self.per_iteration)

    @property
    def mean(self) -> float:
        """Seconds per run by the device's clock."""
        return self.total / len(self.per_iteration)

    @property
    def clocks_disagree(self) -> bool:
        """Whether the device's and the host's clock differ by more than 5 % and by more than a launch.

        Only the host's time includes a launch and a wait, 50 µs.
        """
        return abs(self.wall - self.span) > max(0.05 * self.span, 50e-6)


class RowRequest(RowKey):
    """A row to measure, the same on each rank."""

    iterations: int
    warmup: int
    check: int


@dataclass(frozen=True, kw_only=True)
class RankAnswer:
    """One rank's figures of one row. `wrong` is the number of wrong elements, None if the data was not checked."""

    size: int
    count: int
    takes_part: bool
    timing: Timing
    wrong: int | None
