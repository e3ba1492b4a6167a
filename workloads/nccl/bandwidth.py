"""Bandwidth formulas of nccl-tests (doc/PERFORMANCE.md at a0b82b22). Pure."""

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
    "sendrecv": _whole,
}


def algbw(size: int, seconds: float) -> float:
    """GB/s (decimal): `size` bytes, as nccl-tests defines the row's size, over `seconds` per operation."""
    return size / seconds / 1e9


def busbw(op: str, size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth, GB/s (decimal): comparable to the hardware's, whatever the number of ranks."""
    return algbw(size, seconds) * BUSBW_FACTORS[op](ranks)
