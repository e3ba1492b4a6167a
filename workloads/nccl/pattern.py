"""Verification data: the expected result is exact to the last bit, so a single wrong element is detected.

Reductions: x_r[i] = (7i + 13r) mod m with m at most floor(2^p / n) + 1. Every partial sum is a whole number of at most
2^p, which the type holds exactly, so the sum is the same in any order and for any algorithm (as in nccl-tests).
Data that is moved: a hash of (source, destination, position), which detects shifted or misrouted data, plus the salt.
`salt` differs between consecutive verifications, which detects stale data.
The comparison is bit by bit: a flipped sign of a zero is an error as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd
from zlib import crc32

import torch

EXACT_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8, torch.uint8: 8}
"""p, where whole numbers up to 2^p are exact; below 2^p in uint8, which therefore cannot hold a sum."""
BITS_AS = {4: torch.int32, 2: torch.int16, 1: torch.uint8}
CHUNK = 2**22

Generator = Callable[[int, int], torch.Tensor]
"""Returns the values at positions start … start + count - 1 for (start, count), shape [count]."""


class ReductionPattern:
    """Contribution of each of `world` ranks to a sum, and the sum."""

    def __init__(self, world: int, dtype: torch.dtype, device: torch.device) -> None:
        self.world, self.dtype, self.device = world, dtype, device
        self.top = 2 ** EXACT_BITS[dtype] // world
        # With more ranks than 2^p, only every stride-th rank contributes: a 1.
        self.stride = -(-world // 2 ** EXACT_BITS[dtype])
        self.period = _period(world, self.top) if self.top else self.stride

    def contribution(self, rank: int, salt: int) -> Generator:
        """Return the input of `rank`."""
        return lambda start, count: self._values(self._positions(start, count, salt), rank).to(self.dtype)

    def total(self, salt: int, offset: int = 0) -> Generator:
        """Return the sum over all ranks, from position `offset` on."""

        def generate(start: int, count: int) -> torch.Tensor:
            positions = self._positions(start + offset, count, salt)
            if self.period > count:
                return self._sum(positions).to(self.dtype)
            return self._table[positions % self.period]

        return generate

    @cached_property
    def _table(self) -> torch.Tensor:
        """The sums of one period, of any number of ranks: the pattern repeats."""
        return self._sum(torch.arange(self.period, device=self.device)).to(self.dtype)

    def _positions(self, start: int, count: int, salt: int) -> torch.Tensor:
        return torch.arange(start, start + count, device=self.device) + salt

    def _values(self, positions: torch.Tensor, rank: int) -> torch.Tensor:
        if self.top > 0:
            return torch.remainder(7 * positions + 13 * rank, self.period)
        return torch.remainder(positions + rank, self.stride).eq(0).long()

    def _sum(self, positions: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(positions)
        for rank in range(self.world):
            total += self._values(positions, rank)
        return total


def _period(world: int, top: int) -> int:
    """Return the largest suitable m of 2 … top + 1.

    With 7 or 13 as a factor, positions or ranks would have equal data. If m divides the number of ranks, all positions
    have the same sum, and stale data would pass; some m avoids that up to 32 ranks in bf16, 256 in fp16 and thousands
    in fp32.
    """
    candidates = [m for m in range(top + 1, 1, -1)[:100] if gcd(m, 7 * 13) == 1]
    return next((m for m in candidates if world % m), candidates[0])


def moved(source: int, destination: int, salt: int, dtype: torch.dtype, device: torch.device) -> Generator:
    """Return the data from `source` to `destination`: pseudorandom whole numbers below 2^p.

    At every position it differs from the data of the 2^p - 1 previous and next salts.
    """
    key = crc32(f"{source} {destination}".encode())
    mask = 2 ** EXACT_BITS[dtype] - 1

    def generate(start: int, count: int) -> torch.Tensor:
        # 64-bit products may wrap; the low 32 bits are the same.
        value = (torch.arange(start, start + count, device=device) * 0x9E3779B1 + key) & 0xFFFFFFFF
        value = ((value ^ (value >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        value = ((value ^ (value >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        found: torch.Tensor = ((((value ^ (value >> 16)) >> (32 - EXACT_BITS[dtype])) + salt) & mask).to(dtype)
        return found

    return generate


def fill(buffer: torch.Tensor, generate: Generator) -> None:
    """Write the pattern into a flat buffer, in chunks that bound the additional memory."""
    for start in range(0, buffer.numel(), CHUNK):
        piece = buffer[start : start + CHUNK]
        piece.copy_(generate(start, len(piece)))


def spoil(buffer: torch.Tensor, right: Generator) -> None:
    """Make a flat buffer wrong at every position, whatever it holds: NaN, or the right byte with all bits flipped."""
    if buffer.is_floating_point():
        buffer.fill_(torch.nan)
    else:
        fill(buffer, right)
        buffer.bitwise_not_()


def count_wrong(buffer: torch.Tensor, generate: Generator) -> int:
    """Count the elements of a flat buffer that differ in any bit from the pattern."""
    wrong = torch.zeros((), dtype=torch.int64, device=buffer.device)
    for start in range(0, buffer.numel(), CHUNK):
        piece = buffer[start : start + CHUNK]
        wrong += (bits(piece) != bits(generate(start, len(piece)))).sum()
    return int(wrong.item())


def flip(buffer: torch.Tensor, position: int) -> None:
    """Flip one bit of one element, the smallest error."""
    bits(buffer)[position] ^= 1


def bits(values: torch.Tensor) -> torch.Tensor:
    """View the same memory as whole numbers."""
    whole: torch.Tensor = values.view(BITS_AS[values.dtype.itemsize])
    return whole
