"""Bandwidth formulas of nccl-tests (doc/PERFORMANCE.md and src/*.cu at a0b82b22). Pure."""

from __future__ import annotations


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _there_and_back(ranks: int) -> float:
    return 2 * _others(ranks)


def _whole(_ranks: int) -> float:
    return 1.0


# busbw = algbw · factor(n): the share of the message that every rank must put on its wire, whatever the algorithm.
BUSBW_FACTORS = {
    "all_reduce": _there_and_back,
    "all_gather": _others,
    "reduce_scatter": _others,
    "all_to_all": _others,
    "broadcast": _whole,
    "reduce": _whole,
    "gather": _others,
    "scatter": _others,
    "sendrecv": _whole,
    "p2p": _whole,
}

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
"""Operations that add: whole numbers of 8 bits leave no room for a sum that is exact."""

# A node of g ranks must take in what the other nodes have, once: ((k-1)/k)·S for all_gather, as much the other way for
# reduce_scatter, both for all_reduce, in equal shares for its g NICs. For the others another share must cross.
HIERARCHICAL = ("all_reduce", "all_gather", "reduce_scatter")


def algbw(size: int, seconds: float) -> float:
    """GB/s (decimal): `size` bytes, as nccl-tests defines the row's size, over `seconds` per operation."""
    return size / seconds / 1e9


def busbw(op: str, size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth, GB/s (decimal): comparable to the hardware's, whatever the number of ranks."""
    return algbw(size, seconds) * BUSBW_FACTORS[op](ranks)


def nic_bandwidth(op: str, busbw: float, ranks: int, nodes: int) -> float | None:
    """GB/s (decimal) that must cross the share of a node's NICs that belongs to one rank, in each direction.

    The least that any algorithm can do with, busbw·(k-1)/(n-1) on k nodes: a tree may show a busbw above the NICs' sum
    and be right, this figure may not. None on one node, and for operations that need another share. Source:
    nccl-tests#196; the arithmetic for 2 nodes of A4, p5 and A3 Mega is in the test.
    """
    if nodes < 2 or op not in HIERARCHICAL:
        return None
    return busbw * (nodes - 1) / (ranks - 1)
