"""Structured lines in a job's log: how a driver on the cluster tells a client elsewhere what happened.

One event is one line, `@rdma-ray {"kind": …}`. Ray may put a prefix such as `(RayTrainWorker pid=…)` before a line that
a worker printed, so that the mark is looked for anywhere in it. This module imports neither ray nor torch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "@rdma-ray "

Event = dict[str, Any]


def emit(kind: str, **fields: Any) -> None:
    """Print one event to the job's log; values must be JSON without NaN (ValueError otherwise)."""
    line = MARK + json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    # One write: Ray's log threads print to the same stream, and print() writes text and newline apart.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def parse(line: str) -> Event | None:
    """The event that a log line carries, or None where the line is ordinary text."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        event = json.loads(line[at + len(MARK) :])
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None
