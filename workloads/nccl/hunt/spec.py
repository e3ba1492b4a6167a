"""What a hunt on a cluster is to do: written by the client, read by the driver. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from workloads.nccl.hunt.plan import Settings
from workloads.nccl.spec import Spec

FAULTS = ("slow-node", "slow-rail", "slow-burn", "hang-node", "corrupt-node")


@dataclass(frozen=True)
class HuntSpec:
    """One hunt over `nodes` nodes with `per_node` ranks each.

    `unit` is what can be accused: whole nodes, or single ranks (one GPU each). `size` in bytes is that of the
    all_gather, over all ranks of a test. `timeout_s` bounds a test, `wait_s` the wait for nodes. `inject_fault` is a
    rehearsal of a broken unit, recorded in the result; see `Planted`.
    """

    nodes: int
    per_node: int
    unit: Literal["node", "rank"]
    use_gpu: bool
    size: int
    iterations: int
    samples: int
    threshold: float
    floor: float | None
    full: bool
    single: bool
    timeout_s: float
    wait_s: float
    elastic: bool
    target: str
    seed: int = 0
    inject_fault: str | None = None

    @property
    def rails(self) -> int:
        """Ranks of a unit."""
        return self.per_node if self.unit == "node" else 1

    @property
    def units(self) -> int:
        return self.nodes * self.per_node // self.rails

    @property
    def settings(self) -> Settings:
        """How the search goes. The margin shrinks with the threshold, as noise does with what it is measured by."""
        return Settings(
            threshold=self.threshold,
            margin=self.threshold / 30,
            floor=self.floor,
            samples=self.samples,
            rails=self.rails,
            full=self.full,
            single=self.single,
            seed=self.seed,
        )

    def gang(self) -> Spec:
        """The ranks that the hunt needs, as a gang is asked for."""
        return Spec(
            ops=["all_gather"],
            sizes=[self.size],
            iterations=self.iterations,
            warmup=1,
            check=1,
            dtypes=["fp32"],
            modes=["throughput"],
            nodes=self.nodes,
            per_node=self.per_node,
            use_gpu=self.use_gpu,
            timeout_s=self.timeout_s,
            wait_s=self.wait_s,
            elastic=self.elastic,
            target=self.target,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> HuntSpec:
        return HuntSpec(**json.loads(text))


@dataclass(frozen=True)
class Planted:
    """A planted fault: `KIND:UNIT`, or `slow-rail:UNIT.RAIL`.

    slow-node and slow-rail sleep before every run of a network test, slow-burn before every run of a burn; hang-node
    never starts a network test; corrupt-node spoils an element that it received.
    """

    kind: str
    unit: int
    rail: int | None = None

    def hits(self, unit: int, rail: int) -> bool:
        """Whether rank `rail` of `unit` has it."""
        return unit == self.unit and self.rail in (None, rail)


def parse_fault(text: str | None, units: int, rails: int) -> Planted | None:
    """The fault that `--inject-fault` asks for; ValueError where there is no such fault."""
    if text is None:
        return None
    kind, _, where = text.partition(":")
    unit, dot, rail = where.partition(".")
    known = kind in FAULTS and unit.isdigit() and int(unit) < units and bool(dot) == (kind == "slow-rail")
    if not known or (dot and not (rail.isdigit() and int(rail) < rails)):
        raise ValueError(
            f"{text!r} is no fault: write {', '.join(f'{fault}:UNIT' for fault in FAULTS if fault != 'slow-rail')}"
            f" or slow-rail:UNIT.RAIL, with a unit below {units} and a rail below {rails}"
        )
    return Planted(kind, int(unit), int(rail) if dot else None)
