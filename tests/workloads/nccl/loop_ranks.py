"""Rank of a real gloo group for tests/workloads/nccl/test_loop.py: every operation, type, mode and fault."""

from __future__ import annotations

from workloads.nccl.answer import RowRequest
from workloads.nccl.device import Cpu
from workloads.nccl.kinds import COLLECTIVES, RankPosition
from workloads.nccl.loop import Loop, faulty
from workloads.nccl.operations import DTYPES, Operation
from workloads.nccl.options import Fault
from workloads.nccl.presets import Mode
from workloads.nccl.units import REDUCTIONS

RANKS, PER_NODE, SIZE = 4, 2, 256
WARMUP, CHECK, ITERATIONS = 1, 1, 2
CASES = [(op, dtype) for op in COLLECTIVES for dtype in DTYPES if dtype != "uint8" or op not in REDUCTIONS]
FAULTS = ("corrupt", "stale")
TIMED = range(WARMUP + CHECK, WARMUP + CHECK + ITERATIONS)  # the timed runs among all runs of a row


def spoiled(op: str) -> int:
    """Return the rank with the fault, which receives data: the root, or another rank for broadcast."""
    return 1 if op == "broadcast" else 0


Key = tuple[str, str, str]
"""(operation, type, what was done)"""


def row(op: str, dtype: str, mode: Mode = "throughput", check: int = CHECK) -> RowRequest:
    runs = {"iterations": ITERATIONS, "warmup": WARMUP, "check": check}
    return RowRequest(op=op, variant=None, mode=mode, dtype=dtype, size=SIZE, **runs)


def every_case(rank: int, world: int) -> dict[Key, int | None]:
    """Return the number of wrong elements that this rank's loop counts, with and without faults."""
    found: dict[Key, int | None] = {}
    loop = Loop(Cpu())
    place = RankPosition(rank, world, PER_NODE)

    def measure(op: str, dtype: str, what: str, row: RowRequest, fault: Fault | None = None) -> None:
        operation = Operation(COLLECTIVES[op], place, SIZE, DTYPES[dtype], loop.device.torch_device)
        loop.fault = fault if rank == spoiled(op) else None
        found[op, dtype, what] = loop.measure(operation, row).wrong

    for op, dtype in CASES:
        measure(op, dtype, "throughput", row(op, dtype))
        measure(op, dtype, "latency", row(op, dtype, "latency"))
        measure(op, dtype, "unchecked", row(op, dtype, check=0), Fault("corrupt", spoiled(op)))
        for kind in FAULTS:
            measure(op, dtype, kind, row(op, dtype), Fault(kind, spoiled(op)))
        for call in TIMED:
            loop.fault = None
            operation = Operation(COLLECTIVES[op], place, SIZE, DTYPES[dtype], loop.device.torch_device)
            if rank == spoiled(op):
                spoil(operation, call)
            found[op, dtype, f"run {call}"] = loop.measure(operation, row(op, dtype)).wrong
    return found


def spoil(operation: Operation, call: int) -> None:
    """Flip one bit of the last element in the result of one run only, counted over all runs of the row."""
    operation.run = faulty(  # type: ignore[method-assign]  # a library that fails once
        operation.run, operation, "corrupt", lambda number: number == call, position=-1
    )
