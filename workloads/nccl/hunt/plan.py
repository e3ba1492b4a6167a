"""The words of the hunt: a test, what came of it, and how a search asks for tests.

A *unit* is what can be accused: a node, or with `--unit rank` a single GPU. Units are counted from 0. A `Probe` is one
test: one process group among some units, formed and measured; several samples of it are one test. A round is a set of
tests that share no unit and run at once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, TypeVar

Kind = Literal["burn", "intra", "group", "pair", "rail"]
"""One unit's compute; one unit's own ranks; a ring over many units; a ring over two; one rank of each of two."""

Broken = Literal["hang", "wrong", "error"]
"""No answer in time; wrong data; the ranks failed. Each fails a test whatever its bandwidth."""

NETWORK: tuple[Kind, ...] = ("group", "pair")
"""The kinds that count as tests of a hunt; `rail` tests come after the unit is known, the rest needs no partner."""


SINGLE: tuple[Kind, ...] = ("burn", "intra")
"""The kinds that measure a unit on its own."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One test. `suspects` are the units in question, the others are known good; `stage` says why it is run.

    A rail test uses rank `rail` of the first unit and rank `rail` of the second, or the next one where `shifted`.
    """

    kind: Kind
    units: tuple[int, ...]
    stage: str
    suspects: tuple[int, ...] = ()
    rail: int | None = None
    shifted: bool = False
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a test gave: samples in GB/s busbw (TFLOP/s for a burn), or how it broke."""

    samples: tuple[float, ...] = ()
    broken: Broken | None = None
    detail: str = ""


@dataclass(slots=True)
class Outcome:
    """A test that was run: in which round, beside which others, and how it was judged (None: not yet, or not at all).

    `reference` is what a healthy test of this kind gives, `limit` the share of it below which this one fails.
    `unsteady` is set where some of many samples clearly pass and some clearly do not: it counts as failed.
    """

    number: int
    round: int
    probe: Probe
    alone: bool
    samples: list[float]
    broken: Broken | None = None
    detail: str = ""
    reference: float | None = None
    limit: float = 0.0
    failed: bool | None = None
    unsteady: bool = False

    @property
    def value(self) -> float | None:
        """The median of the samples; None where the test broke."""
        return median(self.samples) if self.samples and self.broken is None else None

    @property
    def share(self) -> float | None:
        """Measured over reference."""
        value = self.value
        return None if value is None or not self.reference else value / self.reference

    def partners(self, unit: int) -> tuple[int, ...]:
        return tuple(other for other in self.probe.units if other != unit)


@dataclass(frozen=True)
class Settings:
    """How a hunt goes.

    A test fails below `threshold` of its reference; within `margin` of the threshold it is measured again and the
    median of three decides. `floor` is the busbw in GB/s that a healthy fleet gives: it judges the fleet as a
    whole, and a pair that has nothing else to be compared with. Fleets of up to `small` units are searched by pairs,
    larger ones by groups; `full` measures every pair of a small fleet. `rails` is the number of ranks in a unit.
    """

    threshold: float = 0.90
    margin: float = 0.03
    floor: float | None = None
    samples: int = 1
    rails: int = 1
    full: bool = False
    single: bool = True
    small: int = 32
    seed: int = 0

    def seeded(self, seed: int) -> Settings:
        return replace(self, seed=seed)


Severity = Literal["isolate", "drain", "monitor"]
Fault = Literal["slow", "unsteady", "hang", "wrong", "error", "burn", "intra"]


@dataclass
class Accused:
    """A unit that is named, by which tests. `rails` are those that are slow alone (None: not looked at)."""

    unit: int
    fault: Fault
    evidence: list[Outcome]
    rails: list[int] | None = None

    @property
    def partners(self) -> list[tuple[int, ...]]:
        return [outcome.partners(self.unit) for outcome in self.evidence]

    @property
    def share(self) -> float | None:
        shares = [outcome.share for outcome in self.evidence if outcome.share is not None]
        return median(shares) if shares else None


@dataclass
class Finding:
    """Something that is wrong and no unit's proven fault.

    undecided: one of `units`, and too few known-good partners to say which. fabric: slow only while other tests run, or
    only on the path between two. intermittent: failed once and not again. fleet: all of it below the floor. unjudged:
    nothing to compare with.
    """

    kind: Literal["undecided", "fabric", "intermittent", "fleet", "unjudged"]
    units: tuple[int, ...]
    text: str
    evidence: list[Outcome] = field(default_factory=list)


Round = tuple[Probe, ...]
T = TypeVar("T")
Steps = Generator[Round, Sequence[Answer], T]
"""A search: yields rounds, is sent one Answer per test in the same order, and returns what it found."""
