"""This project's own result as a measurement. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from workloads.exits import Exit
from workloads.nccl.evidence.problems import node_problems
from workloads.nccl.judge.measurement import Figures, MeasuredRow, Measurement, Run, UnreadableError
from workloads.nccl.limits import OP as POINT_TO_POINT
from workloads.nccl.limits import Limits, violations
from workloads.nccl.result import SCHEMA, Finding, Result, Row


def is_result(document: Mapping[str, Any]) -> bool:
    return str(document.get("schema", "")).startswith("rdma-ray/nccl/")


def parse(document: Mapping[str, Any]) -> Result:
    """The result of that JSON. Raises `UnreadableError` for another schema, or a file that does not keep it."""
    if document["schema"] != SCHEMA:
        raise UnreadableError(f"its schema is {document['schema']}, and this program reads {SCHEMA}: measure again")
    try:
        return Result.model_validate(document)
    except ValidationError as problems:
        first = problems.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"it does not keep its schema: {where or 'the whole'}: {first['msg']}") from problems


def read(result: Result, limits: Limits | None = None) -> Measurement:
    """The measurement: collectives as rows, the rest by its guards and the `limits` of the machine."""
    rows = tuple(_row(row) for row in result.rows if _is_headline(row))
    members = result.ranks or []
    # Pods of one machine have names of their own; only different kernels are different hosts.
    run = Run(
        rows=rows,
        ranks=result.world.ranks if result.world else None,
        hosts=tuple(member.machine for member in sorted(members, key=lambda member: member.rank)),
        gpus=frozenset(member.gpu for member in members if member.gpu),
        ended=result.exit_code in (Exit.OK, Exit.BELOW, Exit.WRONG_DATA, Exit.NOT_AS_ASKED),
        stated_wrong=sum(row.wrong or 0 for row in result.rows),
        algorithm=_algorithm((result.environment or {}).get("NCCL_ALGO")),
        guarded=len(result.rows) - len(rows),
        unverified=sum(row.wrong is None for row in result.rows if not _is_headline(row)),
    )
    hang = (result.reason,) if result.exit_code == Exit.HANG else ()
    return Measurement(
        "rdma-ray",
        (run,),
        hang,
        facts=result.evidence.log if result.evidence else None,
        findings=tuple(_findings(result, limits)),
    )


def _is_headline(row: Row) -> bool:
    """Runs back to back of a collective: what a published figure is about."""
    return row.mode == "throughput" and row.op != POINT_TO_POINT and row.pairs is None


def _row(row: Row) -> MeasuredRow:
    return MeasuredRow(row.op, row.size, row.dtype, Figures(row.time_us.max, row.algbw, row.busbw, row.wrong), None)


def _findings(result: Result, limits: Limits | None) -> list[Finding]:
    found = violations(result, limits)
    if result.exit_code in (Exit.ERROR, Exit.STOPPED):
        found.append(Finding(code=Exit.ERROR, kind="broken", text=f"the run itself broke: {result.reason}"))
    if result.exit_code == Exit.WRONG_DATA and not any(row.wrong for row in result.rows):
        found.append(Finding(code=Exit.WRONG_DATA, kind="wrong-data", text=result.reason))
    if result.exit_code == Exit.NOT_AS_ASKED and not any(finding.code for finding in found):
        found.append(Finding(code=Exit.NOT_AS_ASKED, kind="not-as-asked", text=result.reason))
    if result.backend == "gloo":
        found.append(
            Finding(code=Exit.NOT_AS_ASKED, kind="gloo", text="gloo between CPUs was measured, not NCCL between GPUs")
        )
    if result.evidence is not None and result.evidence.missing:
        missing = "; ".join(result.evidence.missing[:4])
        found.append(Finding(code=0, kind="evidence-missing", text=f"evidence that is missing: {missing}"))
    found += node_problems(result.evidence)
    if result.injected_fault:
        found.append(Finding(code=0, kind="rehearsal", text=f"a fault was injected: {result.injected_fault}"))
    return found


def _algorithm(value: str | None) -> str | None:
    return value.lower() if value and value.isalpha() else None
