"""Message sizes in binary units as nccl-tests writes them (4G is 2³² bytes), its bandwidths, and number formats.

Bandwidth formulas: doc/PERFORMANCE.md and src/*.cu of nccl-tests at a0b82b22.
"""

from __future__ import annotations

import re
from collections.abc import Callable

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
MAX_SIZES = 1000
"""Upper limit for the sizes of one sweep; a longer one is a mistyped step."""
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


def parse_size(text: str) -> int:
    """Return the bytes of `1K`, `16M`, `8G` or `4096`. ValueError for zero and for other text."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size: write a whole number of bytes, or one with K, M or G, such as 16M")
    return int(match[1]) * UNITS[match[2]]


def sweep(begin: int, end: int, factor: int | None = None, step: int | None = None) -> list[int]:
    """Return the sizes from `begin` up to and including `end`, in bytes, growing by exactly one of `factor` and `step`.

    ValueError if the sweep would be empty, endless or longer than MAX_SIZES.
    """
    if (factor is None) == (step is None):
        raise ValueError("sizes grow by a factor (-f) or by a step (-i): use only one of them")
    if begin > end:
        raise ValueError(f"the sweep begins at {format_size(begin)}, above its end {format_size(end)}: swap -b and -e")
    if step is not None:
        number = (end - begin) // step + 1
        if number > MAX_SIZES:
            raise ValueError(
                f"steps of {format_size(step)} from {format_size(begin)} to {format_size(end)} are {number} sizes,"
                f" more than {MAX_SIZES}: use a larger -i, or a factor with -f"
            )
        return [begin + index * step for index in range(number)]
    assert factor is not None
    if factor < 2:
        raise ValueError(f"a factor of {factor} never reaches the end of the sweep: use 2 or more")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


def format_size(size: int) -> str:
    """Format bytes as `16 MiB`, `1.5 KiB` or `100 B`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def written_size(size: int) -> str:
    """Return bytes as options have them: `16M`, `8G`."""
    return re.sub(" |i?B", "", format_size(size))


def figure(value: float) -> str:
    """Format a number with four significant digits and no exponent: 371.9, 12.35, 0.0421, 12022."""
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if value >= 1 else f"{value:.4f}"


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
