"""The product of the settings that exclude each other: every cell is valid, or rejected with a reason.

What another target's machine or fabric excludes does not depend on the other settings but the capacity; the rest is the
full product. The valid cells are defined here a second time, by hand from the clouds' documents and not from the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from infra.catalog.machines import CATALOG
from infra.catalog.pins import RAY
from infra.settings import Problem
from tests.unit.stacks import names, problems_of

ROCE_MACHINES = ("a3-ultragpu-8g", "a4-highgpu-8g")
SMALL_MACHINES = ("g2-standard-4", "g2-standard-8", "n2d-standard-8", "n2d-standard-16")
EFA_MACHINES = (
    "p4d.24xlarge",
    "p4de.24xlarge",
    "p5.48xlarge",
    "p5e.48xlarge",
    "p5en.48xlarge",
    "p6-b200.48xlarge",
    "p6-b300.48xlarge",
    "g6.8xlarge",
    "g6e.8xlarge",
    "g7e.8xlarge",
    "p5.4xlarge",
)
MACHINES = {"local": (None,), "gke": ROCE_MACHINES + SMALL_MACHINES, "eks": EFA_MACHINES}
FABRICS = {
    "local": (None,),
    "gke": ("multi-network", "dranet", "managed-dranet", "socket"),
    "eks": ("efa", "efa-dranet"),
}
LOCATION = {"gke": "us-central1-b", "eks": "us-east-1a"}
RESERVATION = {"gke": "ours", "eks": "cr-0123456789abcdef0"}


@dataclass(frozen=True)
class Cell:
    """One combination."""

    target: str
    machine: str | None
    capacity: str | None
    fabric: str | None
    queue: str
    compute_class: bool
    fallback: str | None
    least: int | None

    def raw(self) -> dict[str, Any]:
        """The stack file of this combination; everything that is not under test is as the target wants it."""
        nodes = {"machine": self.machine, "capacity": self.capacity, "fallback": self.fallback, "min": self.least}
        if {"reservation", "capacity-block"} & {self.capacity, self.fallback} and self.target != "local":
            nodes["reservation"] = RESERVATION[self.target]
        cloud = self.target != "local"
        return {
            "target": self.target,
            "location": LOCATION.get(self.target),
            "nodes": nodes,
            "fabric": self.fabric,
            "queue": self.queue,
            "computeClass": self.compute_class,
            "ray": {"image": f"example/ray:{RAY}-py311-cu128"} if cloud else {},
        }


def valid(cell: Cell) -> bool:
    """Whether the clouds would take this combination."""
    return {"local": valid_local, "gke": valid_gke, "eks": valid_eks}[cell.target](cell)


def valid_local(cell: Cell) -> bool:
    """This machine: nothing to choose."""
    return cell == Cell("local", None, None, None, "none", False, None, None)


def valid_gke(cell: Cell) -> bool:
    """RoCE machines come by flex-start, queued flex-start, spot or reservation, not on demand; those without RDMA by
    spot, reservation or on demand."""
    if cell.machine in SMALL_MACHINES and cell.fabric == "socket":
        direct = ("spot", "reservation", "on-demand")
        others = tuple(mode for mode in direct if mode != cell.capacity) if cell.compute_class else ()
        return cell.capacity in direct and (cell.fallback is None or cell.fallback in others)
    if cell.machine not in ROCE_MACHINES or cell.fabric not in ("multi-network", "dranet", "managed-dranet"):
        return False
    if cell.fabric != "multi-network" and "flex-start-queued" in (cell.capacity, cell.fallback):
        return False
    if cell.fabric == "dranet":
        return cell.capacity in ("spot", "reservation") and (cell.fallback, cell.least) == (None, 1)
    if cell.capacity == "flex-start-queued":
        return (cell.queue, cell.compute_class, cell.fallback, cell.least) == ("kueue", False, None, 0)
    direct = ("flex-start", "spot", "reservation")
    if cell.capacity not in direct or (cell.capacity == "flex-start" and cell.least == 1):
        return False
    second = tuple(mode for mode in direct if mode != cell.capacity) if cell.compute_class else ()
    if cell.capacity == "reservation" and cell.queue == "kueue" and not cell.compute_class:
        second = ("flex-start-queued",)
    return cell.fallback is None or cell.fallback in second


def valid_eks(cell: Cell) -> bool:
    """EFA machines come on demand, by reservation, by Capacity Block but for G types, and by spot but for B300."""
    if cell.machine not in EFA_MACHINES or cell.compute_class or cell.fallback is not None:
        return False
    if cell.fabric == "efa-dranet" and cell.least == 0:
        return False
    if cell.fabric not in ("efa", "efa-dranet"):
        return False
    if cell.capacity == "capacity-block":
        return cell.least == 0 and not str(cell.machine).startswith("g")
    if cell.capacity == "spot":
        return cell.machine != "p6-b300.48xlarge"
    return cell.capacity in ("on-demand", "reservation")


def cells(target: str) -> Iterator[Cell]:
    """The product for one target. The local target may also leave things out; on a cloud that only means a default."""
    local = target == "local"
    out, numbers = ((None,), (None, 1)) if local else ((), (0, 1))
    capacities = (*out, *names("nodes.capacity"))
    fallbacks = (None, *names("nodes.capacity"))
    for machine, fabric in product((*out, *CATALOG), (*out, *names("fabric"))):
        if machine in MACHINES[target] and fabric in FABRICS[target]:
            for capacity, queue, compute_class, fallback, least in product(
                capacities, names("queue"), (False, True), fallbacks, numbers
            ):
                yield Cell(target, machine, capacity, fabric, queue, compute_class, fallback, least)
        else:
            for capacity in capacities:
                yield Cell(target, machine, capacity, fabric, "none", False, None, numbers[0])


@pytest.mark.parametrize(
    ("target", "size", "valid_cells"),
    [
        ("local", 7 * 2 * 2 * 7 * 2 + (19 * 8 - 1) * 7, 1),
        # Two machines. multi-network: flex-start 8, spot 16, reservation 16, and 2 with queued machines next, queued 1;
        # managed-dranet: without the queued ones; dranet: spot 4, reservation 4.
        # Four without RDMA: each of three kinds 4, and with a ComputeClass 12.
        ("gke", 6 * 4 * 6 * 2 * 2 * 7 * 2 + (18 * 7 - 6 * 4) * 6, 2 * (43 + 40 + 8) + 4 * 3 * (4 + 12)),
        # efa: on demand 28, reservation 28, spot 24, block 14; efa-dranet: on demand 14, reservation 14, spot 12. Four
        # small ones: each kind 4 and 2, block 2 of p5.4xlarge.
        ("eks", 11 * 2 * 6 * 2 * 2 * 7 * 2 + (18 * 7 - 11 * 2) * 6, 94 + 40 + 3 * 18 + 20),
    ],
)
def test_every_cell_is_valid_or_rejected_with_a_reason(target: str, size: int, valid_cells: int) -> None:
    seen, accepted = 0, 0
    for cell in cells(target):
        seen += 1
        problems = problems_of(cell.raw(), stack="stack")
        assert (not problems) == valid(cell), (cell, problems)
        accepted += not problems
        for problem in problems:
            assert_useful(problem)
    assert (seen, accepted) == (size, valid_cells)


def assert_useful(problem: Problem) -> None:
    """A problem names settings that exist with their values, and gives a reason, a fix and a source."""
    assert problem.settings
    assert len(problem.values) == len(problem.settings) == len(set(problem.settings))
    assert all((problem.message, problem.fix, problem.source))
