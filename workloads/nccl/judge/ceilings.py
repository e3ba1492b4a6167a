"""What the NICs can carry at most: a figure above it was made by something else. Pure. GB/s, decimal.

Formulas: `n` ranks on `k` nodes of `g` GPUs. A ring sends every byte of its bus bandwidth through the NICs of each
node, so that busbw cannot exceed their sum. Other algorithms move data within a node first; what must then cross at
least is busbw·g·(k - 1)/(n - 1) (NVIDIA/nccl-tests#196 and #22; stas00/ml-engineering: network/README.md, 744d01e,
2026-08-22).
"""

from __future__ import annotations

from workloads.nccl.judge.expectation import Expectation

TOLERANCE = 1.02
"""How far a figure may be above what is possible: the room for clocks, not for another way."""


def line_rate(expectation: Expectation) -> float:
    """All NICs of one node together, each way: 8 NICs of 400 Gbit/s are 400 GB/s."""
    return expectation.nics * expectation.gbps_per_nic / 8


def ceiling(op: str, expectation: Expectation, algorithms: frozenset[str]) -> float | None:
    """The most that `op`'s busbw can be between the nodes; None on one node and for operations without a formula."""
    n, k, g = expectation.ranks, expectation.nodes, expectation.gpus
    if k < 2:
        return None
    total = line_rate(expectation)
    hierarchical = total * (n - 1) / (g * (k - 1))
    match op:
        case "all_gather" | "reduce_scatter":
            return total if algorithms <= {"ring"} else hierarchical
        case "all_reduce":
            return total if algorithms == {"ring"} else hierarchical
        case "all_to_all":
            return hierarchical / g  # each of g ranks has its own data for all ranks elsewhere
        case "broadcast" | "reduce":
            return total
        case "gather" | "scatter":
            return total * (n - 1) / (n - g)
        case "sendrecv":
            # One GPU of each node sends to the next node, through the NICs beside it.
            return total / expectation.nics * max(1, expectation.nics // g)
        case _:
            return None
