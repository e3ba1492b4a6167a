"""Read results files and logs into a measurement. The content of a file decides its form, not its name."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from workloads.evidence.facts import merge
from workloads.evidence.log_reader import parse_log
from workloads.evidence.log_text import decoded
from workloads.exits import Exit, WorkloadError
from workloads.nccl.judge import nccl_tests
from workloads.nccl.judge.measurement import ListedRank, MeasuredRow, MeasuredRun, Measurement, RowFigures
from workloads.nccl.judge.nccl_tests import ERROR, HANG, first_lines
from workloads.nccl.limits import OP as POINT_TO_POINT
from workloads.nccl.limits import violations
from workloads.nccl.point_patterns import Limits
from workloads.nccl.problems import failure, node_problems, remark
from workloads.nccl.result import BenchResult, EvidenceFinding, Row
from workloads.results.files import loads, read_bytes

NOTHING = Measurement("none", ())
LARGEST = 2**28  # bytes of a file; a larger log is NCCL_DEBUG=TRACE, which the judge does not need


def read_file(path: str) -> str:
    """Return the text of a file, of a gzipped file, or of stdin (`-`). Raises `WorkloadError` if it cannot be read."""
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else read_bytes(Path(path), LARGEST)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=BytesIO(data)).read(LARGEST + 1)
    except EOFError as error:
        raise WorkloadError(f"cannot read {path}: the gzipped file is truncated") from error
    except (OSError, zlib.error) as error:
        raise WorkloadError(f"cannot read {path}: {error}") from error
    if len(data) > LARGEST:
        raise WorkloadError(
            f"cannot read {path}: it has more than {LARGEST // 2**20} MiB; pass NCCL_DEBUG=INFO output, not TRACE"
        )
    return decoded(data)


def measurement_of(text: str, op: str | None = None, limits: Limits | None = None) -> Measurement:
    """Return the measurement in a results file. Raises `WorkloadError` for an empty, damaged or unknown file.

    `op` applies to a table that names no operation, `limits` to the point-to-point rows of this program's results.
    """
    if not text.strip():
        raise WorkloadError("it is empty")
    if text.lstrip().startswith("{") and not nccl_tests.is_text(text):
        try:
            document: dict[str, Any] = loads(text)
        except ValueError as error:
            raise WorkloadError(f"it is truncated or damaged JSON: {error}") from None
        if str(document.get("schema", "")).startswith("rdma-ray/nccl/"):
            return measurement_of_result(BenchResult.of(document, "it"), limits)
        if "nccl_version" in document and "config" in document:
            return nccl_tests.read_report(document, op)
        raise WorkloadError("it is JSON, but neither a result of this program nor a report of nccl-tests")
    if not nccl_tests.is_text(text):
        # A run that ended before its first line may still show why.
        if hang := first_lines(HANG, text):
            return replace(NOTHING, form="nccl-tests", hang=hang)
        first_error = "".join(f": {line}" for line in first_lines(ERROR, text)[:1])
        raise WorkloadError(f"it contains neither nccl-tests output nor JSON{first_error}")
    facts = parse_log(text)
    return replace(nccl_tests.read(text, op), facts=facts if facts.lines else None)


def measurement_of_texts(
    results: str | None, logs: Sequence[str], op: str | None = None, limits: Limits | None = None
) -> Measurement:
    """Return the measurement in a results file with the evidence in logs; either may be missing.

    Unreadable results become a finding, so the logs are judged anyway.
    """
    hang = tuple(dict.fromkeys(line for log in logs for line in first_lines(HANG, log)))
    try:
        found = NOTHING if results is None else measurement_of(results, op, limits)
    except WorkloadError as error:
        unreadable = failure("unreadable", f"the results cannot be read: {error}", Exit.ERROR)
        found = Measurement("unreadable", (), findings=(unreadable,))
        if hang and results is not None and not results.strip():
            found = NOTHING  # the file is not damaged: the run wrote nothing
    facts = [parse_log(log) for log in logs]
    if found.facts is not None:
        facts.insert(0, found.facts)
    merged = merge(facts) if facts else None
    if merged is not None and len(found.runs) > 1:
        merged = merged.model_copy(update={"algorithm_set": None})  # of which run is not known
    return replace(found, facts=merged, hang=(*found.hang, *hang))


def measurement_of_result(result: BenchResult, limits: Limits | None = None) -> Measurement:
    """Return the measurement in this program's result: collectives as rows, the rest by the machine's `limits`."""
    rows = [row for row in result.rows if _is_headline(row)]
    others = [row for row in result.rows if not _is_headline(row)]
    algorithm = (result.environment or {}).get("NCCL_ALGO", "")
    run = MeasuredRun(
        rows=[
            MeasuredRow(row.op, row.size, row.dtype, RowFigures(row.time_us.max, row.algbw, row.busbw, row.wrong))
            for row in rows
        ],
        # Pods on one machine have different host names; only different kernels are different hosts.
        members=[ListedRank(member.rank, member.machine, member.gpu or "") for member in result.ranks or []],
        ended=result.exit_code in (Exit.OK, Exit.BELOW, Exit.WRONG_DATA, Exit.NOT_AS_ASKED),
        stated_wrong=sum(row.wrong or 0 for row in result.rows),
        algorithm=nccl_tests.one_algorithm(algorithm),
        guarded=len(others),
        unverified=sum(row.wrong is None for row in others),
    )
    return Measurement(
        "rdma-ray",
        (run,),
        hang=(result.reason,) if result.exit_code == Exit.HANG else (),
        facts=result.evidence.log if result.evidence else None,
        findings=tuple(_findings(result, limits)),
    )


def _is_headline(row: Row) -> bool:
    """Return whether published figures apply to the row: a collective in throughput mode."""
    return row.mode == "throughput" and row.op != POINT_TO_POINT and row.pairs is None


def _findings(result: BenchResult, limits: Limits | None) -> list[EvidenceFinding]:
    found = violations(result, limits)
    if result.exit_code in (Exit.ERROR, Exit.STOPPED):
        found.append(failure("broken", f"the run itself failed: {result.reason}", Exit.ERROR))
    if result.exit_code == Exit.WRONG_DATA and not any(row.wrong for row in result.rows):
        found.append(failure("wrong-data", result.reason, Exit.WRONG_DATA))
    if result.exit_code == Exit.NOT_AS_ASKED and not any(finding.code for finding in found):
        found.append(failure("not-as-asked", result.reason))
    if result.backend == "gloo":
        found.append(failure("gloo", "gloo between CPUs was measured, not NCCL between GPUs"))
    if result.evidence is not None:
        if missing := result.evidence.missing[:4]:
            found.append(remark("evidence-missing", f"missing evidence: {'; '.join(missing)}"))
        found += node_problems(result.evidence)
    if result.injected_fault:
        found.append(remark("rehearsal", f"a fault was injected: {result.injected_fault}"))
    return found
