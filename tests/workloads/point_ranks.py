"""Four gloo ranks in processes of their own that measure every point-to-point variant, with and without faults.

python -m tests.workloads.point_ranks FOLDER

writes what each rank found to FOLDER/RANK.json. It imports torch once and forks: four imports would take ten times as
long as everything that is measured here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist
from pydantic import BaseModel

from workloads.interfaces import interface_of
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


def measure(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    found: list[dict[str, Any]] = []
    for (_, per_node), dtype, fault in rows():
        place = Place(rank, RANKS, per_node)
        loop = Loop(Cpu(), fault if fault and fault.rank == rank else None)
        for variant in variants(place.nodes, per_node):
            operation = Operation(point_to_point(variant), place, SIZE, DTYPES[dtype], Cpu.torch_device)
            operation.fill(1)
            expected = sum(buffer.numel() for buffer, _ in operation.incoming)
            before = operation.wrong()
            dist.barrier()
            row = Measurement("p2p", variant.name, SIZE, dtype, "throughput", iterations=3, warmup=1, check=1)
            answer = loop.measure(operation, row)
            found.append(
                {
                    "shape": [place.nodes, per_node],
                    "dtype": dtype,
                    "fault": f"{fault.kind}:{fault.rank}" if fault else None,
                    "variant": variant.name,
                    "expected": expected,
                    "before": before,
                    **asdict(answer),
                }
            )
    (folder / f"{rank}.json").write_text(json.dumps(found, default=BaseModel.model_dump))
    dist.destroy_process_group()


def main(folder: Path) -> int:
    os.environ["GLOO_SOCKET_IFNAME"] = interface_of("127.0.0.1") or "lo"
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            measure(rank, folder)
            os._exit(0)  # what the parent registered for its own exit is not the child's
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
