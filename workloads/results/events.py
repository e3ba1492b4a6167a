"""Events in a job's log, with which a driver on the cluster reports to its client; the last one is the job's result.

An event is one line, `@rdma-ray {"kind": …}`. The mark may be anywhere in it, because Ray may add a prefix such as
`(RayTrainWorker pid=…)`. Imports neither ray nor torch.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workloads.results.files import loads

MARK = "@rdma-ray "
Event = dict[str, Any]
_handlers: list[Callable[[Event], None]] = []


def emit(kind: str, **fields: Any) -> None:
    """Print an event to the job's log. ValueError if a value is not JSON, such as NaN."""
    if _handlers:
        _handlers[-1]({"kind": kind, **fields})
        return
    line = MARK + json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    # One write: Ray's log threads share the stream, and print() writes text and newline separately.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def handled(handler: Callable[[Event], None]) -> Iterator[None]:
    """Pass this process's events to `handler` instead of its log: it is not the driver of a job and has no client."""
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.pop()


@contextmanager
def phase(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Emit that a phase begins, and add its duration to `seconds` at its end."""
    emit("phase", name=name)
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - began, 3)


def parse(line: str) -> Event | None:
    """Return the event in a log line, or None if the line is ordinary text."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        event = loads(line[at + len(MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def new_id(kind: str) -> str:
    """Return a submission ID that sorts by time: `nccl-20261121-130501-a1b2c3`."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
