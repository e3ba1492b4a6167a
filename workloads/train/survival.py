"""What takes machines away from a run, and how the ranks agree to write a checkpoint just in time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from workloads.train.place import Place

POLL_S = 5.0
"""Ray Train's watcher asks for drained nodes this often (ray.train, RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S)."""
MARGIN_S = 300.0
MARGIN_SHARE = 0.1
"""A run ends this long before its machines do: five minutes, or a tenth of a short run's time."""


@dataclass(frozen=True)
class Leave:
    """Why the run has to write a checkpoint and end now; `preempted`: to go on at once on other machines."""

    reason: str
    preempted: bool


class Watch:
    """Asked at every look, on every rank: the ranks' answers are added up, so that all of them do the same."""

    def __init__(self, place: Place, submitted: float, max_run_s: float | None, name: str) -> None:
        self.place, self.name, self.max_run_s = place, name, max_run_s
        self.deadline = None if max_run_s is None else submitted + max_run_s - margin(max_run_s)
        self.asked = 0.0

    def flags(self) -> tuple[float, float]:
        """This rank's part of the sum: whether its time is up, and whether it is time to ask for preemptions."""
        if self.place.rank != 0:
            return 0.0, 0.0
        now = time.time()
        return float(self.deadline is not None and now >= self.deadline), float(now - self.asked >= POLL_S)

    def leave(self, time_is_up: float, ask: float) -> Leave | None:
        """What to do, from the sums over all ranks. Every rank calls it with the same sums."""
        if time_is_up:
            assert self.max_run_s is not None
            return Leave(
                f"the machines' time of {self.max_run_s / 3600:g} h (--max-run) is nearly over: the run stopped with a"
                f" checkpoint; go on with --resume {self.name}",
                preempted=False,
            )
        if ask:
            self.asked = time.time()
            if (notice := self.place.warning()) is not None:
                deadline, ranks = notice
                left = "" if deadline is None else f" in {max(0.0, deadline - time.time()):.0f} s"
                return Leave(f"the machines of ranks {ranks} go away{left}", preempted=True)
        return None


def margin(max_run_s: float) -> float:
    """How long before the end of the machines' time a run ends."""
    return min(MARGIN_S, MARGIN_SHARE * max_run_s)
