"""State of a hunt: tests that ran, the reference of each kind of test, good units and accused units."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from random import Random
from statistics import median

from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import (
    NETWORK,
    SINGLE,
    Accused,
    Answer,
    FindingKind,
    GroupProbe,
    HuntFinding,
    Kind,
    Round,
)

ENOUGH = 3  # tests of a kind that make a reference
MANY = 5  # samples among which a single slow one shows a flapping link
SURE = 10  # samples of which two slow ones show it: one slow in half of them passes in 1 % of the tests
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

    def __init__(self, options: HuntOptions) -> None:
        assert options.threshold is not None
        self.threshold, self.floor = options.threshold, options.floor
        # Noise may cover this distance from the threshold. It shrinks with the threshold, as noise does.
        self.margin = self.threshold / 30
        self._values: defaultdict[Kind, list[float]] = defaultdict(list)
        self._samples: defaultdict[Kind, list[float]] = defaultdict(list)
        self._broken: Counter[Kind] = Counter()

    def add(self, test: GroupProbe) -> None:
        """Add a result. One that broke has no bandwidth, but counts towards ENOUGH."""
        if test.value is None:
            self._broken[test.kind] += 1
        else:
            self._values[test.kind].append(test.value)
            self._samples[test.kind] += test.samples

    def fleet(self, kind: Kind) -> float | None:
        """Return the fleet's reference in GB/s (TFLOP/s); None for too few results."""
        ranked = sorted(self._values[kind], reverse=True)
        if not ranked or len(ranked) + self._broken[kind] < ENOUGH:
            return None
        top = ranked[0 if len(ranked) <= ENOUGH else max(1, len(ranked) // 10)]
        return median(value for value in ranked if kind in SINGLE or value >= self.threshold * top)

    def reference(self, kind: Kind) -> float | None:
        """Return the result of a healthy test: the fleet's reference, or the floor without one.

        Never the floor if there is a reference: in a fleet near its floor, noise would choose the accused.
        """
        own = self.fleet(kind)
        return own if own is not None or kind not in NETWORK else self.floor

    def noise(self, kind: Kind) -> float:
        """Return the standard deviation of a single sample over the reference; 0 for too few samples.

        It counts samples above the reference only: faults make results slower, never faster. Groups and pairs use one
        fabric, and the kind with more tests gives the noise of both.
        """
        if kind in NETWORK:
            kind = max(NETWORK, key=lambda each: len(self._values[each]))
        samples, reference = self._samples[kind], self.fleet(kind)
        if not reference or len(samples) < MANY_SAMPLES:
            return 0.0
        above = [sample / reference - 1 for sample in samples if sample > reference]
        return median(above) / UPPER_QUARTILE if above else 0.0

    def judge(self, tests: Iterable[GroupProbe]) -> None:
        """Set the tests' reference and whether they failed; None if there is nothing to compare with."""
        for kind, same in groupby(tests, key=lambda test: test.kind):
            reference, noise = self.reference(kind), self.noise(kind)
            # No partner corrects a mistake about a unit measured alone, so a noisy fleet has a lower limit.
            allowed = max(self.threshold / 2, 1 - Z * noise)
            limit = min(self.threshold, allowed) if kind in SINGLE else self.threshold
            for test in same:
                test.reference, test.limit = reference, limit
                test.share = test.value / reference if test.value is not None and reference else None
                if test.broken:
                    test.failed = True
                elif test.share is not None and reference:
                    lowest = sorted(test.samples)[len(test.samples) // SURE]
                    low = lowest < min(limit - self.margin, 1 - Z_UNSTEADY * noise) * reference
                    high = max(test.samples) > (limit + self.margin) * reference
                    # One outlier of few samples or of many more may be chance; their median ignores it.
                    test.unsteady = low and high and len(test.samples) >= MANY and kind in NETWORK
                    test.failed = test.share < limit or test.unsteady

    def borderline(self, test: GroupProbe) -> bool:
        """Return whether noise could have decided the verdict: near the limit and measured fewer than three times."""
        if test.share is None or test.limit is None or len(test.samples) >= 3:
            return False
        return abs(test.share - test.limit) < self.margin


class Fleet:
    """State that all stages of a search share.

    `good` holds units that passed a network test, `passed` counts the samples of their passed pairs. `serial` is set
    once the fabric has failed to carry concurrent tests: from then on, each network test runs in its own round.
    """

    def __init__(self, options: HuntOptions, answer: Callable[[Round], Sequence[Answer]]) -> None:
        self.options, self.answer = options, answer
        self.references = References(options)
        self.random = Random(options.seed)
        self.units = range(options.units)
        self.rounds: list[Round] = []
        self.tests: list[GroupProbe] = []
        self.good: set[int] = set()
        self.passed: Counter[int] = Counter()
        self.accused: dict[int, Accused] = {}
        self.findings: list[HuntFinding] = []
        self.serial = False
        self._failed_pairs: list[GroupProbe] = []
        self._replayed: dict[int, list[GroupProbe]] = {}

    def test(self, tests: Sequence[GroupProbe]) -> list[GroupProbe]:
        """Run tests concurrently, judge them, and measure borderline ones again."""
        self.run(tests)
        self.judge(tests)
        return list(tests)

    def run(self, tests: Sequence[GroupProbe], repeat: bool = False) -> list[GroupProbe]:
        """Run tests concurrently. A repeat does not change the references."""
        for batch in [(test,) for test in tests] if self.serial else [tuple(tests)] if tests else []:
            for test, answer in zip(batch, self.answer(batch), strict=True):
                test.number, test.round, test.alone = len(self.tests), len(self.rounds), len(batch) == 1
                test.take(answer)
                self.tests.append(test)
                if not repeat:
                    self.references.add(test)
            self.rounds.append(batch)
        return list(tests)

    def judge(self, tests: Sequence[GroupProbe]) -> None:
        """Judge tests. Those that noise could have decided are measured again, and the median of all decides."""
        pending = list(tests)
        while pending:
            self.references.judge(pending)
            pending = [test for test in pending if self.references.borderline(test)]
            for batch in _disjoint(pending):
                again = self.run([test.again("repeat", 2) for test in batch], repeat=True)
                for test, repeated in zip(batch, again, strict=True):
                    test.take(repeated)
        self._failed_pairs += [test for test in tests if test.failed and test.kind == "pair"]
        for test in tests:
            if test.failed is False and test.kind in NETWORK:
                self.good.update(test.units)
                if test.kind == "pair":
                    self.passed.update(dict.fromkeys(test.units, len(test.samples)))

    def probe(
        self, units: Iterable[int], stage: str, suspects: Iterable[int] | None = None, samples: int = 1
    ) -> GroupProbe:
        """Return a network test of `units`: a pair of two, a group of more. All are suspects by default.

        It takes `samples` samples, or as many as the options ask for if that is more.
        """
        units = tuple(units)
        suspects = units if suspects is None else tuple(suspects)
        count = max(samples, self.options.samples or 1)
        return GroupProbe("pair" if len(units) == 2 else "group", units, stage, suspects, count=count)

    def trusted(self) -> set[int]:
        """Return the known-good units that are neither accused nor in a failed pair of two good units."""
        disputed = [test.units for test in self._failed_pairs if self.good.issuperset(test.units)]
        return self.good.difference(self.accused, *disputed)

    def known_good(self, without: Collection[int] = (), most: int | None = None) -> list[int]:
        """Return trusted units in random order, so that past partners do not determine future ones."""
        found = sorted(self.trusted().difference(without))
        return self.random.sample(found, len(found) if most is None else min(most, len(found)))

    def failures(self, unit: int) -> list[GroupProbe]:
        """Return the failed network tests of `unit`, pairs first."""
        failed = [test for test in self.tests if test.failed and test.kind in NETWORK and unit in test.units]
        return sorted(failed, key=lambda test: len(test.units))

    def met(self, unit: int) -> set[int]:
        """Return the units that were in a network test with `unit`."""
        tests = [test.units for test in self.tests if test.kind in NETWORK and unit in test.units]
        return set().union(*tests)

    def replay(self, number: int) -> list[GroupProbe]:
        """Run a whole round again, once, and return its tests in the round's order."""
        if number not in self._replayed:
            tests = [test.again("replay", max(MANY, test.count)) for test in self.rounds[number]]
            self._replayed[number] = self.test(tests)
        return self._replayed[number]

    def find(self, kind: FindingKind, units: Iterable[int], text: str, tests: Iterable[GroupProbe] = ()) -> None:
        """Record a finding, once for the same units."""
        finding = HuntFinding(kind=kind, units=list(units), tests=[test.number for test in tests], text=text)
        if not any((one.kind, one.units) == (finding.kind, finding.units) for one in self.findings):
            self.findings.append(finding)

    def check_floor(self, kind: Kind) -> None:
        """Record a finding if the fleet as a whole misses the floor; single units are judged against the fleet."""
        own, floor = self.references.fleet(kind), self.options.floor
        if own is not None and floor is not None and own < self.references.threshold * floor:
            text = f"healthy {kind}s give about {own:.4g} GB/s, below the floor of {floor:g}"
            self.find("fleet", self.units, f"{text}: the cause is shared by all of them, not a single unit")


def _disjoint(tests: Sequence[GroupProbe]) -> list[list[GroupProbe]]:
    """Return the tests in batches that share no unit."""
    batches: list[tuple[set[int], list[GroupProbe]]] = []
    for test in tests:
        batch = next((one for one in batches if one[0].isdisjoint(test.units)), None)
        if batch is None:
            batches.append(batch := (set(), []))
        batch[0].update(test.units)
        batch[1].append(test)
    return [batch for _, batch in batches]
