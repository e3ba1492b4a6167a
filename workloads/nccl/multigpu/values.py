"""The numbers of the check: what each device starts with and what all must hold in the end. Pure.

Ones on the even devices and twos on the odd ones (the baseline's nccl_allreduce_multigpu.py, DRANET): with 8 devices on
each of 2 nodes every element of every tensor is 4·1 + 4·2 = 12 per node, 24 in all.
"""

from __future__ import annotations

from collections.abc import Sequence

ELEMENTS = 4


def start(device: int) -> float:
    """Every element of this device's tensor before the all-reduce."""
    return 1.0 if device % 2 == 0 else 2.0


def expected(nodes: int, devices: int) -> float:
    """Every element of every tensor after it, with so many devices on each node."""
    return nodes * sum(map(start, range(devices)))


def count_wrong(tensors: Sequence[Sequence[float]], value: float) -> int:
    """How many elements are not `value`; a tensor that is too short or too long is wrong as a whole."""
    return sum(
        sum(element != value for element in tensor) if len(tensor) == ELEMENTS else ELEMENTS for tensor in tensors
    )
