"""Rank of a real gloo group for tests/workloads/test_points.py: every variant, with and without faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from workloads.nccl.device import Cpu
from workloads.nccl.loop import Loop, Measurement
from workloads.nccl.operations import DTYPES, Operation, Place, point_to_point
from workloads.nccl.options import Fault
from workloads.nccl.point_patterns import variants

RANKS = 4
SHAPES = ((2, 2), (4, 1), (1, 4))  # (nodes, ranks per node): to the ranks a node is but a number
SIZE = 4100  # 1025 elements of fp32: pieces and shares that are not all alike
FAULTS = [Fault(kind, rank) for kind in ("corrupt", "stale") for rank in range(RANKS)]


def rows() -> Iterator[tuple[tuple[int, int], str, Fault | None]]:
    """Yield (shape, data type, fault) of the measurements of each variant of the shape."""
    for shape in SHAPES:
        for dtype in DTYPES:
            yield shape, dtype, None
    for fault in FAULTS:
        yield (2, 2), "fp32", fault


def every_variant(rank: int, world: int) -> list[dict[str, Any]]:
    """Return what this rank measures."""
    found: list[dict[str, Any]] = []
    for shape, dtype, fault in rows():
        place = Place(rank, world, shape[1])
        loop = Loop(Cpu(), fault if fault and fault.rank == rank else None)
        for variant in variants(*shape):
            operation = Operation(point_to_point(variant), place, SIZE, DTYPES[dtype], Cpu.torch_device)
            operation.fill(1)
            expected = sum(buffer.numel() for buffer, _ in operation.incoming)
            before = operation.wrong()
            dist.barrier()
            key = {"op": "p2p", "variant": variant.name, "mode": "throughput", "dtype": dtype, "size": SIZE}
            row = Measurement.model_validate(key | {"iterations": 3, "warmup": 1, "check": 1})
            answer = loop.measure(operation, row)
            found.append(
                {
                    "shape": shape,
                    "dtype": dtype,
                    "fault": f"{fault.kind}:{fault.rank}" if fault else None,
                    "variant": variant.name,
                    "expected": expected,
                    "before": before,
                    **asdict(answer),
                }
            )
    return found
