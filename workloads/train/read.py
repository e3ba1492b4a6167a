"""Results and Kubernetes' objects from files, and the one put to the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workloads.exits import WorkloadError
from workloads.train.records import Clock
from workloads.train.result import SCHEMA, Result
from workloads.train.timeline import from_cluster


def read_result(file: Path) -> Result:
    """The result of a run, as --json wrote it; WorkloadError where the file holds none."""
    try:
        result = Result.model_validate(_json(file))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the document"
        raise WorkloadError(f"{file}: no result of training ({SCHEMA}), by its {where}") from error
    if result.schema_ != SCHEMA:
        raise WorkloadError(f"{file}: its schema is {result.schema_}, and this reads {SCHEMA}")
    return result


def read_objects(file: Path) -> list[Mapping[str, Any]]:
    """The objects of a List as kubectl prints it."""
    document = _json(file)
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise WorkloadError(f"{file}: no list of objects; write it by: kubectl get events,nodes,pods -o json")
    return items


def with_objects(result: Result, objects: Sequence[Mapping[str, Any]], skew_s: float = 0.0) -> Result:
    """The result with the way to its first step as these objects tell it; WorkloadError where it took no step."""
    if result.timeline is None:
        raise WorkloadError("the result has no timeline: the run never got to a worker")
    ended = {phase.name: phase.ended for phase in result.timeline.phases}
    worker = ended.get("worker started", result.timeline.ended)
    clock = Clock(
        submitted=result.timeline.began,
        driver=ended.get("cluster formed", result.timeline.began),
        worker=worker,
        restored=ended.get("restored", worker),
        compiled=ended.get("compiled"),
        first_step=ended.get("first step"),
        trained=None,
    )
    return result.model_copy(update={"timeline": from_cluster(clock, objects, skew_s)})


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise WorkloadError(f"cannot read {file}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{file}: not JSON: {error}") from error
