"""What a plot is drawn against: the line rate and the floor, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from infra.catalog.baselines import BASELINES
from infra.catalog.machines import CATALOG, Machine
from workloads.exits import WorkloadError
from workloads.nccl.page.groups import Group
from workloads.nccl.result import Result
from workloads.nccl.sizes import format_size

FAILS_BELOW = 0.90  # of what is expected; the judge's rule (workloads.md §1.3, as SuperBench and nccl-tests have it)
RING_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Line:
    """A horizontal line: its name on the plot, its height in GB/s (decimal), and where it comes from."""

    label: str
    value: float
    source: str


def machine_of(result: Result, name: str | None) -> Machine | None:
    """The catalog's row for `name`, else for the machine that the result was judged as; None where neither tells.

    Raises:
        WorkloadError: `name` is not in the catalog.
    """
    wanted = name or (result.verdict.machine if result.verdict else None)
    if wanted is None:
        return None
    if wanted in CATALOG:
        return CATALOG[wanted]
    if name is None:
        return None
    raise WorkloadError(f"--machine {name}: no such machine. Known: {', '.join(sorted(CATALOG))}")


def line_rates(group: Group, result: Result, machine: Machine | None) -> list[Line]:
    """The most that the NICs can carry, as this plot counts; none where no NIC is crossed or the machine is unknown.

    Source: workloads.md §1.1 (nccl-tests doc/PERFORMANCE.md): any ring's busbw is at most the sum of one node's NICs;
    in all_to_all (n − g) of n parts leave the node.
    """
    limits = sorted({row.last.limit for row in group.series if row.last.limit is not None})
    if limits:
        source = "the NICs in use, as the run found them"
        names = ["line rate"] if len(limits) == 1 else ["line rate", *["both ways"] * (len(limits) - 1)]
        return [Line(label, limit, source) for label, limit in zip(names, limits, strict=True)]
    world = result.world
    if machine is None or world is None or world.nodes < 2 or result.proves != "fabric":
        return []
    node = machine.nics * machine.gbps_per_nic / 8
    nics = f"{machine.nics} NICs of {machine.gbps_per_nic} Gbit/s in a {machine.name}"
    if group.op in RING_OPERATIONS:
        beyond = " (trees and NVLS may exceed it: they carry less over each NIC)" if group.op == "all_reduce" else ""
        return [Line("line rate", node, f"{nics}, the ceiling of any ring{beyond}")]
    if group.op == "all_to_all" and world.ranks > world.per_node:
        share = (world.ranks - 1) / (world.ranks - world.per_node)
        return [Line("line rate", node / world.per_node * share, f"{nics}, of which each rank has its share")]
    return []


def floor(group: Group, result: Result, machine: Machine | None) -> Line | None:
    """The least that passes, at the largest size that has a floor: by the verdict, else by the catalog."""
    if group.total:
        return None
    if result.verdict:
        compared = [one for one in result.verdict.comparisons if one.op == group.op]
        if compared:
            best = max(compared, key=lambda one: one.size)
            return _floor(best.expected, best.size, best.source)
    if machine is None or result.world is None or result.proves != "fabric":
        return None
    known = [
        line
        for line in BASELINES.get(machine.name, ())
        if line.op == group.op and line.nodes == result.world.nodes and line.gates
    ]
    if not known:
        return None
    best_known = max(known, key=lambda line: (line.size, -line.busbw))
    return _floor(best_known.busbw, best_known.size, best_known.source)


def _floor(expected: float, size: int, source: str) -> Line:
    return Line(
        "floor",
        expected * FAILS_BELOW,
        f"{FAILS_BELOW * 100:.0f} % of {expected:g} GB/s published at {format_size(size)}: {source}",
    )
