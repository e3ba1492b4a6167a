"""Types of a hunt: tests, their outcomes, and how a search requests tests.

A *unit* is what a hunt can accuse: a node, or a single GPU with `--unit rank`. Units count from 0. A `Probe` is one
test: a process group over some units, formed and measured; several samples of it are one test. A round is a set of
tests that share no unit and run concurrently.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

from workloads.results import Part

Kind = Literal["burn", "intra", "group", "pair", "rail"]
"""One unit's compute; one unit's own ranks; a ring over many units; a ring over two; one rank of each of two."""

Broken = Literal["hang", "wrong", "error"]
"""No answer in time; wrong data; failed ranks. Each fails a test whatever its bandwidth."""

NETWORK: tuple[Kind, ...] = ("group", "pair")
"""Kinds that count as tests of a hunt; `rail` tests follow once the unit is known."""

SINGLE: tuple[Kind, ...] = ("burn", "intra")
"""Kinds that measure a unit without a partner."""

Severity = Literal["isolate", "drain"]
FindingKind = Literal["undecided", "fabric", "intermittent", "fleet", "unjudged"]
Fault = Literal["slow", "unsteady", "hang", "wrong", "error", "burn", "intra"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One test. `suspects` are the units in question, the others are known good; `stage` is why it runs.

    A rail test uses rank `rail` of the first unit and rank `rail` of the second, or the next one if `shifted`.
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
    """Result of a test: samples in GB/s busbw (TFLOP/s for a burn), or how it broke."""

    samples: tuple[float, ...] = ()
    broken: Broken | None = None
    detail: str = ""


@dataclass(slots=True)
class Outcome:
    """A test that ran, and its judgment.

    Attributes:
        alone: No other test ran in its round.
        reference: Result of a healthy test of this kind.
        limit: Share of the reference below which this test fails.
        failed: None if not judged, or if there is nothing to compare with.
        unsteady: Some of many samples clearly pass and some clearly do not, which fails the test.
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
        """Median of the samples; None for a test that broke."""
        return median(self.samples) if self.samples and self.broken is None else None

    @property
    def share(self) -> float | None:
        """Value over reference."""
        value = self.value
        return None if value is None or not self.reference else value / self.reference

    def partners(self, unit: int) -> tuple[int, ...]:
        return tuple(other for other in self.probe.units if other != unit)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a search.

    Attributes:
        threshold: Share of its reference below which a test fails. A result within a thirtieth of it is measured again
            and the median of three decides.
        floor: Busbw of a healthy fleet in GB/s. It judges the whole fleet, and a pair without another reference.
        rails: Ranks of a unit.
        full: Measure every pair of a small fleet.
        single: Measure each unit alone first.
    """

    threshold: float = 0.90
    floor: float | None = None
    samples: int = 1
    rails: int = 1
    full: bool = False
    single: bool = True
    seed: int = 0

    @property
    def margin(self) -> float:
        """Distance to the threshold that noise may cover. It shrinks with the threshold, as noise does."""
        return self.threshold / 30


@dataclass
class Accused:
    """An accused unit and the failed tests against it. `rails` are those that are slow alone (None: not tested)."""

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


class Finding(Part):
    """A problem that is not one unit's proven fault. `tests` are the numbers of the tests that show it.

    undecided: one of `units`, and too few known-good partners to decide which. fabric: slow only while other tests run,
    or only on the path between two units. intermittent: failed once and not again. fleet: all of it below the floor.
    unjudged: nothing to compare with.
    """

    kind: FindingKind
    units: list[int]
    tests: list[int]
    text: str


@dataclass
class Verdict:
    """Result of a search. `tests` counts groups and pairs with repeats and controls, `rounds` counts all rounds."""

    accused: list[Accused]
    findings: list[Finding]
    outcomes: list[Outcome]
    tests: int
    rail_tests: int
    rounds: int

    @property
    def clean(self) -> bool:
        """No unit is accused and nothing is undecided or slow. What failed once and not again is a remark."""
        return not self.accused and all(finding.kind == "intermittent" for finding in self.findings)


Round = tuple[Probe, ...]
T = TypeVar("T")
Steps = Generator[Round, Sequence[Answer], T]
"""A search: yields rounds, receives one Answer per test in the same order, and returns what it found."""
