"""Message sizes: binary units as nccl-tests writes them (4G is 2³² bytes), and the sweep over them."""

from __future__ import annotations

import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
MOST = 1000  # rows of one operation: more is a slip of the step


def parse_size(text: str) -> int:
    """Bytes of `1K`, `16M`, `8G` or `4096`; ValueError for anything else and for zero."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size: write a whole number of bytes, or one with K, M or G, such as 16M")
    return int(match[1]) * UNITS[match[2]]


def sweep(begin: int, end: int, factor: int | None = None, step: int | None = None) -> list[int]:
    """begin, begin·factor, … or begin, begin + step, … up to and including end, in bytes; one of the two is given."""
    if (factor is None) == (step is None):
        raise ValueError("sizes grow by a factor (-f) or by a step (-i): give one of the two")
    if begin > end:
        raise ValueError(f"the sweep begins at {format_size(begin)}, above its end {format_size(end)}: swap -b and -e")
    if step is not None:
        number = (end - begin) // step + 1
        if number > MOST:
            raise ValueError(
                f"steps of {format_size(step)} from {format_size(begin)} to {format_size(end)} are {number} sizes,"
                f" more than {MOST}: use a larger -i, or a factor with -f"
            )
        return [begin + index * step for index in range(number)]
    assert factor is not None
    if factor < 2:
        raise ValueError(f"a step factor of {factor} would never end: use 2 or more")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


def format_size(size: int) -> str:
    """`16 MiB`, `1.5 KiB`, `100 B`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
