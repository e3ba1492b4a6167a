"""The judge's word on a run that has just ended: `bench nccl` and `logs` exit by it."""

from __future__ import annotations

from typing import Any

from workloads.nccl.judge.verdict import verdict_of
from workloads.nccl.result import Result


def judged(document: dict[str, Any], machine: str | None) -> dict[str, Any]:
    """The result with its verdict, whose code and reason become the run's unless it had ended badly before.

    `machine` is the stack's machine type, None where it has none. Raises `WorkloadError` for one that cannot be judged.
    """
    result = Result.model_validate(document)
    verdict = verdict_of(result, machine=machine, need_floor=not result.spec.get("no_floor", False))
    update: dict[str, Any] = {"verdict": verdict}
    if verdict.code:
        update |= {"exit_code": verdict.code, "reason": verdict.reason}
    elif machine is not None and not result.exit_code:
        update |= {"reason": verdict.reason}
    return result.model_copy(update=update).model_dump(mode="json", by_alias=True)
