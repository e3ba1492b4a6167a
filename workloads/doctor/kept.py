"""Limits of a recorded state: every user of the cluster adds jobs, actors and events to it."""

from __future__ import annotations

from threading import Lock
from typing import Any

from workloads.untrusted import Limit, number

Json = dict[str, Any]
STATE_BYTES = 24 * 2**20
"""Size as JSON: 128 nodes of 8 GPUs have about 10 MiB."""
OBJECTS, SECTION_BYTES = 5_000, 8 * 2**20
"""Limits of a section of Kubernetes."""
LISTED, RAY_BYTES = 10_000, 2 * 2**20
"""Limits of a part of Ray's state: a lower one, because anyone who submits a job writes there."""
ENDED, ENDED_JOBS = ("SUCCEEDED", "FAILED", "STOPPED"), 1_000
"""Jobs in these states, of which only the newest are kept. Ray remembers all of them."""


class Kept:
    """Content of a state. `cut` maps the part, or `in` and the part, to a note about the entries left out."""

    def __init__(self) -> None:
        self.cut: dict[str, str] = {}
        self._limit, self._lock = Limit(STATE_BYTES), Lock()

    def objects(self, section: str, bodies: list[Json]) -> list[Json]:
        """Return the objects of a section, or the newest of them."""
        newest = sorted(bodies, key=_time, reverse=True) if len(bodies) > OBJECTS else bodies
        return self._list(section, newest, OBJECTS, SECTION_BYTES)

    def ray(self, part: str, answer: Any) -> Any:
        """Return a part of Ray's state: a list of objects, with unfinished jobs first, or one value."""
        if not isinstance(answer, list):
            return next(iter(self._list(f"ray {part}", [answer], 1, RAY_BYTES)), type(answer)())
        objects = [each for each in answer if isinstance(each, dict)]
        if part == "jobs":
            ended = [job for job in objects if job.get("status") in ENDED]
            if len(ended) > ENDED_JOBS:
                self.cut["ended jobs"] = f"the newest {ENDED_JOBS} of {len(ended)} were kept"
            ended.sort(key=lambda job: number(job.get("start_time")) or 0, reverse=True)
            objects = [job for job in objects if job.get("status") not in ENDED] + ended[:ENDED_JOBS]
        return self._list(f"ray {part}", objects, LISTED, RAY_BYTES)

    def _list(self, part: str, values: list[Any], most: int, size: int) -> list[Any]:
        with self._lock:
            before = self._limit.cut
            kept = self._limit.list_of(values, most, size)
            inner = self._limit.cut - before - (len(values) - len(kept))
        if len(kept) < len(values):
            self.cut[part] = f"{len(kept)} of {len(values)} were kept"
        if inner:
            self.cut[f"in {part}"] = f"{inner} strings, lists or levels were too long"
        return kept


def metadata(body: Json) -> Json:
    """Return an object's metadata; empty if it has none."""
    value = body.get("metadata")
    return value if isinstance(value, dict) else {}


def _time(body: Json) -> str:
    """Return when an event happened last, or an object was created, as Kubernetes writes it."""
    return str(body.get("lastTimestamp") or body.get("eventTime") or metadata(body).get("creationTimestamp") or "")
