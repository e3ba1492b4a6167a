"""What every measured operation is: buffers on a rank, a call that is timed, and what must come out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from workloads.nccl.pattern import Generator, ReductionPattern, count_wrong, moved, poison, spoil

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}
EVERYONE = -1  # the destination of data that goes to all ranks alike


@dataclass(frozen=True)
class Place:
    """Where a rank stands: ranks are consecutive per node."""

    rank: int
    world: int
    per_node: int

    @property
    def nodes(self) -> int:
        return self.world // self.per_node


@dataclass
class Check:
    """A part of a receive buffer and the pattern that it must hold from position `offset` on."""

    got: torch.Tensor
    want: Generator
    offset: int = 0


class Operation:
    """One operation at one size on one rank.

    `size` is the row's size in bytes, `takes_part` false for a rank that only keeps the barriers. fill() → run() →
    wrong() is one verification; prepare() → run() → arm() → run() many times, which is timed → left_wrong() is another.
    """

    op = ""
    variant: str | None = None
    algorithm = ""  # the torch.distributed call; which algorithm runs below it is the library's choice
    pieces_per_rank = False  # true where the row's size is the total over all ranks
    adds = False  # true where the result is a sum, which uint8 does not hold

    def __init__(self, place: Place, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.place, self.dtype, self.device = place, dtype, device
        pieces = place.world if self.pieces_per_rank else 1
        self.count = max(1, size // (dtype.itemsize * pieces))
        self.size = self.count * dtype.itemsize * pieces
        self.takes_part = True
        self.salt = 0
        if self.adds:
            self.sums = ReductionPattern(place.world, dtype, device)
        self.allocate()

    def allocate(self) -> None:
        raise AssertionError("each operation has its own buffers")

    def run(self) -> None:
        raise AssertionError("each operation has its own call")

    def load(self) -> None:
        """Write this rank's input; what is received is poisoned already."""
        raise AssertionError("each operation has its own input")

    def checks(self) -> Iterator[Check]:
        """What this rank must have received after one run."""
        raise AssertionError("each operation has its own result")

    def left(self) -> Iterator[Check]:
        """What must be there after many runs on one input: the same, unless the result is part of the next input."""
        return self.checks()

    def fill(self, salt: int) -> None:
        """New input, different from that of any other salt; received buffers hold what is wrong at each position."""
        self.salt = salt
        for check in self.checks():
            poison(check.got, check.want, check.offset)
        self.load()

    def prepare(self, salt: int) -> None:
        """The input of the warm-up and of the timed runs."""
        self.fill(salt)

    def arm(self) -> None:
        """Make what was received wrong at each position again, and leave caches as warm as they are."""
        for check in self.checks():
            spoil(check.got)

    def wrong(self) -> int:
        """How many received elements are not what they must be after one run."""
        return _wrong(self.checks())

    def left_wrong(self) -> int:
        """How many received elements are not what they must be after arm() and any number of runs."""
        return _wrong(self.left())

    def empty(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=self.dtype, device=self.device)

    def moved(self, source: int, destination: int) -> Generator:
        return moved(source, destination, self.salt, self.dtype, self.device)


def _wrong(checks: Iterator[Check]) -> int:
    return sum(count_wrong(check.got, check.want, check.offset) for check in checks)
