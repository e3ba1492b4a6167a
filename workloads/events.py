"""Events in a job's log: structured lines from the driver on the cluster to the client.

An event is one line, `@rdma-ray {"kind": …}`. The mark may be anywhere in it, because Ray may add a prefix such as
`(RayTrainWorker pid=…)`. This module imports neither ray nor torch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "@rdma-ray "

Event = dict[str, Any]


def emit(kind: str, **fields: Any) -> None:
    """Print an event to the job's log. ValueError if a value is not JSON, such as NaN."""
    line = MARK + json.dumps({"kind": kind, **fields}, allow_nan=False, separators=(",", ":"))
    # One write: Ray's log threads share the stream, and print() writes text and newline separately.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def parse(line: str) -> Event | None:
    """Return the event in a log line, or None if the line is ordinary text."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        event = json.loads(line[at + len(MARK) :])
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None
