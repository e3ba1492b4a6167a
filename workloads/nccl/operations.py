"""Measured operations on one rank: buffers, a timed call, and the expected result.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the buffer per rank for all_reduce, broadcast, reduce and sendrecv, the
total over all ranks for all_gather, reduce_scatter, all_to_all, gather and scatter. For p2p a size is what one receiver
gets from all its senders together: one message, or in an incast one share from each, so a size means the same time for
the receiver's NICs in every pattern. A size is rounded down to whole elements, at least one each. The root is rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from workloads.nccl.kinds import ALL_RANKS, ROOT, WINDOW, BenchKind, RankPosition
from workloads.nccl.pattern import Generator, ReductionPattern, count_wrong, fill, moved, spoil
from workloads.nccl.units import REDUCTIONS

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}


class Operation:
    """One operation at one size on one rank.

    `size` is the row's size in bytes, `takes_part` is False for a rank that only waits at barriers. There are two
    verifications: fill() → run() → wrong(), and prepare() → run() → arm() → many timed run() → left_wrong().
    """

    def __init__(
        self, kind: BenchKind, place: RankPosition, size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.kind, self.place, self.dtype, self.device = kind, place, dtype, device
        self.count = max(1, size // (dtype.itemsize * kind.pieces(place)))
        self.size = self.count * dtype.itemsize * kind.pieces(place)
        self.destinations, self.sources = kind.destinations(place), kind.sources(place)
        self.takes_part = bool(self.destinations or self.sources)
        self.sent = self._empty(1 if kind.in_place else len(self.destinations))
        self.received = self.sent if kind.in_place else self._empty(len(self.sources))
        self.outgoing = list(zip(self.sent.view(-1, self.count).unbind(), self.destinations, strict=False))
        self.incoming = list(zip(self.received.view(-1, self.count).unbind(), self.sources, strict=False))
        self.sums = ReductionPattern(place.world, dtype, device) if kind.op in REDUCTIONS else None
        self.salt = 0
        # An in-place sum consumes its input. Further runs on their own results would grow n-fold (and overflow) or, on
        # inputs that cancel out, add zeros, which draw less power than data; nccl-tests' in-place runs grow. torch has
        # no all_reduce from one buffer to another, and ReduceOp.AVG is another kernel, without NVLS (nccl:
        # src/enqueue.cc, hostToDevRedOp; src/include/device.h, ncclNvlsSupported; v2.30).
        consumes = kind.in_place and self.sums is not None
        self.kept = torch.empty_like(self.sent) if consumes else None
        self.restore = self._restore if consumes else None
        """Write the input again, untimed before each run; None if runs keep their input."""

    def run(self) -> None:
        """Run the operation once."""
        RUNS[self.kind.op](self)

    def checks(self) -> list[tuple[torch.Tensor, Generator]]:
        """Return the received buffers with the expected result of a run."""
        if self.sums is not None:
            return [(buffer, self.sums.total(self.salt, piece * self.count)) for buffer, piece in self.incoming]
        return [(buffer, self._moved(source, self.place.rank)) for buffer, source in self.incoming]

    def fill(self, salt: int) -> None:
        """Write new input, different from that of any other salt, and wrong data at each received position."""
        self.salt = salt
        self.arm()
        if self.sums is not None:
            fill(self.sent, self.sums.contribution(self.place.rank, salt))
        else:
            for buffer, destination in self.outgoing:
                fill(buffer, self._moved(self.place.rank, destination))
        if self.kept is not None:
            self.kept.copy_(self.sent)

    def arm(self) -> None:
        """Make each received position wrong, whatever it holds, even where the result replaces the input:
        `restore` writes the input."""
        if not (self.kind.in_place and self.destinations):
            for buffer, want in self.checks():
                spoil(buffer, want)

    def wrong(self) -> int:
        """Count the wrong elements after a run."""
        return sum(count_wrong(buffer, want) for buffer, want in self.checks())

    def _restore(self) -> None:
        assert self.kept is not None
        self.sent.copy_(self.kept)

    def _empty(self, pieces: int) -> torch.Tensor:
        return torch.zeros(pieces * self.count, dtype=self.dtype, device=self.device)

    def _moved(self, source: int, destination: int) -> Generator:
        destination = ALL_RANKS if self.kind.to_all else destination
        return moved(source, destination, self.salt, self.dtype, self.device)


def buffers(pieces: Sequence[tuple[torch.Tensor, int]]) -> list[torch.Tensor] | None:
    """Return the pieces as torch's gather and scatter take them: None except at the root."""
    return [buffer for buffer, _ in pieces] or None


def exchange(operation: Operation, window: int) -> None:
    """Send and receive all pieces at once, each in `window` parts. NCCL pairs them in order, gloo by the tag."""
    posted = []
    for slot in range(window):
        batch = [
            dist.P2POp(call, parts[slot], peer, tag=slot)
            for call, pieces in ((dist.isend, operation.outgoing), (dist.irecv, operation.incoming))
            for buffer, peer in pieces
            if slot < len(parts := buffer.chunk(window))  # a single element is a single part
        ]
        posted += dist.batch_isend_irecv(batch) if batch else []
    for work in posted:
        work.wait()


RUNS: dict[str, Callable[[Operation], object]] = {
    "all_reduce": lambda it: dist.all_reduce(it.received),
    "all_gather": lambda it: dist.all_gather_into_tensor(it.received, it.sent),
    "reduce_scatter": lambda it: dist.reduce_scatter_tensor(it.received, it.sent),
    "all_to_all": lambda it: dist.all_to_all_single(it.received, it.sent),
    "broadcast": lambda it: dist.broadcast(it.received, src=ROOT),
    "reduce": lambda it: dist.reduce(it.received, dst=ROOT),
    "gather": lambda it: dist.gather(it.sent, buffers(it.incoming), dst=ROOT),
    "scatter": lambda it: dist.scatter(it.received, buffers(it.outgoing), src=ROOT),
    "sendrecv": lambda it: exchange(it, window=1),
    "p2p": lambda it: exchange(it, WINDOW),
}
"""How torch.distributed runs each operation once."""
