"""List scheduling: tasks with dependencies on a limited number of workers, and the critical path."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Task:
    """Task of `seconds` that can start when all of `after` are done. `key` breaks ties between ready tasks."""

    key: tuple[str, ...]
    seconds: float
    after: frozenset[str]


@dataclass(frozen=True)
class Span:
    """Start and end of a task in seconds, and the last task before it: a dependency, or one that freed a worker."""

    start: float
    finish: float
    cause: str | None
    waited_for: Literal["nothing", "task", "hand"]


@dataclass(frozen=True)
class Timetable:
    """Schedule of all tasks. `critical` is the critical path: each task started when the one before ended."""

    spans: Mapping[str, Span]
    critical: tuple[str, ...]

    @property
    def makespan(self) -> float:
        """Seconds from start to end."""
        return max((span.finish for span in self.spans.values()), default=0.0)


def timetable(tasks: Mapping[str, Task], hands: int | None) -> Timetable:
    """Assign to each free worker the task that has been ready for longest. None is one worker per task.

    A task that takes no time needs no worker.

    Raises:
        ValueError: there are no workers, or tasks wait for each other.
    """
    if hands is not None and hands < 1:
        raise ValueError(f"{hands} workers cannot run a task: give at least one")
    spans: dict[str, Span] = {}
    missing = {name: len(task.after) for name, task in tasks.items()}
    dependents: dict[str, list[str]] = {}
    for name, task in tasks.items():
        for before in task.after:
            dependents.setdefault(before, []).append(name)
    ready: list[tuple[float, tuple[str, ...], str, str | None]] = []
    running: list[tuple[float, tuple[str, ...], str]] = []

    def release(names: list[tuple[str, str | None]], now: float) -> None:
        """Make tasks ready. Tasks that take no time end at once and release others."""
        while names:
            name, cause = names.pop()
            if tasks[name].seconds:
                heapq.heappush(ready, (now, tasks[name].key, name, cause))
                continue
            spans[name] = Span(now, now, cause, "task" if cause else "nothing")
            names += [(other, name) for other in freed_by(name)]

    def freed_by(name: str) -> list[str]:
        for other in dependents.get(name, ()):
            missing[other] -= 1
        return [other for other in dependents.get(name, ()) if not missing[other]]

    release([(name, None) for name in tasks if not missing[name]], 0.0)
    now, freed = 0.0, None
    while ready or running:
        while ready and (hands is None or len(running) < hands):
            since, key, name, cause = heapq.heappop(ready)
            finish = now + tasks[name].seconds
            if since == now:
                spans[name] = Span(now, finish, cause, "task" if cause else "nothing")
            else:
                spans[name] = Span(now, finish, freed, "hand")
            heapq.heappush(running, (finish, key, name))
        now = running[0][0]
        # Tasks that end at the same moment end together, so that their order decides nothing.
        ended: list[str] = []
        while running and running[0][0] == now:
            ended.append(heapq.heappop(running)[2])
        freed = ended[0]
        for name in ended:
            release([(other, name) for other in freed_by(name)], now)
    if len(spans) < len(tasks):
        raise ValueError(f"tasks wait for each other: {', '.join(sorted(tasks.keys() - spans.keys()))}")
    return Timetable(spans, _critical(tasks, spans))


def _critical(tasks: Mapping[str, Task], spans: Mapping[str, Span]) -> tuple[str, ...]:
    at = max(spans, key=lambda name: (spans[name].finish, tasks[name].seconds > 0, tasks[name].key), default=None)
    chain: list[str] = []
    while at is not None:
        if tasks[at].seconds:
            chain.append(at)
        at = spans[at].cause
    return tuple(reversed(chain))
