"""Expectation of a measurement: the machine type, its published figures, and the ceilings of its NICs. Pure.

Floors: the largest row of each operation and type counts, out of place, from 1 GiB on; never an average over a sweep,
never the better column. Its floor is the published figure for that machine, operation and number of nodes
at the nearest size that is not above the measured one, so a smaller message's figure never excuses a larger message.
A figure for a named algorithm counts if NCCL used that algorithm, or if nothing shows which one it used; then the
highest counts. Of two publications of one figure, the lower counts.

Ceilings, for `n` ranks on `k` nodes of `g` GPUs: a ring sends every byte of its bus bandwidth through the NICs of each
node, so busbw cannot exceed their sum. Other algorithms move data within a node first; at least busbw·g·(k - 1)/(n - 1)
must then cross (NVIDIA/nccl-tests#196 and #22; stas00/ml-engineering: network/README.md, 744d01e, 2026-08-22).

Bandwidths in GB/s, decimal. This module runs on the client only: the cluster has no machine catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from infra.catalog.baselines import MARGIN, NVLINK, Baseline
from infra.catalog.fabrics import TRANSPORTS
from infra.catalog.machines import CATALOG, Machine
from workloads.evidence.facts import LogFacts
from workloads.exits import WorkloadError
from workloads.nccl.judge.measurement import MeasuredRow, MeasuredRun, RowFigures
from workloads.nccl.judge.nccl_tests import one_algorithm
from workloads.nccl.limits import OP as POINT_TO_POINT
from workloads.nccl.limits import TOLERANCE as TOLERANCE
from workloads.nccl.options import Network
from workloads.nccl.point_patterns import Limits
from workloads.nccl.result import Comparison
from workloads.nccl.units import BUSBW_FACTORS, busbw
from workloads.options import Hidden, option

MIN_SIZE = 2**30
FAIL_BELOW = MARGIN
WARN_BELOW = 0.95
"""Shares of the expected bandwidth: nccl-tests fails below 0.9 of NCCL_TESTS_MIN_BW (its README, read 2026-11); the
warning is our choice."""


def machine_named(name: str) -> Machine:
    """Return the catalog's row. Raises WorkloadError for an unknown machine type."""
    if name not in CATALOG:
        raise WorkloadError(f"--machine {name}: not in the catalog; choose from {', '.join(CATALOG)}")
    return CATALOG[name]


def limits_of(machine: str | None) -> Limits | None:
    """Return the link limits of a machine type; None for `local`, an unknown type, and one without RDMA."""
    if machine is None or machine not in CATALOG or not CATALOG[machine].rdma:
        return None
    row = CATALOG[machine]
    link = NVLINK.get(row.gpu)
    return Limits(
        machine=row.name,
        gpus=row.gpus,
        nics=row.nics,
        gbps_per_nic=row.gbps_per_nic,
        nvlink=link.bandwidth if link else None,
    )


def network_of(transport: str, *, gpu_direct: bool = True) -> Network | None:
    """Return what NCCL's log has to show of a transport; None for sockets, and for one that is not in the catalog."""
    return Network.of(TRANSPORTS[transport], gpu_direct=gpu_direct) if transport in TRANSPORTS else None


def has_gpu_direct(machine: str | None) -> bool:
    """Return whether a machine type has GPUDirect RDMA. One that is not in the catalog has to."""
    return machine not in CATALOG or CATALOG[machine].gpu_direct


class Expectation(BaseModel, frozen=True, extra="forbid"):
    """Run on `nodes` machines of one type. Raises WorkloadError if its machine or an operation cannot be judged.

    `ops` must be measured and meet a floor; without `ops`, whatever was measured is judged and one floor must be met.
    """

    machine: str = Field(description="Machine type, such as a3-ultragpu-8g.")
    nodes: int = Field(ge=1, description="Nodes that took part.")
    transport: Hidden[str | None] = None
    """Transport of the stack's fabric; None for the machine's."""
    ops: Annotated[tuple[str, ...], option(name="--op")] = Field(
        (),
        description="Operation that must be measured and meet its floor; repeatable. Names the operation of"
        " nccl-tests' output that does not name it. [default: all measured operations]",
    )
    no_floor: bool = Field(False, description="Do not require a published figure; all other checks apply.")
    no_log: bool = Field(False, description="Do not require evidence of the transport; a given log still counts.")
    no_check: bool = Field(False, description="Do not require checked data (-c 0).")

    @model_validator(mode="after")
    def _can_be_judged(self) -> Self:
        if (reason := self.row.unsupported) is not None:
            raise WorkloadError(f"--machine {self.machine} cannot be judged: {reason}")
        if not self.row.rdma:
            raise WorkloadError(f"--machine {self.machine} cannot be judged: it has no RDMA NIC")
        # Point-to-point rows are always checked against their limits, and have no published figures.
        known = [op for op in BUSBW_FACTORS if op != POINT_TO_POINT]
        if unknown := [op for op in self.ops if op not in known]:
            raise WorkloadError(f"--op {unknown[0]}: choose from {', '.join(known)}")
        return self

    @property
    def row(self) -> Machine:
        return machine_named(self.machine)

    @property
    def ranks(self) -> int:
        return self.nodes * self.row.gpus

    def includes(self, op: str) -> bool:
        """Return whether `op` is judged."""
        return not self.ops or op in self.ops


def line_rate(machine: Machine) -> float:
    """Return the bandwidth of all NICs of one node, each way: 8 NICs of 400 Gbit/s are 400 GB/s."""
    return machine.nics * machine.gbps_per_nic / 8


def ceiling(op: str, expected: Expectation, algorithms: frozenset[str]) -> float | None:
    """Return the highest possible busbw of `op` between the nodes; None on one node and for other operations."""
    n, k = expected.ranks, expected.nodes
    g, nics = expected.row.gpus, expected.row.nics
    if k < 2:
        return None
    total = line_rate(expected.row)
    hierarchical = total * (n - 1) / (g * (k - 1))
    match op:
        case "all_gather" | "reduce_scatter":
            return total if algorithms <= {"ring"} else hierarchical
        case "all_reduce":
            return total if algorithms == {"ring"} else hierarchical
        case "all_to_all":
            return hierarchical / g  # each of g ranks has its own data for all ranks of other nodes
        case "broadcast" | "reduce":
            return total
        case "gather" | "scatter":
            return total * (n - 1) / (n - g)
        case "sendrecv":
            # One GPU of each node sends to the next node, through its own NICs.
            return total / nics * max(1, nics // g)
        case _:
            return None


def column(row: MeasuredRow) -> RowFigures | None:
    """Return the figures that count: out of place, as in publications."""
    return row.out_of_place


def headline(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return the largest row of each operation and type; of several at that size, the slowest."""
    of_kind: dict[tuple[str, str], list[MeasuredRow]] = {}
    for row in rows:
        of_kind.setdefault((row.op, row.dtype), []).append(row)
    return [max(found, key=lambda row: (row.size, _time(row))) for found in of_kind.values()]


def _time(row: MeasuredRow) -> float:
    figures = column(row)
    return figures.time_us if figures else 0.0


def large_enough(size: int) -> bool:
    """Return whether a row of `size` bytes shows a fabric's bandwidth: latency dominates smaller messages."""
    return size >= MIN_SIZE


def measured(row: MeasuredRow, ranks: int) -> float | None:
    """Return the bus bandwidth in GB/s, from size and time; None if the column was not measured."""
    figures = column(row)
    if figures is None:
        return None
    # A time printed with two digits is less exact than the printed bandwidth, which is checked against it.
    if figures.time_error > 0.01 * figures.time_us and figures.busbw:
        return figures.busbw
    return busbw(row.op, row.size, figures.time_us / 1e6, ranks)


def algorithms_of(op: str, run: MeasuredRun, log: LogFacts) -> frozenset[str]:
    """Return the algorithm that NCCL used for `op` at its largest size (`ring`, `nvlstree`); empty if nothing shows it.

    A log that names algorithms without operations shows it only if it names a single algorithm.
    """
    function = op.title().replace("_", "")  # NCCL's name: AllReduce
    choices = [choice for choice in log.choices if choice.op == function]
    largest = max((choice.size for choice in choices), default=0)
    names = {choice.algorithm for choice in choices if choice.size == largest}
    if not log.choices:
        names = {name.split("/")[0] for name in log.algorithms}
    if len(names) == 1:
        return frozenset(name.lower().replace("_", "") for name in names)
    found = run.algorithm or one_algorithm(log.algorithm_set or "")
    return frozenset({found} if found else ())


def floor_of(floors: Iterable[Baseline], op: str, nodes: int, size: int, algorithms: frozenset[str]) -> Baseline | None:
    """Return the published figure that a row is judged by, by the rule above; None if there is none."""
    matching = [
        floor
        for floor in floors
        if (floor.op, floor.nodes) == (op, nodes)
        and floor.size <= size
        and (floor.algorithm is None or not algorithms or floor.algorithm in algorithms)
    ]
    # Figures that may gate come first, whatever their size.
    matching = [floor for floor in matching if floor.gates] or matching
    nearest = max((floor.size for floor in matching), default=0)
    highest_first = sorted(matching, key=lambda floor: -floor.busbw)
    lowest = {floor.algorithm: floor for floor in highest_first if floor.size == nearest}
    return max(lowest.values(), key=lambda floor: floor.busbw, default=None)


def compare(row: MeasuredRow, value: float, floor: Baseline) -> Comparison:
    """Compare the row's busbw (GB/s) with the published one."""
    return Comparison(
        op=row.op,
        size=row.size,
        measured=round(value, 3),
        expected=floor.busbw,
        share=round(value / floor.busbw, 6),  # rounded, so that 0.9 does not become 0.8999…
        source=f"{floor.source}, {floor.algorithm}" if floor.algorithm else floor.source,
        confidence=floor.confidence,
    )
