"""The ranks of nccl-tests under mpirun, which write as the real programs do.

    python nccl_ranks.py VERSION BUFFERS ARGUMENTS TABLE [LOG]

TABLE is an output of nccl-tests, LOG what NCCL 2.26 logged; they may be one file. Every rank is a process. Rank 0
prints the table, and every rank logs the lines of its process in the form of NCCL's VERSION, all through the C library,
whose buffers decide what arrives in one piece. BUFFERS of stdout: `line`, or `none` (stdbuf -o0). ARGUMENTS is a file
with those of mpirun, one a line: only a variable that it exports reaches the ranks of another host.

nccl-tests prints a row as start, two blocks and line end (src/util.cu, a0b82b22), and its stdout is buffered by lines
(setlinebuf in src/common.cu to v2.19.0; later because it is mpirun's pty). NCCL logs to stdout or to NCCL_DEBUG_FILE,
unbuffered to 2.26, then by lines; a warning begins with a line end, has a time since 2.26, and names its function since
2.30.7 (src/debug.cc). Rank 0 logs each collective with the subsystem TUNING (src/enqueue.cc). Since 2.22 the ranks
connect in the first collective, not before (src/transport/generic.cc). NVIDIA/nccl: v2.22.3-1 to v2.30.7-1. mpirun
copies pieces of at most 4 KiB (open-mpi/ompi: orte/mca/iof/base). Read 2026-11-26. Imports the standard library only.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

PIECE = 4096
SECONDS = 0.01  # that a collective takes: lines of other streams arrive meanwhile
RUNS = 20 + 2  # calls for each block: one before the timed ones, one to check the data
IOLBF, IONBF = 1, 2  # glibc: libio/stdio.h
WARN_RANKS = (0, 9, 15)  # that warn, by turns, one in each block
# The same event in v2.22.3-1 and since 2.28: function, place and text.
WARN_FUNCTION = "ncclIbAsyncThreadMain"
OLD_WARNING = "transport/net_ib.cc:103", "NET/IB : mlx5_3:1 Got async event : client reregistration"
NEW_WARNING = "transport/net_ib/common.cc:179", "NET/IB : mlx5_3:1 Got non-fatal async event: client reregistration(17)"

_INFO = re.compile(r"(?P<host>\S+?):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>\d+)\] NCCL INFO (?P<text>.*)")
_ROW = re.compile(r"(?P<start>\s*(?P<size>\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+)(?P<out>(?:\s+\S+){4})(?P<end>(?:\s+\S+){4})")

Parts = tuple[int, str, str, str]
"""Size in bytes, start, and the two blocks of a row."""


@dataclass(frozen=True)
class Process:
    """A rank, and what it logs before and in its first collective."""

    rank: int
    host: str
    pid: int
    tid: int
    device: int
    before: list[str]
    connects: list[str]


class Output:
    """The C library's streams of this process: stdout for the table, and NCCL's, which may be the same."""

    def __init__(self, process: Process, version: tuple[int, ...], buffers: str) -> None:
        self.process, self.version = process, version
        self.libc = ctypes.CDLL(None)
        self.libc.fopen.restype = ctypes.c_void_p
        self.stdout = self.log = ctypes.c_void_p.in_dll(self.libc, "stdout")
        self.libc.setvbuf(self.stdout, None, IOLBF if buffers == "line" else IONBF, ctypes.c_size_t(0))
        self.level = os.environ.get("NCCL_DEBUG", "")
        self.subsystems = os.environ.get("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV").split(",")
        if name := os.environ.get("NCCL_DEBUG_FILE", ""):
            name = name.replace("%h", process.host).replace("%p", str(process.pid))
            if file := self.libc.fopen(name.encode(), b"w"):
                self.log = ctypes.c_void_p(file)
                self.libc.setvbuf(self.log, None, IOLBF if version >= (2, 27) else IONBF, ctypes.c_size_t(0))

    def print(self, text: str) -> None:
        self.libc.fputs(text.encode(), self.stdout)

    def info(self, text: str, subsystem: str = "INIT") -> None:
        if self.level == "INFO" and subsystem in self.subsystems:
            self._write(f"{self._writer()} [{self.process.device}] NCCL INFO ", text)

    def warn(self) -> None:
        if self.level in ("INFO", "WARN"):
            place, text = NEW_WARNING if self.version >= (2, 28) else OLD_WARNING
            stamp = time.strftime("[%F %T] ") if self.version >= (2, 26) else ""
            where = f"{place} ({WARN_FUNCTION})" if self.version >= (2, 30, 7) else place
            self._write(f"\n{stamp}{self._writer()} [{self.process.device}] {where} NCCL WARN ", text)

    def _writer(self) -> str:
        return f"{self.process.host}:{self.process.pid}:{self.process.tid}"

    def _write(self, head: str, text: str) -> None:
        """Write as one string, or since 2.29 with the head in the format: another number of write calls."""
        if self.version < (2, 29):
            self.libc.fputs(f"{head}{text}\n".encode(), self.log)
        else:
            self.libc.fprintf(self.log, head.replace("%", "%%").encode() + b"%s\n", text.encode())


def processes(lines: list[str], version: tuple[int, ...]) -> list[Process]:
    """Return the ranks, in the order in which their processes begin to log."""
    found: dict[tuple[str, str], Process] = {}
    for line in lines:
        if (message := _INFO.fullmatch(line)) is None or " Bytes -> Algo " in message["text"]:
            continue
        pid, tid, device = (int(message[name]) for name in ("pid", "tid", "device"))
        new = Process(len(found), message["host"], pid, tid, device, [], [])
        process = found.setdefault((message["host"], message["pid"]), new)
        text = re.sub(r"NCCL version [\d.]+", f"NCCL version {'.'.join(map(str, version))}", message["text"])
        if version >= (2, 30) and text.endswith("Init START"):
            text = f"[Rank {process.rank}] {text}"
        (process.connects if text.startswith("Channel ") else process.before).append(text)
    return list(found.values())


def chosen(size: int, ranks: int, version: tuple[int, ...]) -> str:
    """Return what rank 0 logs of an all-gather; since 2.24 with the bytes that one rank sends."""
    if version < (2, 24):
        return f"{'AllGather: ' if version >= (2, 23) else ''}{size} Bytes -> Algo 1 proto 2 time {size / 3.5e5:f}"
    return f"AllGather: {size // ranks} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}"


def run(output: Output, ranks: int, table: list[str], rows: list[Parts], wait: Callable[[], Any]) -> None:
    """Run one rank: rank 0 with the lines before and after the rows."""
    process, version = output.process, output.version
    warns = cycle(WARN_RANKS)

    def collectives(size: int) -> None:
        wait()
        for _ in range(RUNS if process.rank == 0 else 0):
            output.info(chosen(size, ranks, version), "TUNING")
        if next(warns) == process.rank:
            output.warn()
        time.sleep(SECONDS)
        wait()

    first = process.rank == 0
    head = next(number for number, line in enumerate(table) if "out-of-place" in line)
    start = next(number for number, line in enumerate(table) if _ROW.fullmatch(line.rstrip()))
    for line in table[:head] if first else ():
        output.print(f"{line}\n")
    for text in process.before:
        output.info(text)
    wait()
    for line in table[head:start] if first else ():
        output.print(f"{line}\n")
    for text in process.connects:
        output.info(text)
    for size, begin, *blocks in rows:
        if first:
            output.print(begin)
        for block in blocks:
            collectives(size)
            if first:
                output.print(block)
        if first:
            output.print("\n")
    for line in table[start + len(rows) :] if first else ():
        output.print(f"{line}\n")


def parts(table: list[str]) -> Iterator[Parts]:
    for line in table:
        if row := _ROW.fullmatch(line.rstrip()):
            yield int(row["size"]), row["start"], row["out"], row["end"]


def start(run_rank: Callable[[], None]) -> tuple[int, int, int]:
    """Start a rank; return its process and the ends of its stdout and stderr."""
    stdout, stderr = os.pipe(), os.pipe()
    if child := os.fork():
        os.close(stdout[1])
        os.close(stderr[1])
        return child, stdout[0], stderr[0]
    code = 1
    try:
        os.dup2(stdout[1], 1)
        os.dup2(stderr[1], 2)
        run_rank()
        code = 0
    finally:
        ctypes.CDLL(None).fflush(None)
        os._exit(code)


def mpirun(version: tuple[int, ...], buffers: str, exported: set[str], table: list[str], log: list[str]) -> int:
    """Run all ranks and copy what they write; return the exit code."""
    ranks, rows = processes(log, version), list(parts(table))
    barrier = multiprocessing.get_context("fork").Barrier(len(ranks))

    def one(process: Process) -> None:
        if process.host != ranks[0].host:
            for name in {*os.environ} - exported:
                del os.environ[name]
        run(Output(process, version, buffers), len(ranks), table, rows, barrier.wait)

    children = []
    with selectors.DefaultSelector() as streams:
        for process in ranks:
            child, *ends = start(lambda process=process: one(process))  # type: ignore[misc]
            children.append(child)
            for target, end in enumerate(ends, 1):
                streams.register(end, selectors.EVENT_READ, target)
        while streams.get_map():
            for key, _ in streams.select():
                if piece := os.read(key.fd, PIECE):
                    os.write(key.data, piece)
                else:
                    streams.unregister(key.fd)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def main(version: str, buffers: str, arguments: str, *files: str) -> int:
    lines = [line for file in files for line in Path(file).read_text().splitlines()]
    exported = {name for option, name in pairwise(Path(arguments).read_text().splitlines()) if option == "-x"}
    numbers = tuple(int(number) for number in version.split("."))
    return mpirun(numbers, buffers, exported, [line for line in lines if not _INFO.match(line)], lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
