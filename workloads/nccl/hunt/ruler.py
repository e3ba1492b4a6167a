"""What a healthy test gives, and which results are below it."""

from __future__ import annotations

from statistics import median

from workloads.nccl.hunt.plan import NETWORK, SINGLE, Kind, Outcome, Settings

ENOUGH = 3  # tests of a kind from which on they are their own reference
MANY = 5  # samples from which on a single slow one tells of a link that comes and goes
MANY_SAMPLES = 8  # samples of a kind from which on their spread tells the fleet's noise
UPPER_QUARTILE = 0.6745  # of a normal distribution, in standard deviations
Z = 3.3  # standard deviations of noise that a single result may be off: the usual 0.90 at 3 %
Z_UNSTEADY = 5.0  # and those that one of many samples may be off before it tells of a link that comes and goes


class Ruler:
    """References by kind of test, from the fleet itself.

    The healthy majority need not be one: a slow unit makes its whole group slow, so that few groups may be healthy.
    Therefore the reference is the median of the results near the top, not of all. The top is not the best result,
    which noise or a broken clock may have made, but the second best, or the best tenth where there are many. Units
    measured on their own slow nobody else: there the plain median will do.
    """

    def __init__(self, settings: Settings) -> None:
        self.threshold, self.margin, self.floor = settings.threshold, settings.margin, settings.floor
        self._seen: dict[Kind, list[float]] = {}
        self._samples: dict[Kind, list[float]] = {}
        self._broken: dict[Kind, int] = {}
        self._references: dict[Kind, float | None] = {}
        self._noises: dict[Kind, float] = {}

    def add(self, outcome: Outcome) -> None:
        """Take a result in. One that broke says nothing about bandwidth, but much about those that did not."""
        kind = outcome.probe.kind
        self._references.pop(kind, None)
        self._noises.pop(kind, None)
        if (value := outcome.value) is not None:
            self._seen.setdefault(kind, []).append(value)
            self._samples.setdefault(kind, []).extend(outcome.samples)
        else:
            self._broken[kind] = self._broken.get(kind, 0) + 1

    def count(self, kind: Kind) -> int:
        return len(self._seen.get(kind, ()))

    def fleet(self, kind: Kind) -> float | None:
        """The fleet's own reference in GB/s (TFLOP/s), or None where too few results make none."""
        seen = self._seen.get(kind, [])
        if not seen or len(seen) + self._broken.get(kind, 0) < ENOUGH:
            return None
        if kind not in self._references and kind in SINGLE:
            self._references[kind] = median(seen)
        if kind not in self._references:
            ranked = sorted(seen, reverse=True)
            top = ranked[0 if len(ranked) <= ENOUGH else max(1, len(ranked) // 10)]
            self._references[kind] = median(value for value in ranked if value >= self.threshold * top)
        return self._references[kind]

    def reference(self, kind: Kind) -> float | None:
        """What a healthy test gives: the fleet's own measure, or the floor where there is none.

        Never the floor beside the fleet's own: with a whole fleet near its floor, noise would choose the accused.
        """
        own = self.fleet(kind)
        return own if own is not None or kind not in NETWORK else self.floor

    def below_floor(self, kind: Kind) -> bool:
        """Whether the fleet as a whole misses the floor."""
        own = self.fleet(kind)
        return own is not None and self.floor is not None and own < self.threshold * self.floor

    def noise(self, kind: Kind) -> float:
        """The fleet's own noise: the standard deviation of a single sample over the reference; 0 where few tell.

        From the samples above the reference only: faults make results slower, never faster. Groups and pairs run over
        one fabric, and the kind that was measured more often speaks for both.
        """
        if kind in NETWORK:
            kind = max(NETWORK, key=self.count)
        if kind not in self._noises:
            samples, reference = self._samples.get(kind, []), self.fleet(kind)
            above = [sample / reference - 1 for sample in samples if sample > reference] if reference else []
            self._noises[kind] = median(above) / UPPER_QUARTILE if above and len(samples) >= MANY_SAMPLES else 0.0
        return self._noises[kind]

    def limit(self, kind: Kind) -> float:
        """The share of the reference below which a test fails: the threshold.

        Where a unit is measured on its own no partner corrects a mistake, so that a noisy fleet is given more room.
        """
        return min(self.threshold, 1 - Z * self.noise(kind)) if kind in SINGLE else self.threshold

    def judge(self, outcome: Outcome) -> None:
        """Set the outcome's reference and whether it failed; None stays where there is nothing to compare with."""
        outcome.reference = self.reference(outcome.probe.kind)
        limit = outcome.limit = self.limit(outcome.probe.kind)
        if outcome.broken:
            outcome.failed = True
        elif outcome.share is not None and outcome.reference:
            accident = min(limit - self.margin, 1 - Z_UNSTEADY * self.noise(outcome.probe.kind))
            low = min(outcome.samples) < accident * outcome.reference
            high = max(outcome.samples) > (limit + self.margin) * outcome.reference
            # Of few samples one may be an accident, and their median is to overlook it.
            outcome.unsteady = low and high and len(outcome.samples) >= MANY and outcome.probe.kind in NETWORK
            outcome.failed = outcome.share < limit or outcome.unsteady

    def borderline(self, outcome: Outcome) -> bool:
        """Whether noise could have decided: near the threshold and measured fewer than three times.

        A unit measured on its own has no second partner to speak for it, so that any failure of it is looked at again.
        """
        single = outcome.probe.kind in SINGLE
        if outcome.share is None or len(outcome.samples) >= (MANY if single else 3):
            return False
        if not single:
            return abs(outcome.share - outcome.limit) < self.margin
        return outcome.share < outcome.limit + self.margin
