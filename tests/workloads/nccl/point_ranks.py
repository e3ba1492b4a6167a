"""Rank of a real gloo group for tests/workloads/nccl/test_points.py: every variant, with and without faults."""

from __future__ import annotations

import torch.distributed as dist

from workloads.nccl.answer import RowRequest
from workloads.nccl.device import Cpu
from workloads.nccl.kinds import RankPosition, point_to_point
from workloads.nccl.loop import Loop
from workloads.nccl.operations import DTYPES, Operation
from workloads.nccl.options import Fault
from workloads.nccl.point_patterns import Variant, fan_in, flows, variants

RANKS = 4
SIZE = 4100  # 1025 elements of fp32: pieces and shares that are not all alike


def every_variant(rank: int, world: int) -> list[str]:
    """Return what is wrong on this rank."""
    # Ranks per node, which to the ranks are but a number, and data types.
    cases = [*((2, dtype) for dtype in DTYPES), (1, "fp32"), (4, "fp32")]
    problems = [
        measure(RankPosition(rank, world, per_node), variant, dtype, None)
        for per_node, dtype in cases
        for variant in variants(world // per_node, per_node)
    ]
    # One of these ranks receives in every variant that crosses nodes, apart from rail 1.
    faults = [Fault(kind, spoiled) for kind in ("corrupt", "stale") for spoiled in (0, 2)]
    problems += [
        measure(RankPosition(rank, world, 2), each, "fp32", fault) for fault in faults for each in variants(2, 2)
    ]
    return [problem for problem in problems if problem]


def measure(place: RankPosition, variant: Variant, dtype: str, fault: Fault | None) -> str:
    """Measure one row with or without a fault. Returns what is not as expected, or nothing."""
    mine = fault if fault and fault.rank == place.rank else None
    operation = Operation(point_to_point(variant), place, SIZE, DTYPES[dtype], Cpu.torch_device)
    operation.fill(1)
    before = operation.wrong()
    dist.barrier()
    key = {"op": "p2p", "variant": variant.name, "mode": "throughput", "dtype": dtype, "size": SIZE}
    row = RowRequest.model_validate(key | {"iterations": 3, "warmup": 1, "check": 1})
    answer = Loop(Cpu(), mine).measure(operation, row)
    found = flows(variant, place.world // place.per_node, place.per_node)
    senders = [flow.sender for flow in found if flow.receiver == place.rank]
    received = len(senders) * (SIZE // DTYPES[dtype].itemsize // fan_in(variant, place.per_node))
    # A fault spoils the verifications before, in the last timed run, and after: an element each, or all of them.
    spoiled = 3 * (0 if mine is None else min(1, received) if mine.kind == "corrupt" else received)
    takes_part = place.rank in {end for flow in found for end in (flow.sender, flow.receiver)}
    # Received data is poisoned: nothing is right before it has run.
    expected = (received, spoiled, takes_part, True)
    seen = (before, answer.wrong, answer.takes_part, answer.timing.total > 0)
    return "" if seen == expected else f"{place} {variant.name} {dtype} {fault}: {seen}, not {expected}"
