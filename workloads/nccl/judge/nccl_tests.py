"""Readers of nccl-tests: its text output (tables, devices and footer, of one or more runs) and its JSON report. Pure.

Text: the PRINT calls of NVIDIA/nccl-tests from v2.0 (2019) to v2.19.6 (a0b82b22, 2026-07-09), src/common.cu and
src/util.cu. Columns are found by name, because versions differ: `error` became `#wrong`, `root` and the group of a rank
came later, `-I` adds columns after each block. JSON (`-J FILE`): version 1, src/util.cu of v2.19.6. It writes true and
false as strings, not-a-number as "nan", and `nwrong` as null for unchecked data.

Rank 0 writes a row in three parts without a line end, before and between its measurements, so lines of NCCL and of
stderr may be between them: NCCL logs each collective there with the subsystem TUNING (src/enqueue.cc, 2.22 to 2.30).
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.evidence import log_text
from workloads.evidence.log_text import HEAD, REPEATED
from workloads.exits import WorkloadError
from workloads.nccl.judge.measurement import ListedRank, MeasuredRow, MeasuredRun, Measurement, RowFigures

_UNCHANGED = "all_reduce all_gather reduce_scatter broadcast reduce gather scatter sendrecv alltoallv hypercube"
OPERATIONS = {"alltoall": "all_to_all"} | {name: name for name in _UNCHANGED.split()}
UNNAMED = "?"
"""Operation of rows in an output that does not name it: versions before 2.17 do not."""

TYPES = "int8|uint8|char|int32|int|uint32|int64|uint64|half|float|double|bfloat16|f(?:p)?8_?e4m3|f(?:p)?8_?e5m2"
STANDARD = ["size", "count", "type", "redop", "root", *2 * ["time", "algbw", "busbw", "#wrong"]]
LONGEST = 2000  # characters of a line that are read; a row has 200
KEPT = 5  # lines of one kind: later ones repeat the first

# Last line of a watchdog, a scheduler or a time limit.
HANG = re.compile(
    r"Test timeout \(\d+s\)"  # nccl-tests -T
    r"|[Ww]atchdog caught collective operation timeout"  # torch.distributed
    # torch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and Store.cpp, in public copies and logs, read 2026-11-26
    r"|watchdog got stuck|[Hh]eartbeat monitor timed out"
    r"|due to (?:a )?(?:collective|pipeline|detected) ?timeout|Watchdog (?:received|hang)|[Tt]imeout at NCCL work"
    r"|ncclRemoteError.{0,40}timed out|Timed out after \d+ ?ms waiting for"
    r"|NCCL WARN .{0,400}(?:[Tt]imed ?-?out|[Tt]imeout)"
    r"|time limit for job execution has been reached"  # mpirun --timeout
    r"|CANCELLED AT .{0,40} DUE TO TIME LIMIT"  # Slurm
    r"|DeadlineExceeded"  # a Kubernetes Job's activeDeadlineSeconds
)
ERROR = re.compile(
    r"Test (?:NCCL|CUDA) failure"
    r"|Invalid number of GPUs"
    r"|mpirun noticed that|mpirun was unable|ORTE (?:was unable|has lost)|PRTE has lost"
    r"|exited on signal \d"
    r"|error while loading shared libraries"
    r"|command not found"
)
_PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_START = re.compile(
    r"#\s*nThread \d+ nGpus \d+ "
    r"(?:minBytes \d{1,18} maxBytes (?P<max>\d{1,18}) step: (?P<step>\d{1,18})\((?P<by>factor|bytes)\))?"
)
_REDUCED = re.compile(r"# Reducing maxBytes to (?P<max>\d{1,18}) due to memory")
_ANNOUNCED = re.compile(r"#\s*(?:nccl-tests version|Collective test starting)")
_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>-?\d{1,9}))?\s+Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+"
    r"\s+\[[^\]]*\]\s*(?P<gpu>.*)"
)
_HEADER = re.compile(r"^(?=.*\bbusbw\b).*?#\s+(?P<names>(?:size|bytes)\s+(?:count|N)\s+type\s.*)")
_ROW = re.compile(rf"(?<![\w.:/-])(?P<size>\d{{1,18}})\s+(?P<count>\d{{1,18}})\s+(?P<type>{TYPES})\b(?P<rest>.*)")
_CUT_ROW = re.compile(r"^(?:.{0,200}(?:[\])>:]|\dZ) ?)?\s{2,}\d+(?:\s+\d+)?\s*$")  # after a launcher's prefix or a time
_BLANK = re.compile(r"\s{24}")  # the first block of a row that was measured in place only
_VALUE = re.compile(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?|N/A|none|nan|inf", re.ASCII)
_PREFIX = re.compile(r"(?<=[\d\sA])[\[(<][^\[(<\])>]{0,100}[\])>]:? ?$")  # of the message behind a part of a row
_VALUE_BEFORE = re.compile(r"-?\d{1,9}(?=[a-zA-Z])")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:")
_AVERAGE_OF = re.compile(r"\s(?:-a\s*|--average[ =])([0-3])\b")
_ALGO = re.compile(r"\bNCCL_ALGO(?:=|\s+set by environment to\s+)(?P<value>\S*)")


def one_algorithm(value: str) -> str | None:
    """Return the algorithm (`ring`) that NCCL_ALGO requests for everything.

    None for an exclusion (`^NVLSTree`), a list, or a value by operation (`allreduce:tree`), which choose none of them.
    """
    name = value.strip("'\".;")
    return name.lower() if name.isalpha() and name.isascii() else None


def clean(text: str) -> Iterator[str]:
    """Yield the lines without colors, carriage returns, and the text that a collector or a launcher added."""
    for line in log_text.lines(io.StringIO(text)):
        yield line[:LONGEST].rstrip()


def first_lines(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """Return the first different lines that match `HANG` or `ERROR`."""
    found = (line.strip()[:300] for line in clean(text) if pattern.search(line))
    return tuple(dict.fromkeys(found))[:KEPT]


def is_text(text: str) -> bool:
    """Return whether the text holds output of nccl-tests."""
    for line in clean(text):
        if _START.search(line) or _HEADER.search(line):
            return True
        if (row := _ROW.search(line)) and len(row["rest"].split()) + 3 == len(STANDARD):
            return True
    return False


def read(text: str, op: str | None = None) -> Measurement:
    """Read the text output; `op` applies if it names no operation. WorkloadError for a table with unknown columns."""
    reader = _Reader(op or UNNAMED)
    for line in clean(text):
        reader.line(line)
    reader.end_row()
    if reader.announced:
        reader.begin()  # a run whose first line was lost, or which did not start
    return Measurement("nccl-tests", tuple(reader.runs), first_lines(HANG, text), first_lines(ERROR, text))


@dataclass
class _Reader:
    """Reads lines into runs. `named`, `algorithm` and `average` are those of the run that begins next.

    `op` and `columns` are those of the last run; `begun` is a row of which only the first parts were written,
    `announced` that another run follows.
    """

    default: str
    named: str = ""
    op: str = UNNAMED
    columns: list[str] = field(default_factory=list)
    headed: bool = False
    algorithm: str | None = None
    average: int | None = None
    begun: str = ""
    announced: bool = False
    sweep: re.Match[str] | None = None
    runs: list[MeasuredRun] = field(default_factory=list)

    def line(self, line: str) -> None:
        foreign = HEAD.search(line) if "NCCL " in line else None
        if "#" in line and foreign is None and REPEATED.search(line):
            self.run().damaged.append(f"Ray left lines out, RAY_DEDUP_LOGS=0 keeps them: {line.strip()[:200]}")
        if match := _ALGO.search(line):
            self.algorithm = one_algorithm(match["value"])
            if foreign is not None and self.runs and not self.runs[-1].ended:
                self.runs[-1].algorithm, self.algorithm = self.algorithm, None
        if foreign is not None:
            # A part of a row may end directly before the name of the host.
            part = _PREFIX.sub("", line[: foreign.start()]) + self.value_before(foreign["host"])
            if self.begun or _ROW.search(part):
                self.table(part, whole=False)
            return
        if (match := _PROGRAM.search(line)) and match[1] in OPERATIONS and "concluded" not in line:
            self.named = OPERATIONS[match[1]]
            if average := _AVERAGE_OF.search(line, match.end()):
                self.average = int(average[1])
        self.announced |= _ANNOUNCED.search(line) is not None
        if match := _START.search(line):
            self.begin()
            self.sweep = match
            self.run().above = _before(match["max"], match)
        elif (match := _REDUCED.search(line)) and self.sweep is not None:
            self.run().above = _before(match["max"], self.sweep)
        elif match := _RANK.search(line):
            member = ListedRank(int(match["rank"]), match["host"], match["gpu"].strip(), int(match["group"] or 0))
            self.run().members.append(member)
        elif match := _HEADER.search(line):
            self.run()
            self.columns, self.headed = _names(match["names"]), True
        elif match := _OUT_OF_BOUNDS.search(line):
            self.table(line[: match.start()], whole=False)  # a row whose line end was lost
            self.end_row()
            # FAILED counts as at least one wrong value.
            self.run().stated_wrong = max(int(match[1]), int(match[2] == "FAILED"))
            self.run().ended = True
        elif match := _AVERAGE.search(line):
            self.table(line[: match.start()], whole=False)
            self.end_row()
        else:
            self.table(line, whole=True)

    def value_before(self, host: str) -> str:
        """Return the end of a row's part that stands directly before a host's name."""
        hosts = self.runs[-1].hosts if self.runs else []
        if host in hosts:
            return ""
        found = next((host.removesuffix(known) for known in hosts if host.endswith(known)), None)
        return found if found is not None else (_VALUE_BEFORE.match(host) or [""])[0]

    def table(self, line: str, *, whole: bool) -> None:
        """Read a row, or a part of one: the rest is on a later line, unless the line is `whole`."""
        if match := _ROW.search(line):
            self.end_row()
            line = line[match.start() :]
            self.run()
            if _open(self.columns, match["rest"]):
                self.begun = line
            else:
                self.row(match, line)
        elif self.begun:
            # A launcher's prefix may precede the values, and stderr may follow them.
            words = line.split()
            runs = itertools.groupby(words, key=lambda word: _VALUE.fullmatch(word) is not None)
            values = max((list(words) for are, words in runs if are), key=len, default=[])
            if len(values) >= 3 or values == words != []:
                self.begun += "  " + "  ".join(values)
                joined = _ROW.search(self.begun)
                if joined and not _open(self.columns, joined["rest"]):
                    self.row(joined, self.begun)
                    self.begun = ""
        elif whole and _CUT_ROW.match(line) and self.runs and self.runs[-1].rows:
            self.runs[-1].damaged.append(line.strip())

    def end_row(self) -> None:
        """Take a row whose other parts did not come: it is damaged."""
        if self.begun and (match := _ROW.search(self.begun)):
            self.row(match, self.begun)
        self.begun = ""

    def begin(self) -> None:
        self.end_row()
        self.runs.append(MeasuredRun(algorithm=self.algorithm, average=self.average))
        self.op, self.columns, self.headed = self.named or self.default, STANDARD, False
        self.named, self.algorithm, self.average, self.announced = "", None, None, False

    def run(self) -> MeasuredRun:
        if not self.runs:
            self.begin()
        return self.runs[-1]

    def row(self, match: re.Match[str], line: str) -> None:
        run = self.run()
        columns = _columns(self.columns, match["rest"])
        if columns is None or not self.headed:  # without the table's header, a column may be another one
            run.damaged.append(line.strip()[:200])
        if columns is not None:
            run.rows.append(MeasuredRow(self.op, int(match["size"]), match["type"], *columns))


def _before(largest: str | None, sweep: re.Match[str]) -> int | None:
    """Return the size that a sweep's last row exceeds: one step below its largest size."""
    if largest is None or not (step := int(sweep["step"])):
        return None
    return int(largest) // step if sweep["by"] == "factor" else int(largest) - step


def _open(names: list[str], rest: str) -> bool:
    """Return whether more parts of a row may follow: what is there are values, fewer than the header has."""
    words = rest.split()
    return len(words) < len(names) - 3 and all(_VALUE.fullmatch(word) for word in words[1:])


def _names(text: str) -> list[str]:
    names = text.split()
    if "cputime" in names:
        raise WorkloadError("the time column is CPU time (nccl-tests -C): measure without -C")
    if names.count("busbw") not in (1, 2) or not names.count("time") == names.count("algbw") == names.count("busbw"):
        raise WorkloadError(f"the table's header has columns that nccl-tests does not write: {text.strip()[:200]}")
    return names


def _columns(names: list[str], rest: str) -> tuple[RowFigures | None, RowFigures | None] | None:
    """Return (out of place, in place) from the values after size, count and type; None for an incomplete row.

    A row with one block where the header has two was measured in place only (a replayed trace).
    """
    values = rest.split()
    starts = [index - 3 for index, name in enumerate(names) if name == "time"]
    width = len(names) - 3
    block = width - starts[-1]
    if len(starts) == 2 and len(values) == width - block and _BLANK.search(rest):
        return None, _block(names[starts[0] + 3 :], values[starts[0] :])
    # A time stamp at the end contains a space.
    if len(values) != width and not (names[-1] == "timestamp" and len(values) == width + 1):
        return None
    found = [_block(names[start + 3 :], values[start:]) for start in starts]
    return None if None in found else (found[0], found[1] if len(found) == 2 else None)


def _block(names: list[str], values: list[str]) -> RowFigures | None:
    if names[:3] != ["time", "algbw", "busbw"]:
        return None
    try:
        # Before 2.13 the column is the largest error of an element, and only the footer counts wrong values.
        wrong = None if values[3] == "N/A" else values[3] if names[3] == "#wrong" else 0
        return _figures(*values[:3], wrong=wrong, time_error=_error(values[0]))
    except (ValueError, IndexError, OverflowError):
        return None


def _error(printed: str) -> float:
    """Return by how much a printed time may differ from the measured one: from 10 s on it has two digits."""
    mantissa, _, exponent = printed.lower().partition("e")
    return 0.51 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _figures(*values: Any, wrong: Any, time_error: float = 0.0) -> RowFigures:
    """Convert the values of a column. ValueError if they are not numbers."""
    time_us, algbw, busbw = map(float, values)
    if not all(map(math.isfinite, (time_us, algbw, busbw))) or time_us <= 0:
        raise ValueError(f"a row's figures are not numbers: {values}")
    return RowFigures(time_us, algbw, busbw, None if wrong is None else int(float(wrong)), time_error)


def read_report(document: Mapping[str, Any], op: str | None = None) -> Measurement:
    """Read the JSON report; `op` applies if it names no operation. WorkloadError for a missing or mistyped key."""
    try:
        return Measurement(
            "nccl-tests", (_reported(document, op),), errors=tuple(map(str, document.get("errors") or ()))
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise WorkloadError(
            f"the JSON of nccl-tests does not have the form of version 1: {type(error).__name__} {error}"
        ) from error


def _reported(document: Mapping[str, Any], op: str | None) -> MeasuredRun:
    arguments = [str(argument) for argument in document.get("args") or ()]
    program = _PROGRAM.fullmatch(arguments[0].rpartition("/")[2]) if arguments else None
    op = (OPERATIONS.get(program[1]) if program else None) or op or UNNAMED
    average = _AVERAGE_OF.search(" ".join(arguments))
    # NCCL_ALGO counts if it names one algorithm for everything.
    environment = dict(line.split("=", 1) for line in document.get("env") or () if "=" in line)
    algorithm = environment.get("NCCL_ALGO", "")
    bounds = document.get("out_of_bounds")
    return MeasuredRun(
        rows=[
            MeasuredRow(op, int(row["size"]), str(row["type"]), _column(row, "out_of_place"), _column(row, "in_place"))
            for row in document.get("results", ())
        ],
        members=_members(document["config"]),
        ended=bounds is not None,
        stated_wrong=None if bounds is None else max(int(bounds["count"]), int(bounds.get("okay") == "false")),
        algorithm=one_algorithm(algorithm),
        average=int(average[1]) if average else None,
    )


def _members(config: Mapping[str, Any]) -> list[ListedRank]:
    """Return the ranks. A process with several GPUs lists only its first (src/util.cu, v2.19.6)."""
    devices = config.get("devices", ())
    each = int(config.get("ngpus") or 1) * int(config.get("nthreads") or 1)
    each = min(each, 1024) if all(int(device["rank"]) % max(each, 1) == 0 for device in devices) else 1
    return [
        ListedRank(
            int(device["rank"]) + offset,
            str(device["hostname"]),
            str(device.get("device_info") or ""),
            int(device.get("group", 0)),
        )
        for device in devices
        for offset in range(each)
    ]


def _column(row: Mapping[str, Any], name: str) -> RowFigures | None:
    if (column := row.get(name)) is None:
        return None
    if "cpu_time" in column:
        raise WorkloadError("the time is CPU time (nccl-tests -C): measure without -C")
    return _figures(column["time"], column["alg_bw"], column["bus_bw"], wrong=column["nwrong"])
