"""`rdma-ray bench hunt --simulate`: many hunts against planted faults, their cost and their mistakes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from workloads.client.run import write_json
from workloads.exits import Exit, WorkloadError
from workloads.nccl.hunt import curve
from workloads.nccl.hunt.curve import Cost
from workloads.nccl.hunt.plan import Settings
from workloads.nccl.hunt.simulate import KINDS, Planted

CURVE = (4, 8, 16, 32, 64, 128, 232, 512, 1024, 2048, 4096)
FEW = 5  # nodes at fault in the first curve
SHARE = 46  # one node in so many in the second one: 5 of 232


def run(
    nodes: int,
    bad: int,
    fault: str,
    noise: float,
    seeds: int,
    first: int,
    samples: int,
    max_tests: int | None,
    whole_curve: bool,
    out: Path | None,
    json_file: str | None,
) -> Exit:
    """Simulate, print the table (with `whole_curve` draw it too), and judge: BELOW for any false accusation."""
    if fault not in KINDS:
        raise WorkloadError(f"--fault {fault}: choose one of {', '.join(KINDS)}")
    if nodes < 2 or bad > nodes // 2:
        raise WorkloadError(f"--nodes {nodes} --bad {bad}: a hunt takes two nodes or more, and most of them healthy")
    settings = Settings(samples=samples)
    kind: Planted = fault
    if whole_curve:
        few = [
            _cost(size, min(FEW, max(1, size // 8)), kind, noise, _fewer(seeds, size), settings, first)
            for size in CURVE
        ]
        share = [_cost(size, size // SHARE, kind, noise, _fewer(seeds, size), settings, first) for size in CURVE[4:]]
        costs = [*few, *share]
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            picture = out / "hunt-cost.svg"
            picture.write_text(curve.svg([("up to 5 bad", few), ("1 in 46 bad", share)]))
            print(f"written: {picture}", file=sys.stderr)
    else:
        costs = [_cost(nodes, bad, kind, noise, seeds, settings, first)]
    print(curve.table(costs), end="", file=sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        write_json(
            {"schema": "rdma-ray/hunt-simulation/1", "noise": noise, "costs": [c.as_json() for c in costs]}, json_file
        )
    return judge(costs, max_tests)


def judge(costs: Sequence[Cost], max_tests: int | None) -> Exit:
    """BELOW where anybody was accused falsely, or a hunt took more tests than allowed."""
    over = max_tests is not None and any(one.tests[2] > max_tests for one in costs)
    return Exit.BELOW if over or any(one.false for one in costs) else Exit.OK


def _cost(nodes: int, bad: int, fault: Planted, noise: float, seeds: int, settings: Settings, first: int) -> Cost:
    began = time.monotonic()
    scores = list(curve.simulate(nodes, bad, fault, noise, seeds, settings, first))
    found = curve.cost(nodes, bad, fault, scores)
    print(f"{nodes} nodes, {bad} {fault}: {seeds} hunts in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def _fewer(seeds: int, nodes: int) -> int:
    """Large fleets take long to simulate and vary little."""
    return max(10, min(seeds, seeds * 232 // nodes))
