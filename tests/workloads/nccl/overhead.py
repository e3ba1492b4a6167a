"""Measure the overhead of the benchmark's loop: its time per operation over that of a bare torch.distributed loop.

    python -m tests.workloads.nccl.overhead [--size 1M …] [--pairs N] [--ranks N]

Both loops run on the same gloo ranks in one run, alternating: bare, ours, ours, bare, … Each pair gives one ratio, and
the median of the ratios is the result, so that other load affects both alike. "Ours" is the time that a row reports.
Before the bare loop a buffer is also filled and checked: on a busy machine, the scheduler lets a process that has just
computed wait longer than one that has slept.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
import torch.distributed as dist

from tests.workloads.gloo_ranks import on_ranks
from workloads.nccl.answer import RowRequest
from workloads.nccl.device import Cpu
from workloads.nccl.kinds import COLLECTIVES, RankPosition
from workloads.nccl.loop import Loop
from workloads.nccl.operations import Operation
from workloads.nccl.units import format_size, parse_size
from workloads.results.documents import percentile

SIZES = ("1M", "4M", "16M")
OPERATIONS = ("all_reduce", "all_gather")
WARMUP = 3
KINDS = ("bare", "ours")
MAX_RATIO = 1.02  # accepted from 1 MiB on


@dataclass(frozen=True)
class Overhead:
    """Seconds per operation of the slowest rank, bare and ours, for each pair of measurements."""

    op: str
    size: int
    bare: list[float]
    ours: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / bare for bare, ours in zip(self.bare, self.ours, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median, for any distribution of the ratios (order statistics)."""
        ratios, number = sorted(self.ratios), len(self.ratios)
        reach = 0.98 * math.sqrt(number)
        return ratios[max(0, math.floor(number / 2 - reach))], ratios[min(number - 1, math.ceil(number / 2 + reach))]


def measure(sizes: Sequence[int], pairs: int, ranks: int, iterations: int) -> list[Overhead]:
    """Alternate both loops `pairs` times for each operation and size in bytes."""
    by_rank = on_ranks(_alternate, ranks, list(sizes), pairs, iterations, timeout_s=3600)
    found = []
    for op, size in by_rank[0]:
        times = [answers[op, size] for answers in by_rank]
        bare, ours = ([max(values) for values in zip(*(each[kind] for each in times), strict=True)] for kind in (0, 1))
        found.append(Overhead(op, size, bare, ours))
    return found


Times = dict[tuple[str, int], tuple[list[float], list[float]]]
"""(operation, bytes) → seconds per operation on one rank, bare and ours."""


def _alternate(rank: int, world: int, sizes: list[int], pairs: int, iterations: int) -> Times:
    loop = Loop(Cpu())
    place = RankPosition(rank, world, world)

    def bare(operation: Operation, call: Callable[[], object]) -> float:
        operation.fill(0)
        operation.wrong()
        for _ in range(WARMUP):
            call()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        return (time.perf_counter() - began) / iterations

    found: Times = {}
    for op in OPERATIONS:
        for size in sizes:
            count = size // 4 // world
            whole, piece = torch.ones(count * world).zero_(), torch.ones(count).zero_()
            call: Callable[[], object] = partial(dist.all_reduce, whole)
            if op == "all_gather":
                call = partial(dist.all_gather_into_tensor, whole, piece)
            operation = Operation(COLLECTIVES[op], place, size, torch.float32, loop.device.torch_device)
            runs = {"iterations": iterations, "warmup": WARMUP, "check": 1}
            row = RowRequest(op=op, variant=None, mode="throughput", dtype="fp32", size=size, **runs)
            bare(operation, call)  # sets up connections, threads and pages for both
            bares, ours = [], []
            for pair in range(pairs):
                # The first loop of a pair is the second of the next: neither has the warmer machine.
                if pair % 2:
                    ours.append(loop.measure(operation, row).timing.mean)
                bares.append(bare(operation, call))
                if pair % 2 == 0:
                    ours.append(loop.measure(operation, row).timing.mean)
            found[op, size] = bares, ours
    return found


def own_cost() -> float:
    """Return the seconds that the loop adds to one run: the difference of the quickest of many empty runs."""

    def nothing() -> None:
        """Empty run."""

    runs, device = 1000, Cpu()
    bare, ours = [], []
    for _ in range(100):
        began = time.perf_counter()
        for _ in range(runs):
            nothing()
        bare.append(time.perf_counter() - began)
        ours.append(device.time(nothing, runs).total)
    return (min(ours) - min(bare)) / runs


def report(found: Sequence[Overhead], ranks: int, iterations: int) -> str:
    """Return a line per operation and size: the median ratio, its interval, and the quartiles of the ratios."""
    date, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
    lines = [
        f"{ranks} gloo ranks on {os.cpu_count()} cores, {iterations} operations a measurement, {date}, load {load:.1f}",
        "operation       size  pairs   bare ms   ours ms   ratio  95 %            25 % to 75 %",
    ]
    for each in found:
        low, high = each.interval
        lines.append(
            f"{each.op:<12}{format_size(each.size):>8}{len(each.ratios):>7}{median(each.bare) * 1e3:>10.3f}"
            f"{median(each.ours) * 1e3:>10.3f}{each.ratio:>8.3f}  {low:.3f} to {high:.3f}  "
            f"{percentile(each.ratios, 25):.3f} to {percentile(each.ratios, 75):.3f}"
        )
    together = Overhead("together", 0, *([time for each in found for time in getattr(each, kind)] for kind in KINDS))
    low, high = together.interval
    lines.append(f"all {len(together.ratios)} pairs together: {together.ratio:.3f}, 95 % {low:.3f} to {high:.3f}")
    least = min(each.bare[index] for each in found for index in range(len(each.bare)))
    lines.append(f"the loop itself: {own_cost() * 1e6:.2f} µs a run; the quickest of these takes {least * 1e6:.0f} µs")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 2 if a ratio is above the accepted one."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.workloads.nccl.overhead", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--size", action="append", help=f"message size; more than once  [{', '.join(SIZES)}]")
    parser.add_argument("--pairs", type=int, default=200, help="measurements of each loop  [200]")
    parser.add_argument("--ranks", type=int, default=2, help="gloo ranks  [2]")
    parser.add_argument("--iterations", type=int, default=10, help="operations of one measurement  [10]")
    asked = parser.parse_args(arguments)
    found = measure([parse_size(size) for size in asked.size or SIZES], asked.pairs, asked.ranks, asked.iterations)
    print(report(found, asked.ranks, asked.iterations))
    above = [each for each in found if each.size >= 2**20 and each.ratio > MAX_RATIO]
    for each in above:
        print(f"{each.op} at {format_size(each.size)}: {each.ratio:.3f} is above {MAX_RATIO}", file=sys.stderr)
    return 2 if above else 0


if __name__ == "__main__":
    sys.exit(main())
