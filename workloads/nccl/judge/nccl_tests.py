"""nccl-tests' text output: tables, devices and the footer, of one run or of several in one file. Pure.

Layout: the PRINT calls of NVIDIA/nccl-tests from v2.0 (2019) to v2.19.6 (a0b82b22, 2026-07-09), src/common.cu and
src/util.cu. Columns are found by their names, since versions differ: `error` became `#wrong`, `root` and the group of a
rank came later, `-I` adds columns behind each block.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from workloads.nccl.judge.lines import clean, errors, hangs
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
"""The operation of rows in an output that does not say which it was: versions before 2.17 do not."""

TYPES = "int8|uint8|char|int32|int|uint32|int64|uint64|half|float|double|bfloat16|f(?:p)?8_?e4m3|f(?:p)?8_?e5m2"
STANDARD = ["size", "count", "type", "redop", "root", *2 * ["time", "algbw", "busbw", "#wrong"]]
BLOCK = ("time", "algbw", "busbw")

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
AVERAGE_OF = re.compile(r"\s(?:-a\s*|--average[ =])([0-3])\b")
_ALGO = re.compile(r"\bNCCL_ALGO(?:=|\s+set by environment to\s+)\W{0,2}([A-Za-z]+)\b")


def is_text(text: str) -> bool:
    """Whether there is anything of nccl-tests in it."""
    return any(_START.search(line) or _HEADER.search(line) or _is_row(line) for line in clean(text))


def read(text: str, op: str | None = None) -> Measurement:
    """The measurement. `op` names the operation where the output does not.

    Raises `UnreadableError` for a table whose columns cannot be told apart.
    """
    reader = _Reader(op)
    for line in clean(text):
        reader.line(line)
    return Measurement("nccl-tests", tuple(run.run() for run in reader.runs), hangs(text), errors(text))


def _is_row(line: str) -> bool:
    match = _ROW.search(line)
    return match is not None and len(match["rest"].split()) + 3 == len(STANDARD)


@dataclass
class _Rank:
    rank: int
    group: int
    host: str
    gpu: str


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
        # The rows are those of the first group; NCCL_TESTS_SPLIT makes several.
        group = self.ranks[0].group if self.ranks else 0
        return Run(
            rows=tuple(self.rows),
            ranks=sum(rank.group == group for rank in self.ranks) or None,
            hosts=tuple(rank.host for rank in sorted(self.ranks, key=lambda rank: rank.rank)),
            gpus=frozenset(rank.gpu for rank in self.ranks if rank.gpu),
            groups=len({rank.group for rank in self.ranks}) or 1,
            ended=self.out_of_bounds is not None or self.average,
            stated_wrong=self.out_of_bounds,
            algorithm=self.algorithm,
            damaged=tuple(self.damaged),
            average=self.average_of,
        )


class _Reader:
    def __init__(self, op: str | None) -> None:
        self.asked = op
        self.program: str | None = None
        self.algorithm: str | None = None
        self.average_of: int | None = None
        self.runs: list[_Run] = []

    def line(self, line: str) -> None:
        if match := _ALGO.search(line):
            self.algorithm = match[1].lower()
        if (match := _PROGRAM.search(line)) and match[1].split("/")[-1] in OPERATIONS and "concluded" not in line:
            self.program = OPERATIONS[match[1]]
            if average := AVERAGE_OF.search(line, match.end()):
                self.average_of = int(average[1])
        if _START.search(line):
            self.begin()
        elif match := _RANK.search(line):
            run = self.current()
            run.ranks.append(_Rank(int(match["rank"]), int(match["group"] or 0), match["host"], match["gpu"].strip()))
        elif match := _HEADER.search(line):
            self.current().columns = _names(match["names"])
        elif match := _OUT_OF_BOUNDS.search(line):
            # FAILED without a number of its own would be no 0.
            self.current().out_of_bounds = max(int(match[1]), int(match[2] == "FAILED"))
        elif _AVERAGE.search(line):
            self.current().average = True
        elif match := _ROW.search(line):
            self.row(match, line)
        elif _CUT_ROW.match(line) and self.runs and self.runs[-1].rows:
            self.runs[-1].damaged.append(line.strip())

    def begin(self) -> None:
        self.runs.append(_Run(self.program or self.asked or UNNAMED))

    def current(self) -> _Run:
        if not self.runs:
            self.begin()
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
    """(out of place, in place) from the values behind size, count and type; None for a row that is not whole.

    A row with one block where the header has two was measured in place only (a replayed trace).
    """
    starts = [index - 3 for index, name in enumerate(names) if name == "time"]
    width = len(names) - 3
    block = width - starts[-1]
    if len(starts) == 2 and len(values) == width - block:
        return None, _figures(names[starts[0] + 3 :], values[starts[0] :])
    # A time stamp at the end has a blank in it.
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
        # Before 2.13 the column is the largest error of an element; the footer then has the verdict.
        wrong = None if values[3] == "N/A" else int(float(values[3])) if names[3] == "#wrong" else 0
    except (ValueError, IndexError, OverflowError):
        return None
    if not all(map(math.isfinite, (time_us, algbw, busbw))) or time_us <= 0:
        return None
    return Figures(time_us, algbw, busbw, wrong)
