"""Readers of nccl-tests: its text output (tables, devices and footer, of one or more runs) and its JSON report. Pure.

Text: the PRINT calls of NVIDIA/nccl-tests from v2.0 (2019) to v2.19.6 (a0b82b22, 2026-07-09), src/common.cu and
src/util.cu. Columns are found by name, because versions differ: `error` became `#wrong`, `root` and the group of a rank
came later, `-I` adds columns after each block. JSON (`-J FILE`): version 1, src/util.cu of v2.19.6. It writes true and
false as strings, not-a-number as "nan", and `nwrong` as null for unchecked data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.nccl.judge.measurement import Figures, MeasuredRow, Measurement, Run, UnreadableError

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "sendrecv",
    "alltoallv": "alltoallv",
    "hypercube": "hypercube",
}
UNNAMED = "?"
"""Operation of rows in an output that does not name it: versions before 2.17 do not."""

TYPES = "int8|uint8|char|int32|int|uint32|int64|uint64|half|float|double|bfloat16|f(?:p)?8_?e4m3|f(?:p)?8_?e5m2"
STANDARD = ["size", "count", "type", "redop", "root", *2 * ["time", "algbw", "busbw", "#wrong"]]
BLOCK = ("time", "algbw", "busbw")
KEPT = 5  # lines of one kind: later ones repeat the first

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
# Tags of Open MPI's --tag-output and PRRTE, after a time or a pod's name that a collector may have added.
_MPI = re.compile(r"^.{0,200}?\[[^\[\]\s]{0,80}?\d+,\d+\] ?<std(?:out|err)> ?: ?")
# Last line of a watchdog, a scheduler or a time limit.
_HANG = re.compile(
    r"Test timeout \(\d+s\)"  # nccl-tests -T
    r"|[Ww]atchdog caught collective operation timeout"  # torch.distributed
    r"|NCCL WARN .{0,400}(?:[Tt]imed ?-?out|[Tt]imeout)"
    r"|time limit for job execution has been reached"  # mpirun --timeout
    r"|CANCELLED AT .{0,40} DUE TO TIME LIMIT"  # Slurm
    r"|DeadlineExceeded"  # a Kubernetes Job's activeDeadlineSeconds
)
_ERROR = re.compile(
    r"Test (?:NCCL|CUDA) failure"
    r"|Invalid number of GPUs"
    r"|mpirun noticed that|mpirun was unable|ORTE (?:was unable|has lost)|PRTE has lost"
    r"|exited on signal \d"
    r"|error while loading shared libraries"
    r"|command not found"
)
_PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_START = re.compile(r"#\s*nThread \d+ nGpus \d+ ")
_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>-?\d+))?\s+Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+"
    r"\s+\[[^\]]*\]\s*(?P<gpu>.*)"
)
_HEADER = re.compile(r"#\s+(?P<names>(?:size|bytes)\s+(?:count|N)\s+type\s.*\bbusbw\b.*)")
_ROW = re.compile(rf"(?<![\w.:/-])(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>{TYPES})\b(?P<rest>.*)")
_CUT_ROW = re.compile(r"^\s{2,}\d+(?:\s+\d+)?\s*$")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:")
_AVERAGE_OF = re.compile(r"\s(?:-a\s*|--average[ =])([0-3])\b")
_ALGO = re.compile(r"\bNCCL_ALGO(?:=|\s+set by environment to\s+)\W{0,2}([A-Za-z]+)\b")


def clean(text: str) -> Iterator[str]:
    """Yield the lines without colors, carriage returns and launchers' tags."""
    for line in text.splitlines():
        yield _MPI.sub("", _ANSI.sub("", line)).rstrip()


def hangs(text: str) -> tuple[str, ...]:
    """Return the first lines about a hang or a time-out."""
    return _found(_HANG, text)


def errors(text: str) -> tuple[str, ...]:
    """Return the first lines about why a run failed."""
    return _found(_ERROR, text)


def _found(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in clean(text):
        if pattern.search(line[:2000]):
            found[line.strip()[:300]] = None
            if len(found) == KEPT:
                break
    return tuple(found)


def is_text(text: str) -> bool:
    """Return whether the text holds output of nccl-tests."""
    return any(_START.search(line) or _HEADER.search(line) or _is_row(line) for line in clean(text))


def _is_row(line: str) -> bool:
    match = _ROW.search(line)
    return match is not None and len(match["rest"].split()) + 3 == len(STANDARD)


def read(text: str, op: str | None = None) -> Measurement:
    """Read the text output; `op` applies if it names no operation. UnreadableError for a table with unknown columns."""
    reader = _Reader(op)
    for line in clean(text):
        reader.line(line)
    return Measurement("nccl-tests", tuple(run.run() for run in reader.runs), hangs(text), errors(text))


@dataclass(frozen=True)
class _Rank:
    rank: int
    group: int
    host: str
    gpu: str


def _ranks(ranks: Sequence[_Rank]) -> dict[str, Any]:
    """Return the fields of a Run that its ranks determine. The rows are those of the first group."""
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    return {
        "ranks": sum(rank.group == ranks[0].group for rank in ranks) or None,
        "hosts": tuple(rank.host for rank in ranks),
        "gpus": frozenset(rank.gpu for rank in ranks if rank.gpu),
        "groups": len({rank.group for rank in ranks}) or 1,
    }


@dataclass
class _Run:
    op: str
    columns: list[str] = field(default_factory=lambda: STANDARD)
    ranks: list[_Rank] = field(default_factory=list)
    rows: list[MeasuredRow] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    out_of_bounds: int | None = None
    average: bool = False
    algorithm: str | None = None
    average_of: int | None = None

    def run(self) -> Run:
        return Run(
            rows=tuple(self.rows),
            **_ranks(self.ranks),
            ended=self.out_of_bounds is not None or self.average,
            stated_wrong=self.out_of_bounds,
            algorithm=self.algorithm,
            damaged=tuple(self.damaged),
            average=self.average_of,
        )


class _Reader:
    def __init__(self, op: str | None) -> None:
        self.op = op
        self.algorithm: str | None = None
        self.average_of: int | None = None
        self.runs: list[_Run] = []

    def line(self, line: str) -> None:
        if match := _ALGO.search(line):
            self.algorithm = match[1].lower()
        if (match := _PROGRAM.search(line)) and match[1] in OPERATIONS and "concluded" not in line:
            self.op = OPERATIONS[match[1]]
            if average := _AVERAGE_OF.search(line, match.end()):
                self.average_of = int(average[1])
        if _START.search(line):
            self.runs.append(_Run(self.op or UNNAMED))
        elif match := _RANK.search(line):
            rank = _Rank(int(match["rank"]), int(match["group"] or 0), match["host"], match["gpu"].strip())
            self.current().ranks.append(rank)
        elif match := _HEADER.search(line):
            self.current().columns = _names(match["names"])
        elif match := _OUT_OF_BOUNDS.search(line):
            # FAILED counts as at least one wrong value.
            self.current().out_of_bounds = max(int(match[1]), int(match[2] == "FAILED"))
        elif _AVERAGE.search(line):
            self.current().average = True
        elif match := _ROW.search(line):
            self.row(match, line)
        elif _CUT_ROW.match(line) and self.runs and self.runs[-1].rows:
            self.runs[-1].damaged.append(line.strip())

    def current(self) -> _Run:
        if not self.runs:
            self.runs.append(_Run(self.op or UNNAMED))
        run = self.runs[-1]
        run.algorithm, run.average_of = self.algorithm, self.average_of
        return run

    def row(self, match: re.Match[str], line: str) -> None:
        run = self.current()
        columns = _columns(run.columns, match["rest"].split())
        if columns is None:
            run.damaged.append(line.strip()[:200])
            return
        run.rows.append(MeasuredRow(run.op, int(match["size"]), match["type"], *columns))


def _names(text: str) -> list[str]:
    names = text.split()
    if names.count("busbw") not in (1, 2) or names.count("algbw") != names.count("busbw"):
        raise UnreadableError(f"the table's header has columns that nccl-tests does not write: {text.strip()[:200]}")
    if "cputime" in names:
        raise UnreadableError("the time column is CPU time (nccl-tests -C): measure without -C")
    return names


def _columns(names: list[str], values: list[str]) -> tuple[Figures | None, Figures | None] | None:
    """Return (out of place, in place) from the values after size, count and type; None for an incomplete row.

    A row with one block where the header has two was measured in place only (a replayed trace).
    """
    starts = [index - 3 for index, name in enumerate(names) if name == "time"]
    width = len(names) - 3
    block = width - starts[-1]
    if len(starts) == 2 and len(values) == width - block:
        return None, _figures(names[starts[0] + 3 :], values[starts[0] :])
    # A time stamp at the end contains a space.
    if len(values) != width and not (names[-1] == "timestamp" and len(values) > width):
        return None
    found = [_figures(names[start + 3 :], values[start:]) for start in starts]
    if None in found:
        return None
    return (found[0], found[1]) if len(found) == 2 else (found[0], None)


def _figures(names: list[str], values: list[str]) -> Figures | None:
    if tuple(names[:3]) != BLOCK:
        return None
    try:
        time_us, algbw, busbw = map(float, values[:3])
        # Before 2.13 the column is the largest error of an element, and only the footer counts wrong values.
        wrong = None if values[3] == "N/A" else int(float(values[3])) if names[3] == "#wrong" else 0
    except (ValueError, IndexError, OverflowError):
        return None
    return Figures(time_us, algbw, busbw, wrong) if _finite(time_us, algbw, busbw) else None


def _finite(time_us: float, *bandwidths: float) -> bool:
    return all(map(math.isfinite, (time_us, *bandwidths))) and time_us > 0


def is_report(document: Mapping[str, Any]) -> bool:
    """Return whether the JSON is a report of nccl-tests."""
    return "nccl_version" in document and "config" in document


def read_report(document: Mapping[str, Any], op: str | None = None) -> Measurement:
    """Read the JSON report; `op` applies if it names no operation. UnreadableError for a missing or mistyped key."""
    try:
        return Measurement("nccl-tests JSON", (_reported(document, op),), errors=tuple(document.get("errors") or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"nccl-tests' JSON has another form than its version 1: {type(error).__name__} {error}"
        ) from error


def _reported(document: Mapping[str, Any], op: str | None) -> Run:
    arguments = [str(argument) for argument in document.get("args") or ()]
    program = _PROGRAM.fullmatch(arguments[0].rpartition("/")[2]) if arguments else None
    op = (OPERATIONS.get(program[1]) if program else None) or op or UNNAMED
    average = _AVERAGE_OF.search(" ".join(arguments))
    # NCCL_ALGO counts if it names one algorithm for everything.
    environment = dict(line.split("=", 1) for line in document.get("env") or () if "=" in line)
    algorithm = environment.get("NCCL_ALGO", "")
    bounds = document.get("out_of_bounds")
    return Run(
        rows=tuple(
            MeasuredRow(op, int(row["size"]), str(row["type"]), _column(row, "out_of_place"), _column(row, "in_place"))
            for row in document.get("results", ())
        ),
        **_ranks(
            [
                _Rank(int(device["rank"]), device.get("group", 0), device["hostname"], device.get("device_info") or "")
                for device in document["config"].get("devices", ())
            ]
        ),
        ended=bounds is not None,
        stated_wrong=None if bounds is None else max(int(bounds["count"]), int(bounds.get("okay") == "false")),
        algorithm=algorithm.lower() if algorithm.isalpha() else None,
        average=int(average[1]) if average else None,
    )


def _column(row: Mapping[str, Any], name: str) -> Figures | None:
    if (column := row.get(name)) is None:
        return None
    if "cpu_time" in column:
        raise UnreadableError("the time is CPU time (nccl-tests -C): measure without -C")
    wrong = column["nwrong"]
    time_us, algbw, busbw = (float(column[key]) for key in ("time", "alg_bw", "bus_bw"))
    if not _finite(time_us, algbw, busbw):
        raise UnreadableError(f"a row's figures are no figures: {dict(column)}")
    return Figures(time_us, algbw, busbw, None if wrong is None else int(float(wrong)))
