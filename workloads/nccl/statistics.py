"""Bandwidth formulas of nccl-tests (doc/PERFORMANCE.md at a0b82b22) and percentiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

# busbw = algbw · factor(n): the share of the message that every rank must put on its wire, whatever the algorithm.
BUSBW_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,  # noqa: ARG005
    "sendrecv": lambda n: 1.0,  # noqa: ARG005
}


def algbw(size: int, seconds: float) -> float:
    """GB/s (decimal): `size` bytes, as nccl-tests defines the row's size, over `seconds` per operation."""
    return size / seconds / 1e9


def busbw(op: str, size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth, GB/s (decimal): comparable to the hardware's, whatever the number of ranks."""
    return algbw(size, seconds) * BUSBW_FACTORS[op](ranks)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the least value with at least `percent` % of all values at or below it."""
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    # Rounded first: 0.95·20 is 19.000000000000004 in binary floating point.
    return sorted(values)[math.ceil(round(percent * len(values) / 100, 9)) - 1]
