"""A fleet that does not exist, with planted faults: what a hunt costs there, and how often it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from workloads.nccl.hunt.plan import Answer, Probe, Round, Settings
from workloads.nccl.hunt.search import Verdict, hunt

Planted = Literal["nic", "node", "flapping", "spine"]
KINDS: tuple[Planted, ...] = ("nic", "node", "flapping", "spine")

HEALTHY = 325.0  # GB/s all_gather of two a3-ultra nodes; any value would do
LEAF = 16  # units below one leaf switch


@dataclass(frozen=True)
class Fault:
    """One planted fault. `factor` is what is left of the bandwidth.

    nic: one rail of a unit, and with it every ring through the unit, because rings use all rails alike. node: all
    rails. flapping: the unit, in a `chance` share of the samples. spine: tests that cross the uplinks of leaf `unit`,
    while another one does so too.
    """

    kind: Planted
    unit: int
    factor: float
    rail: int = 0
    chance: float = 1.0


class Fabric:
    """Answers tests as a fleet with these faults would, with Gaussian noise of `noise` on every sample."""

    def __init__(self, faults: Sequence[Fault], noise: float, seed: int) -> None:
        self.faults, self.noise = faults, noise
        self.random = Random(seed)

    def answer(self, tests: Round) -> list[Answer]:
        crowded = {
            fault.unit: sum(_crosses(probe, fault.unit) for probe in tests) > 1
            for fault in self.faults
            if fault.kind == "spine"
        }
        return [Answer(tuple(self._sample(probe, crowded) for _ in range(max(1, probe.samples)))) for probe in tests]

    def _sample(self, probe: Probe, crowded: dict[int, bool]) -> float:
        """A ring is as slow as its slowest member."""
        left = 1.0
        if probe.kind not in ("burn", "intra"):
            for fault in self.faults:
                if fault.factor < left and self._strikes(fault, probe, crowded):
                    left = fault.factor
        return HEALTHY * left * (1 + self.random.gauss(0, self.noise))

    def _strikes(self, fault: Fault, probe: Probe, crowded: dict[int, bool]) -> bool:
        if fault.kind == "spine":
            return crowded[fault.unit] and _crosses(probe, fault.unit)
        if fault.unit not in probe.units:
            return False
        if fault.kind == "nic" and probe.kind == "rail":
            shifted = probe.shifted and probe.units[0] != fault.unit
            return fault.rail == (probe.rail or 0) + shifted
        return fault.kind != "flapping" or self.random.random() < fault.chance


def _crosses(probe: Probe, leaf: int) -> bool:
    inside = sum(unit // LEAF == leaf for unit in probe.units)
    return 0 < inside < len(probe.units)


def plant(units: int, bad: int, kind: Planted, seed: int, worst: float = 0.4, best: float = 0.8) -> list[Fault]:
    """`bad` faults of one kind on different units (one leaf for a spine), each leaving `worst` … `best`."""
    random = Random(f"{seed} {kind}")
    if kind == "spine":
        return [Fault("spine", leaf, 0.5) for leaf in random.sample(range(-(-units // LEAF)), min(bad, 1))]
    return [
        Fault(kind, unit, random.uniform(worst, best), random.randrange(8), 0.5 if kind == "flapping" else 1.0)
        for unit in random.sample(range(units), bad)
    ]


def play(units: int, fabric: Fabric, settings: Settings) -> Verdict:
    """A whole hunt against a simulated fabric."""
    steps = hunt(units, settings)
    try:
        tests = next(steps)
        while True:
            tests = steps.send(fabric.answer(tests))
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict


@dataclass(frozen=True)
class Score:
    """How one simulated hunt did: who was accused wrongly, who was missed, and what it cost."""

    seed: int
    tests: int
    rail_tests: int
    rounds: int
    false: tuple[int, ...]
    missed: tuple[int, ...]
    wrong_rail: int
    kinds: frozenset[str]


def score(units: int, faults: Sequence[Fault], noise: float, settings: Settings, seed: int) -> Score:
    """Play one hunt and compare its verdict with what was planted."""
    verdict = play(units, Fabric(faults, noise, seed), settings)
    guilty = {fault.unit for fault in faults if fault.kind != "spine"}
    named = {one.unit for one in verdict.accused}
    rail_of = {fault.unit: fault.rail for fault in faults if fault.kind == "nic"}
    return Score(
        seed=seed,
        tests=verdict.tests,
        rail_tests=verdict.rail_tests,
        rounds=verdict.rounds,
        false=tuple(sorted(named - guilty)),
        missed=tuple(sorted(guilty - named)),
        wrong_rail=sum(
            one.rails is not None and one.unit in rail_of and one.rails != [rail_of[one.unit]]
            for one in verdict.accused
        ),
        kinds=frozenset(finding.kind for finding in verdict.findings),
    )
