"""Record of what the engine did in `make up` and `make down`: operation, type of resource and seconds, no names.

The state of a stack has no times. `tools/stack.py` lets the engine write its events, which hold inputs and names, to a
file that only its owner may read; this module keeps the three facts and removes that file. A line per run is in
`.pulumi/engine-runs/STACK.jsonl`, which nothing else needs. Times of events are whole seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workloads.feedback.document import EngineOperation, EngineRun, ResourceType, plain
from workloads.results.files import write_file
from workloads.untrusted import MALFORMED, read

KEPT = 50
"""Runs that a record keeps, the newest."""
LARGEST = 2**28  # bytes of events: 40 resources write 130 KB
_OPERATIONS = {
    **dict.fromkeys(("create", "create-replacement"), "create"),
    "update": "update",
    **dict.fromkeys(("delete", "delete-replaced"), "delete"),
}
"""The engine's names of operations that send a request (pulumi/pulumi: pkg/resource/deploy/step.go, read 2026-11)."""
_OURS = ("pulumi:", "random:")
"""Packages whose resources are not requests to a cloud."""


def record_of(project: Path, stack: str) -> Path:
    """Return the file with the record of a stack."""
    return project / ".pulumi" / "engine-runs" / f"{stack}.jsonl"


@contextmanager
def recording(project: Path, stack: str, command: str) -> Iterator[tuple[str, str]]:
    """Yield the engine's options with which its run is recorded, also one that fails or is interrupted."""
    record = record_of(project, stack)
    events = record.with_suffix(".events")
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        events.unlink()  # of a run that was killed
    os.close(os.open(events, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield "--event-log", str(events)
    finally:
        # A record that cannot be written must not fail an `up` that succeeded, or hide why one failed.
        with suppress(OSError, *MALFORMED):
            run = run_of(events, command)
            if run.operations:
                lines = record.read_text().splitlines() if record.exists() else []
                write_file(record, "\n".join([*lines, run.model_dump_json()][-KEPT:]) + "\n", mode=0o600)
        events.unlink(missing_ok=True)


def run_of(events: Path, command: str) -> EngineRun:
    """Return the run in a file of the engine's events. A line that was cut is left out."""
    begun: dict[str, tuple[str, int]] = {}
    operations: list[EngineOperation] = []
    complete = False
    with events.open("rb") as file:
        for line in file.read(LARGEST).splitlines():
            with suppress(*MALFORMED):
                event = read(line)
                complete |= event.get("summaryEvent", {}).get("result") == "succeeded"
                before, after = event.get("resourcePreEvent"), event.get("resOutputsEvent")
                what = (before or after or event.get("resOpFailedEvent") or {}).get("metadata")
                if not what or (op := _operation(what)) is None:
                    continue
                key, now = f"{what['op']} {what['urn']}", int(event["timestamp"])
                if before:
                    begun[key] = (op, now)
                elif after and key in begun:
                    seconds = min(max(now - begun.pop(key)[1], 0), 86_400)
                    operations.append(
                        EngineOperation.model_validate({"op": op, "type": what["type"], "seconds": seconds})
                    )
    return EngineRun.model_validate(
        {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": command,
            "complete": complete,
            "unfinished": len(begun),
            "operations": sorted(operations, key=lambda each: (each.op, each.type, each.seconds))[:2000],
        }
    )


def _operation(what: dict[str, Any]) -> str | None:
    """Return the operation on a resource; None for components, and for what is not requested of a provider."""
    custom = (what.get("new") or what.get("old") or {}).get("custom")
    mine = not custom or str(what["type"]).startswith(_OURS) or plain(what["type"], ResourceType) is None
    return None if mine else _OPERATIONS.get(what["op"])


def recorded(project: Path, stack: str) -> list[EngineRun]:
    """Return the runs of a stack, the oldest first."""
    runs: list[EngineRun] = []
    with suppress(OSError):
        for line in record_of(project, stack).read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValidationError):
                runs.append(EngineRun.model_validate_json(line))
    return runs
