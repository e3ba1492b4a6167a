"""Files in, a measurement and the log's facts out. What a file is, its content says and not its name."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads.exits import Exit, WorkloadError
from workloads.nccl.evidence.facts import merge
from workloads.nccl.evidence.log_reader import parse_log
from workloads.nccl.judge import nccl_tests, nccl_tests_json, own_result
from workloads.nccl.judge.lines import errors, hangs
from workloads.nccl.judge.measurement import Measurement, UnreadableError
from workloads.nccl.limits import Limits
from workloads.nccl.result import Finding

NOTHING = Measurement("none", ())
LARGEST = 2**30  # bytes of a file; a log of NCCL_DEBUG=TRACE may be larger, and says nothing more


def read_file(path: str) -> str:
    """The text of a file, of a gzipped one, or (`-`) of stdin. Raises `WorkloadError` where it cannot be read."""
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else _bytes(Path(path))
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    except EOFError as error:
        raise WorkloadError(f"cannot read {path}: the gzipped file ends in the middle") from error
    if len(data) > LARGEST:
        raise WorkloadError(f"cannot read {path}: it has more than 1 GiB; give NCCL_DEBUG=INFO output, not TRACE")
    return data.decode("utf-8-sig", errors="replace")


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if zipped:
            with gzip.open(file) as unzipped:
                return unzipped.read(LARGEST + 1)
        return file.read(LARGEST + 1)


def measurement_of(text: str, op: str | None = None, limits: Limits | None = None) -> Measurement:
    """The measurement in a results file. `op` is the operation of a table that does not name its own.

    `limits` are those of the machine that was paid for, for the point-to-point rows of our own results.

    Raises `UnreadableError` where the text is empty, broken, or of no form that is known.
    """
    if not text.strip():
        raise UnreadableError("it is empty")
    if (document := _json(text)) is not None:
        if own_result.is_result(document):
            return own_result.read(own_result.parse(document), limits)
        if nccl_tests_json.is_report(document):
            return nccl_tests_json.read(document, op)
        raise UnreadableError("it is JSON, and neither this program's result nor nccl-tests' report")
    if not nccl_tests.is_text(text):
        # A run that was ended before its first line still says why.
        if hang := hangs(text):
            return replace(NOTHING, form="nccl-tests", hang=hang)
        told = "".join(f": {line}" for line in errors(text)[:1])
        raise UnreadableError(f"there is no output of nccl-tests and no JSON in it{told}")
    found = nccl_tests.read(text, op)
    facts = parse_log(text)
    return replace(found, facts=facts if facts.lines else None)


def measurement_of_texts(
    results: str | None, logs: Sequence[str], op: str | None = None, limits: Limits | None = None
) -> Measurement:
    """The measurement in a results file together with the evidence in logs; either may be missing.

    Results that cannot be read become a finding, so that what the logs say is told all the same.
    """
    told = tuple(dict.fromkeys(line for log in logs for line in hangs(log)))
    try:
        found = NOTHING if results is None else measurement_of(results, op, limits)
    except UnreadableError as error:
        text = f"the results cannot be read: {error}"
        found = Measurement("unreadable", (), findings=(Finding(code=Exit.ERROR, kind="unreadable", text=text),))
        if told and results is not None and not results.strip():
            found = NOTHING  # not a broken file, but a run that never wrote a line
    facts = [parse_log(log) for log in logs]
    if found.facts is not None:
        facts.insert(0, found.facts)
    return replace(found, facts=merge(facts) if facts else None, hang=(*found.hang, *told))


def _json(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is, None where it is none. Raises `UnreadableError` where it is a part of one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is JSON that breaks off or is damaged, line {error.lineno}: {error.msg}") from error
    return found
