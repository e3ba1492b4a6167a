"""Step times on the device, without waiting for it at every step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Timer:
    """Times steps from the end of one to the end of the next; `settle` turns what was recorded on a GPU into seconds.

    `step_s` and `wait_s` are whole after `settle`. `pauses` are seconds by kind, in no step's time.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.step_s: list[float] = []
        self.wait_s: list[float] = []
        self.pauses: dict[str, float] = {}
        self.marks: list[tuple[Any, Any]] = []
        self.before: Any = None
        self.start()

    def start(self) -> None:
        """The next step begins now."""
        self.before = self._mark()

    def step(self, wait_s: float) -> None:
        """A step has ended, as far as this thread is concerned."""
        now = self._mark()
        self.marks.append((self.before, now))
        self.wait_s.append(wait_s)
        self.before = now

    def settle(self) -> None:
        """Seconds from marks. On a GPU, only after the thread has waited for the device."""
        for before, after in self.marks:
            self.step_s.append(before.elapsed_time(after) / 1e3 if self.cuda else after - before)
        self.marks.clear()

    @contextmanager
    def pause(self, kind: str) -> Iterator[None]:
        """Time that belongs to no step: a checkpoint, an evaluation."""
        began = time.perf_counter()
        yield
        self.pauses[kind] = self.pauses.get(kind, 0.0) + time.perf_counter() - began
        self.start()

    def _mark(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        make: Any = torch.cuda.Event  # untyped in torch
        event = make(enable_timing=True)
        event.record()
        return event
