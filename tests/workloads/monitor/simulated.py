"""Simulated fleets: snapshots as a monitor writes them, which change from step to step. Nothing of it was measured."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from infra.catalog.pins import RAY
from workloads.monitor.snapshot import (
    NOT_PROBED,
    ActorClass,
    Amount,
    Demand,
    GpuState,
    JobRow,
    NicState,
    NodeState,
    PlacementGroupState,
    Reading,
    Snapshot,
)

START = 1795435200.0
NONE = Amount(used=0, total=0)


@dataclass
class Fleet:
    """A head without GPUs, and workers with eight GPUs and eight NICs of 400 Gbit/s under load.

    Worker 2 has an Xid error and NIC errors; worker 3 is throttled, and one of its NICs is down.

    Args:
        nodes: Their number, the head included.
        dead: Workers that died, counted from 1.
        idle: Workers without work and without a probe.
        jobs: Number of running jobs.
    """

    nodes: int
    dead: Collection[int] = ()
    idle: Collection[int] = ()
    jobs: int = 1
    cluster: str = "simulated"

    def snapshot(self, step: int = 0) -> Snapshot:
        """Return the state after so many steps of two seconds."""
        chance = random.Random(step)
        head = Reading(cpu_percent=round(chance.uniform(5, 15), 1), memory_used=9 * 10**9, memory_total=16 * 10**9)
        running = [
            JobRow(id=f"run-20261121-130501-{n:06x}", workload="run", status="RUNNING", started=START - 5000 - n)
            for n in range(self.jobs)
        ]
        ended = JobRow(
            id="nccl-20261121-110412-c0ffee",
            workload="nccl",
            status="SUCCEEDED",
            started=START - 9000,
            ended=START - 8700,
            message="Job finished successfully.",
        )
        workers, four = self.nodes - 1, "4 of gpu-group"
        return Snapshot(
            cluster=self.cluster,
            ray=RAY,
            time=START + 2 * step,
            interval_s=2,
            nodes=[
                NodeState(
                    id="head", address="10.0.0.2", role="head", state="running", cpus=NONE, gpus=NONE, reading=head
                ),
                *(self._worker(number, chance) for number in range(1, self.nodes)),
            ],
            jobs=[*running, ended],
            actors=[
                ActorClass(name="Loader", states={"ALIVE": 12, "DEAD": 3}),
                ActorClass(name="Rank", states={"ALIVE": 8 * workers}),
            ],
            groups=[
                PlacementGroupState(
                    id="ab" * 14, strategy="STRICT_SPREAD", state="CREATED", bundles=f"{workers} × {{8 GPU, 208 CPU}}"
                )
            ],
            demands=[
                Demand(
                    what="placement group 5f3c12aa STRICT_SPREAD: 4 × {8 GPU, 208 CPU}",
                    count=1,
                    why=f"waiting for nodes: {four} starting",
                )
            ],
            starting=[four],
        )

    def _worker(self, number: int, chance: random.Random) -> NodeState:
        state, changes = "running", dict[str, Any]()
        if number in self.dead:
            state = "dead"
        elif number in self.idle:
            state = "idle"
            changes = {
                "idle_s": 340,
                "note": NOT_PROBED,
            }
        else:
            changes["reading"] = Reading(
                seconds=2,
                cpu_percent=round(chance.uniform(20, 45), 1),
                memory_used=round(chance.uniform(6, 7) * 1e11),
                memory_total=3 * 10**12,
                gpus=[self._gpu(number, index, chance) for index in range(8)],
                nics=[self._nic(number, index, chance) for index in range(8)],
            )
        busy = state == "running"
        return NodeState(
            id=f"worker{number}",
            address=f"10.128.{number // 250}.{number % 250 + 3}",
            role="worker",
            group="gpu-group",
            state=state,
            cpus=Amount(used=208 * busy, total=220),
            gpus=Amount(used=8 * busy, total=8),
            **changes,
        )

    def _gpu(self, number: int, index: int, chance: random.Random) -> GpuState:
        hot = (number, index) == (3, 5)
        return GpuState(
            index=index,
            name="NVIDIA H200",
            utilization=chance.randint(91, 100),
            memory_used=round(chance.uniform(1.15, 1.2) * 1e11),
            memory_total=150_754_820_096,
            power_w=round(chance.uniform(590, 690), 3),
            power_limit_w=700,
            temperature_c=chance.randint(58, 71) + 22 * hot,
            sm_mhz=1980,
            sm_max_mhz=1980,
            limited_by=["HwThermalSlowdown"] if hot else ["SwPowerCap"],
            xids=[79] if (number, index) == (2, 1) else [],
        )

    def _nic(self, number: int, index: int, chance: random.Random) -> NicState:
        down = (number, index) == (3, 6)
        return NicState(
            name=f"mlx5_{index}",
            gbps=400,
            state="DOWN" if down else "ACTIVE",
            sent_gbps=0 if down else round(chance.uniform(280, 370), 2),
            received_gbps=0 if down else round(chance.uniform(280, 370), 2),
            errors={"out_of_sequence": 12} if (number, index) == (2, 0) else {},
        )


@dataclass
class Simulation:
    """Source of a fleet's snapshots, a new one with every poll."""

    fleet: Fleet
    interval_s: float = 2.0
    step: int = 0

    def poll(self) -> Snapshot | None:
        self.step += 1
        return self.fleet.snapshot(self.step)
