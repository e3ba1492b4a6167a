"""State of a hunt: tests that ran, the reference of each kind of test, good units and accused units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from random import Random
from statistics import median

from workloads.nccl.hunt.plan import (
    NETWORK,
    SINGLE,
    Accused,
    Finding,
    FindingKind,
    Kind,
    Outcome,
    Probe,
    Round,
    Settings,
    Steps,
)

ENOUGH = 3  # tests of a kind that make a reference
MANY = 5  # samples among which a single slow one shows a flapping link
MANY_SAMPLES = 8  # samples of a kind whose spread shows the fleet's noise
UPPER_QUARTILE = 0.6745  # of a normal distribution, in standard deviations
Z = 3.3  # standard deviations of noise allowed in a single result: 0.90 at 3 % noise
Z_UNSTEADY = 5.0  # standard deviations beyond which one of many samples shows a flapping link


class References:
    """Reference of each kind of test, taken from the fleet itself.

    The healthy units may be a minority: one slow unit makes its whole group slow, so few groups may be healthy. The
    reference is therefore the median of the results near the top. The top is not the best result, which noise or a
    broken clock may have made, but the second best, or the best tenth of many. Units measured alone slow no other unit:
    their reference is the plain median.
    """

    def __init__(self, settings: Settings) -> None:
        self.threshold, self.margin, self.floor = settings.threshold, settings.margin, settings.floor
        self._values: dict[Kind, list[float]] = {}
        self._samples: dict[Kind, list[float]] = {}
        self._broken: dict[Kind, int] = {}
        self._references: dict[Kind, float] = {}
        self._noises: dict[Kind, float] = {}

    def add(self, outcome: Outcome) -> None:
        """Add a result. One that broke has no bandwidth, but counts towards ENOUGH."""
        kind = outcome.probe.kind
        self._references.pop(kind, None)
        self._noises.pop(kind, None)
        if (value := outcome.value) is not None:
            self._values.setdefault(kind, []).append(value)
            self._samples.setdefault(kind, []).extend(outcome.samples)
        else:
            self._broken[kind] = self._broken.get(kind, 0) + 1

    def fleet(self, kind: Kind) -> float | None:
        """Return the fleet's own reference in GB/s (TFLOP/s); None for too few results."""
        values = self._values.get(kind, [])
        if not values or len(values) + self._broken.get(kind, 0) < ENOUGH:
            return None
        if kind not in self._references:
            ranked = sorted(values, reverse=True)
            top = ranked[0 if len(ranked) <= ENOUGH else max(1, len(ranked) // 10)]
            self._references[kind] = median(
                value for value in ranked if kind in SINGLE or value >= self.threshold * top
            )
        return self._references[kind]

    def reference(self, kind: Kind) -> float | None:
        """Return the result of a healthy test: the fleet's own reference, or the floor without one.

        Never the floor if there is a reference: in a fleet near its floor, noise would choose the accused.
        """
        own = self.fleet(kind)
        return own if own is not None or kind not in NETWORK else self.floor

    def below_floor(self, kind: Kind) -> bool:
        """Return whether the fleet as a whole misses the floor."""
        own = self.fleet(kind)
        return own is not None and self.floor is not None and own < self.threshold * self.floor

    def noise(self, kind: Kind) -> float:
        """Return the standard deviation of a single sample over the reference; 0 for too few samples.

        It counts samples above the reference only: faults make results slower, never faster. Groups and pairs use one
        fabric, and the kind with more tests gives the noise of both.
        """
        if kind in NETWORK:
            kind = max(NETWORK, key=lambda each: len(self._values.get(each, ())))
        if kind not in self._noises:
            samples, reference = self._samples.get(kind, []), self.fleet(kind)
            above = [sample / reference - 1 for sample in samples if sample > reference] if reference else []
            self._noises[kind] = median(above) / UPPER_QUARTILE if above and len(samples) >= MANY_SAMPLES else 0.0
        return self._noises[kind]

    def judge(self, outcome: Outcome) -> None:
        """Set the outcome's reference and whether it failed; None if there is nothing to compare with."""
        kind = outcome.probe.kind
        noise = self.noise(kind)
        outcome.reference = self.reference(kind)
        # No partner corrects a mistake about a unit measured alone, so a noisy fleet has a lower limit.
        limit = outcome.limit = min(self.threshold, 1 - Z * noise) if kind in SINGLE else self.threshold
        if outcome.broken:
            outcome.failed = True
        elif outcome.share is not None and outcome.reference:
            low = min(outcome.samples) < min(limit - self.margin, 1 - Z_UNSTEADY * noise) * outcome.reference
            high = max(outcome.samples) > (limit + self.margin) * outcome.reference
            # One outlier of few samples may be chance; their median ignores it.
            outcome.unsteady = low and high and len(outcome.samples) >= MANY and kind in NETWORK
            outcome.failed = outcome.share < limit or outcome.unsteady

    def borderline(self, outcome: Outcome) -> bool:
        """Return whether noise could have decided: near the threshold and measured fewer than three times.

        Any failure of a unit measured alone is borderline, because no second partner confirms it.
        """
        single = outcome.probe.kind in SINGLE
        if outcome.share is None or len(outcome.samples) >= (MANY if single else 3):
            return False
        if not single:
            return abs(outcome.share - outcome.limit) < self.margin
        return outcome.share < outcome.limit + self.margin


class Fleet:
    """State that all stages of a search share.

    `good` holds units that passed a network test. `serial` is set once the fabric has failed to carry concurrent tests:
    from then on, each network test runs in its own round.
    """

    def __init__(self, units: int, settings: Settings) -> None:
        self.settings = settings
        self.references = References(settings)
        self.random = Random(settings.seed)
        self.units = range(units)
        self.rounds: list[Round] = []
        self.outcomes: list[Outcome] = []
        self.good: set[int] = set()
        self.accused: dict[int, Accused] = {}
        self.findings: list[Finding] = []
        self.serial = False
        self._failed_pairs: list[Outcome] = []
        self._replayed: dict[int, list[Outcome]] = {}

    def test(self, probes: Sequence[Probe]) -> Steps[list[Outcome]]:
        """Run tests concurrently, judge them, and measure borderline ones again."""
        outcomes = yield from self.run(probes)
        yield from self.judge(outcomes)
        return outcomes

    def run(self, probes: Sequence[Probe], repeat: bool = False) -> Steps[list[Outcome]]:
        """Run tests concurrently. A repeat does not change the references."""
        outcomes = []
        for batch in [(probe,) for probe in probes] if self.serial else [tuple(probes)] if probes else []:
            answers = yield batch
            for probe, answer in zip(batch, answers, strict=True):
                outcome = Outcome(
                    number=len(self.outcomes),
                    round=len(self.rounds),
                    probe=probe,
                    alone=len(batch) == 1,
                    samples=list(answer.samples),
                    broken=answer.broken,
                    detail=answer.detail,
                )
                self.outcomes.append(outcome)
                outcomes.append(outcome)
                if not repeat:
                    self.references.add(outcome)
            self.rounds.append(batch)
        return outcomes

    def judge(self, outcomes: Sequence[Outcome]) -> Steps[None]:
        """Judge outcomes. Those that noise could have decided are measured again, and the median of all decides."""
        pending = list(outcomes)
        while pending:
            for outcome in pending:
                self.references.judge(outcome)
            pending = [outcome for outcome in pending if self.references.borderline(outcome)]
            for batch in _disjoint(pending):
                probes = [replace(outcome.probe, samples=2, stage="repeat") for outcome in batch]
                again = yield from self.run(probes, repeat=True)
                for outcome, repeated in zip(batch, again, strict=True):
                    outcome.samples += repeated.samples
                    outcome.broken, outcome.detail = repeated.broken, repeated.detail
        self._failed_pairs += [outcome for outcome in outcomes if outcome.failed and outcome.probe.kind == "pair"]

    def probe(self, units: Iterable[int], stage: str, suspects: Iterable[int] | None = None) -> Probe:
        """Return a network test of `units`: a pair of two, a group of more. All are suspects by default."""
        units = tuple(units)
        suspects = units if suspects is None else tuple(suspects)
        return Probe("pair" if len(units) == 2 else "group", units, stage, suspects, samples=self.settings.samples)

    def known_good(self, without: Collection[int] = (), most: int | None = None) -> list[int]:
        """Return undisputed good units in random order, so that past partners do not determine future ones."""
        found = sorted(self.good - self.disputed() - set(without))
        return self.random.sample(found, len(found) if most is None else min(most, len(found)))

    def disputed(self) -> set[int]:
        """Return units that cannot confirm others: the accused, and both units of a failed pair that also passed."""
        clashes = [outcome.probe.units for outcome in self._failed_pairs if self.good.issuperset(outcome.probe.units)]
        return {unit for units in clashes for unit in units} | self.accused.keys()

    def controls(self, busy: Collection[int], others: int) -> list[Probe]:
        """Return pairs of known-good units to run with `others` suspect ones, so that pairs have a reference.

        At least two, because the second best result is the reference; none once pairs have a reference.
        """
        missing = 0 if self.references.fleet("pair") else max(2, ENOUGH - others)
        free = self.known_good(busy, most=2 * missing)
        return [
            replace(self.probe(units, "control", suspects=()), samples=max(MANY, self.settings.samples))
            for units in list(zip(free[::2], free[1::2], strict=False))[:missing]
        ]

    def met(self, unit: int, alone: bool = False) -> set[int]:
        """Return the partners of `unit` in pairs, or in pairs that ran alone."""
        return {
            other
            for outcome in self.outcomes
            if outcome.probe.kind == "pair" and unit in outcome.probe.units and (outcome.alone or not alone)
            for other in outcome.partners(unit)
        }

    def replay(self, number: int) -> Steps[list[Outcome]]:
        """Run a whole round again, once, and return its outcomes in the round's order."""
        if number not in self._replayed:
            probes = [replace(probe, stage="replay", samples=max(MANY, probe.samples)) for probe in self.rounds[number]]
            self._replayed[number] = yield from self.test(probes)
        return self._replayed[number]

    def find(self, kind: FindingKind, units: Iterable[int], text: str, outcomes: Iterable[Outcome] = ()) -> None:
        """Record a finding, once for the same units."""
        tests = [outcome.number for outcome in outcomes]
        finding = Finding(kind=kind, units=list(units), tests=tests, text=text)
        if not any((one.kind, one.units) == (finding.kind, finding.units) for one in self.findings):
            self.findings.append(finding)

    def check_floor(self, kind: Kind) -> None:
        """Record a finding if the fleet as a whole misses the floor; single units are judged against the fleet."""
        if self.references.below_floor(kind):
            own = self.references.fleet(kind)
            text = f"healthy {kind}s give about {own:.4g} GB/s, below the floor of {self.references.floor:g}"
            self.find("fleet", self.units, f"{text}: what all of them share, no single unit")


def _disjoint(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Return the outcomes in batches whose tests share no unit."""
    batches: list[tuple[set[int], list[Outcome]]] = []
    for outcome in outcomes:
        units = set(outcome.probe.units)
        for busy, batch in batches:
            if not busy & units:
                busy |= units
                batch.append(outcome)
                break
        else:
            batches.append((units, [outcome]))
    return [batch for _, batch in batches]
