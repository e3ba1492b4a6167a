"""What a measurement is judged by: the machine that was paid for, its published figures, and what was asked. Pure.

This is the client's side: the machine catalog is not on the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.catalog.baselines import BASELINES, Baseline
from infra.catalog.machines import CATALOG
from workloads.client.limits import limits_of
from workloads.exits import WorkloadError
from workloads.nccl.bandwidth import BUSBW_FACTORS
from workloads.nccl.limits import OP as POINT_TO_POINT
from workloads.nccl.limits import Limits


@dataclass(frozen=True)
class Expectation:
    """`nodes` machines of one type. `gbps_per_nic` in Gbit/s, each way; `nics` and `gpus` are those of one machine.

    `ops` are the operations that must be there and meet a floor; without any, what is there is judged, and one floor
    must be met. `need_floor`, `need_log` and `need_check` are false where the user does without a published figure, the
    transport's evidence, the check of the data.
    """

    machine: str
    nodes: int
    gpus: int
    gpu: str
    nics: int
    gbps_per_nic: int
    transport: str
    floors: tuple[Baseline, ...]
    ops: tuple[str, ...] = ()
    need_floor: bool = True
    need_log: bool = True
    need_check: bool = True

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    @property
    def limits(self) -> Limits | None:
        """What the links between single ranks can carry."""
        return limits_of(self.machine)


def expectation_of(
    machine: str,
    nodes: int,
    ops: Sequence[str] = (),
    *,
    need_floor: bool = True,
    need_log: bool = True,
    need_check: bool = True,
) -> Expectation:
    """The expectation for `nodes` machines of that type. Raises `WorkloadError` where there can be none."""
    row = CATALOG.get(machine)
    if row is None:
        raise WorkloadError(f"--machine {machine}: no such type in the catalog; there are {', '.join(CATALOG)}")
    if row.unsupported is not None:
        raise WorkloadError(f"--machine {machine} cannot be judged: {row.unsupported}")
    # Point-to-point rows are held to their limits whether asked for or not, and have no published figures.
    known = [op for op in BUSBW_FACTORS if op != POINT_TO_POINT]
    if unknown := [op for op in ops if op not in known]:
        raise WorkloadError(f"--op {unknown[0]}: choose from {', '.join(known)}")
    return Expectation(
        machine=machine,
        nodes=nodes,
        gpus=row.gpus,
        gpu=row.gpu,
        nics=row.nics,
        gbps_per_nic=row.gbps_per_nic,
        transport=row.transport,
        floors=BASELINES.get(machine, ()),
        ops=tuple(ops),
        need_floor=need_floor,
        need_log=need_log,
        need_check=need_check,
    )
