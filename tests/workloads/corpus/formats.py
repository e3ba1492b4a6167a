"""Writers of nccl-tests' text and JSON and of NCCL's logs, with consistent figures.

Layouts: NVIDIA/nccl-tests v2.13 and v2.19.6 (a0b82b22, 2026-07-09), src/common.cu and src/util.cu; NCCL 2.26 with gIB
1.0.6 and with aws-ofi-nccl 1.16 as published logs show them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.nccl.units import BUSBW_FACTORS, algbw

GIB = 2**30
PROGRAMS = {"all_to_all": "alltoall"}
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")


@dataclass(frozen=True)
class Place:
    """Machines in their logs: `nics` as NCCL or Libfabric counts them, `hosts` by name."""

    hosts: tuple[str, ...]
    gpu: str
    plugin: str
    nics: int
    gpus: int = 8

    @property
    def ranks(self) -> list[tuple[int, str, int]]:
        """(rank, host, device) of every rank."""
        return [
            (node * self.gpus + device, host, device)
            for node, host in enumerate(self.hosts)
            for device in range(self.gpus)
        ]


A3U = Place(("gke-a3u-pool-1f2e-7kq2", "gke-a3u-pool-1f2e-x9sd"), "NVIDIA H200", "gIB", 8)
A4 = Place(("gke-a4-pool-77ab-0c4l", "gke-a4-pool-77ab-p2vt"), "NVIDIA B200", "gIB", 8)
P5 = Place(("ip-10-1-14-201", "ip-10-1-27-88"), "NVIDIA H100 80GB HBM3", "Libfabric", 32)
P5EN4 = Place(tuple(f"ip-10-2-0-{n}" for n in (11, 34, 57, 90)), "NVIDIA H200", "Libfabric", 16)
P4D = Place(("ip-172-31-6-104", "ip-172-31-13-103"), "A100-SXM4-40GB", "Libfabric", 4)


@dataclass(frozen=True)
class Row:
    """A row by its time; in place takes `in_place` times as long. `wrong` is None for unchecked data."""

    size: int
    time_us: float
    in_place: float = 0.99
    wrong: tuple[int | None, int | None] = (0, 0)


def sweep(op: str, ranks: int, peak: float, begin: int = 2**20, end: int = 8 * GIB, step: int = 4) -> list[Row]:
    """Return rows with a latency of 30 µs whose busbw (GB/s) at the largest size is exactly `peak`."""
    factor = BUSBW_FACTORS[op](ranks)
    sizes = [begin]
    while sizes[-1] < end:
        sizes.append(min(sizes[-1] * step, end))
    rate = end * factor / (end * factor / peak / 1e3 - 30.0) / 1e3
    return [Row(size, 30.0 + size * factor / rate / 1e3) for size in sizes]


@dataclass
class Output:
    """One run of nccl-tests. `scale` and `clock` change the printed bandwidths and times, as wrong units would."""

    op: str
    place: Place
    rows: list[Row]
    ranks: list[tuple[int, str, int]] = field(default_factory=list)
    scale: float = 1.0
    clock: float = 1.0
    named: bool = True
    groups: int = 1

    def __post_init__(self) -> None:
        self.ranks = self.ranks or self.place.ranks

    @property
    def count(self) -> int:
        """Ranks of one group."""
        return len(self.ranks) // self.groups

    def figures(self, row: Row, in_place: bool) -> tuple[float, float, float]:
        """Return time (µs) and bandwidths (GB/s) as printed."""
        time_us = row.time_us * (row.in_place if in_place else 1.0)
        rate = algbw(row.size, time_us / 1e6)
        busbw = rate * BUSBW_FACTORS[self.op](self.count)
        return time_us * self.clock, rate * self.scale, busbw * self.scale

    @property
    def program(self) -> str:
        return f"{PROGRAMS.get(self.op, self.op)}_perf"

    @property
    def redop(self) -> str:
        return "sum" if self.op in REDUCTIONS else "none"


STEPS = "step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0"
COLUMNS = [("time", "(us)", 7), ("algbw", "(GB/s)", 6), ("busbw", "(GB/s)", 6), ("#wrong", "", 6)]
SPREAD = [("i_min", "(us)", 7), ("i_max", "(us)", 7), ("i_p99", "(us)", 7), ("i_cv%", "(%)", 7)]


def text(output: Output, footer: bool = True, per_iteration: bool = False) -> str:
    """Return the text of version 2.19.6, optionally with the columns of `-I`; unnamed as before version 2.17."""
    begin = output.rows[0].size if output.rows else 1024
    lines = [
        *([f"# Collective test starting: {output.program}"] if output.named else []),
        f"# nThread 1 nGpus 1 minBytes {begin} maxBytes {8 * GIB} {STEPS}",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank:2d} Group {rank % output.groups:2d} Pid {4100 + rank:6d} on {host:>10s} device {device:2d}"
        f" [0000:{0x40 + 8 * device:02x}:00] {output.place.gpu}"
        for rank, host, device in output.ranks
    ]
    columns = [*COLUMNS, *SPREAD] * 2 if per_iteration else COLUMNS * 2
    lines += ["#", "# " + " " * 60 + "out-of-place                       in-place          "]
    for head, names in ((("size", "count", "type", "redop", "root"), 0), (("(B)", "(elements)", "", "", ""), 1)):
        line = "# {:>10s}  {:>12s}  {:>8s}  {:>6s}  {:>6s}".format(*head)
        lines.append(line + "".join(f"  {column[names]:>{column[2]}s}" for column in columns) + " ")
    lines += [_line(output, row, per_iteration) for row in output.rows]
    if footer:
        average = sum(output.figures(row, column)[2] for row in output.rows for column in (False, True))
        bad = sum(wrong or 0 for row in output.rows for wrong in row.wrong)
        lines += [
            f"# {'Out of bounds values':<20s} : {int(bad > 0)} {'FAILED' if bad else 'OK'}",
            f"# {'Avg bus bandwidth':<20s} : {average / max(1, 2 * len(output.rows)):g} ",
            "#",
            *([f"# Collective test concluded: {output.program}"] if output.named else []),
        ]
    return "\n".join(lines) + "\n"


def _line(output: Output, row: Row, per_iteration: bool = False) -> str:
    count = row.size // 4 if output.op != "all_gather" else row.size // 4 // output.count
    line = f"{row.size:12d}  {count:12d}  {'float':>8s}  {output.redop:>6s}  {-1:6d}"
    for column, wrong in enumerate(row.wrong):
        time_us, rate, busbw = output.figures(row, bool(column))
        shown = "   N/A" if wrong is None else f"{wrong:6g}"
        line += f"  {_fit(time_us, 7)}  {_fit(rate, 6)}  {_fit(busbw, 6)}  {shown}"
        if per_iteration:
            spread = (time_us * 0.98, time_us * 1.07, time_us * 1.05, 1.31)
            line += "".join(f"  {_fit(value, 7)}" for value in spread)
    return line


def _fit(value: float, width: int) -> str:
    """Format with at most two decimals, as many as the column holds."""
    for digits in (2, 1):
        if len(shown := f"{value:{width}.{digits}f}") <= width:
            return shown
    return f"{value:{width}.0f}"


def report(output: Output, **changes: Any) -> str:
    """Return the `-J` report of version 2.19.6; `changes` replace keys."""
    document: dict[str, Any] = {
        "version": 1,
        "start_time": "2026-11-20 09:14:03",
        "args": [f"/opt/nccl-tests/build/{output.program}", "-b", "1M", "-e", "8G", "-f", "4", "-J", "out.json"],
        "env": ["NCCL_DEBUG=INFO", "FI_PROVIDER=efa"],
        "nccl_version": 22707,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "validation": 1,
            "devices": [
                {"rank": rank, "group": 0, "pid": 4100 + rank, "hostname": host, "device": device}
                | {"device_hex": f"0000:{0x40 + 8 * device:02x}:00", "device_info": output.place.gpu}
                for rank, host, device in output.ranks
            ],
        },
        "results": [
            {"size": row.size, "count": row.size // 4, "type": "float", "redop": output.redop, "root": "    -1"}
            | {
                name: dict(zip(("time", "alg_bw", "bus_bw"), output.figures(row, bool(column)), strict=True))
                | {"nwrong": row.wrong[column]}
                for column, name in enumerate(("out_of_place", "in_place"))
            }
            | {"actual_iterations": 20, "experiment_name": ""}
            for row in output.rows
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 101.5, "okay": "unchecked"},
        "end_time": "2026-11-20 09:15:47",
        "errors": [],
    }
    return json.dumps(document | changes) + "\n"


def old(output: Output) -> str:
    """Return the text of version 2.0 to 2.11: no groups, and the largest error instead of wrong elements."""
    lines = ["# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2147483648 step: 4(factor) warmup iters: 5 iters: 20", "#"]
    lines += ["# Using devices"]
    lines += [
        f"#   Rank {rank:2d} Pid {3600 + rank:6d} on {host:>10s} device {device:2d} [0x{0x10 * (device // 2 + 1):02x}]"
        f" {output.place.gpu}"
        for rank, host, device in output.ranks
    ]
    lines += [
        "#",
        "#                                                       out-of-place                       in-place          ",
        "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
        "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    for row in output.rows:
        line = f"{row.size:12d}  {row.size // 4:12d}  {'float':>6s}  {output.redop:>6s}"
        for column in (False, True):
            time_us, rate, busbw = output.figures(row, column)
            line += f"  {_fit(time_us, 7)}  {rate:6.2f}  {busbw:6.2f}  {5e-07:5.0e}"
        lines.append(line)
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 38.5139 ", "#"]
    return "\n".join(lines) + "\n"


def log(place: Place, *, found: int | None = None, gdrdma: bool = True, algorithm: str = "RING") -> str:
    """Return NCCL_DEBUG=INFO output of every rank. `found` is the number of NICs of the last host, all by default."""
    lines: list[str] = []
    size = len(place.ranks)
    for rank, host, device in place.ranks:
        nics = found if found is not None and host == place.hosts[-1] else place.nics
        say = _speaker(lines, f"{host}:{4100 + rank}:{4300 + rank} [{device}] NCCL INFO")
        comm = f"comm 0x55d0a1b2{rank:02x}40 rank {rank} nranks {size} cudaDev {device} nvmlDev {device}"
        say("NCCL version 2.26.6+cuda12.8")
        _network(say, place.plugin, nics, gdrdma)
        say(f"ncclCommInitRankConfig {comm} busId {0x40 + 8 * device:x}000 commId 0x8f1c2d3e - Init START")
        say(
            f"comm 0x55d0a1b2{rank:02x}40 rank {rank} nRanks {size} nNodes {len(place.hosts)} localRanks {place.gpus}"
            f" localRank {device} MNNVL 0"
        )
        # Each device has a rail, where one ring leaves the node.
        after, before = (rank + place.gpus) % size, (rank - place.gpus) % size
        used = min(device, nics - 1) if place.plugin == "gIB" else device
        way = f"via NET/{place.plugin}/{used}" + ("/GDRDMA" if gdrdma and place.plugin != "Socket" else "")
        say(f"Channel {device:02d}/0 : {before}[{device}] -> {rank}[{device}] [receive] {way}")
        say(f"Channel {device:02d}/0 : {rank}[{device}] -> {after}[{device}] [send] {way}")
        say(f"ncclCommInitRankConfig {comm} busId {0x40 + 8 * device:x}000 commId 0x8f1c2d3e - Init COMPLETE")
        if rank == 0:
            for name in ("AllReduce", "AllGather", "ReduceScatter"):
                say(f"{name}: 8589934592 Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..15}}")
    return "".join(lines)


def _speaker(lines: list[str], who: str) -> Callable[[str], None]:
    return lambda message: lines.append(f"{who} {message}\n")


def _network(say: Callable[[str], None], plugin: str, nics: int, gdrdma: bool) -> None:
    match plugin:
        case "gIB":
            say("NET/gIB : Initializing gIB v1.0.6")
            ports = " ".join(f"[{n}]mlx5_{n}:1/RoCE" for n in range(nics))
            say(f"NET/gIB : Using {ports} [RO]; OOB eth0:10.52.2.7<0>")
            for n in range(nics):
                say(f"NET/gIB : GPU Direct RDMA {'Enabled' if gdrdma else 'Disabled'} for HCA {n} 'mlx5_{n}'")
        case "Libfabric":
            say("NET/OFI Initializing aws-ofi-nccl 1.16.3")
            say(f"NET/OFI Selected provider is efa, fabric is efa-direct (found {nics} nics)")
        case "Socket":
            say("NET/Plugin: Could not find: libnccl-net.so.")
            say("NET/Socket : Using [0]eth0:10.52.2.7<0>")
    say(f"Using network {plugin}")


def mixed(output: str, info: str) -> str:
    """Return both as one terminal shows them: the log between the devices and the table."""
    head, mark, table = output.partition("#\n# " + " " * 60)
    return head + info + mark + table


def tagged(content: str, tags: Sequence[str] = ("[1,0]<stdout>:",)) -> str:
    """Return the text with its launcher's tag before each line."""
    return "".join(tags[n % len(tags)] + line for n, line in enumerate(content.splitlines(keepends=True)))
