"""Bandwidth formulas of nccl-tests (doc/PERFORMANCE.md and src/*.cu at a0b82b22)."""

from __future__ import annotations

from collections.abc import Callable

BUSBW_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda ranks: (ranks - 1) / ranks),
    **dict.fromkeys(("broadcast", "reduce"), lambda _ranks: 1.0),
    **dict.fromkeys(("gather", "scatter"), lambda ranks: (ranks - 1) / ranks),
    **dict.fromkeys(("sendrecv", "p2p"), lambda _ranks: 1.0),
}
"""busbw = algbw · factor(ranks): the share of the message that each rank sends, whatever the algorithm."""

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
"""Operations that compute a sum, which uint8 cannot hold exactly."""

HIERARCHICAL = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose minimal traffic per NIC is known.

A node of g ranks receives the other nodes' data once: ((k-1)/k)·S for all_gather, the same amount outbound for
reduce_scatter, both for all_reduce, in equal shares for its g NICs.
"""


def algbw(size: int, seconds: float) -> float:
    """Return the algorithm bandwidth in GB/s (decimal) of `size` bytes, as nccl-tests defines a row's size."""
    return size / seconds / 1e9


def busbw(op: str, size: int, seconds: float, ranks: int) -> float:
    """Return the bus bandwidth in GB/s (decimal), comparable with the hardware's for any number of ranks."""
    return algbw(size, seconds) * BUSBW_FACTORS[op](ranks)


def nic_bandwidth(op: str, busbw: float, ranks: int, nodes: int) -> float | None:
    """Return the minimal GB/s (decimal) through one rank's share of its node's NICs, in each direction.

    busbw·(k-1)/(n-1) on k nodes is the lower bound of any algorithm: a tree's busbw may exceed the sum of the NICs,
    this figure may not. None on one node and for operations outside HIERARCHICAL. Source: nccl-tests#196.
    """
    if nodes < 2 or op not in HIERARCHICAL:
        return None
    return busbw * (nodes - 1) / (ranks - 1)
