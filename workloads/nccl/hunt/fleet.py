"""What a hunt knows so far: every test that was run, who is good, who is accused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from random import Random

from workloads.nccl.hunt.plan import Accused, Finding, Outcome, Probe, Round, Settings, Steps
from workloads.nccl.hunt.ruler import ENOUGH, MANY, Ruler


class Fleet:
    """The state that all stages of a search share.

    `good` holds units that passed a network test. `serial` is set when the fabric has shown that it cannot carry tests
    side by side: from then on each network test has a round of its own.
    """

    def __init__(self, units: int, settings: Settings) -> None:
        self.settings = settings
        self.ruler = Ruler(settings)
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

    def ask(self, probes: Sequence[Probe]) -> Steps[list[Outcome]]:
        """Run tests at once, judge them, and measure borderline ones again."""
        outcomes = yield from self.run(probes)
        yield from self.judge(outcomes)
        return outcomes

    def run(self, probes: Sequence[Probe], repeat: bool = False) -> Steps[list[Outcome]]:
        """Run tests at once. A repeat is no new evidence about what is healthy."""
        outcomes = []
        for batch in [(probe,) for probe in probes] if self.serial else [tuple(probes)] if probes else []:
            answers = yield batch
            for probe, answer in zip(batch, answers, strict=True):
                outcome = Outcome(
                    len(self.outcomes),
                    len(self.rounds),
                    probe,
                    len(batch) == 1,
                    list(answer.samples),
                    answer.broken,
                    answer.detail,
                )
                self.outcomes.append(outcome)
                outcomes.append(outcome)
                if not repeat:
                    self.ruler.add(outcome)
            self.rounds.append(batch)
        return outcomes

    def judge(self, outcomes: Sequence[Outcome]) -> Steps[None]:
        """Judge outcomes; those that noise could have decided are measured again, and the median of all decides."""
        pending = list(outcomes)
        while pending:
            for outcome in pending:
                self.ruler.judge(outcome)
            pending = [outcome for outcome in pending if self.ruler.borderline(outcome)]
            for batch in _disjoint(pending):
                probes = [replace(outcome.probe, samples=2, stage="repeat") for outcome in batch]
                again = yield from self.run(probes, repeat=True)
                for outcome, repeated in zip(batch, again, strict=True):
                    outcome.samples += repeated.samples
                    outcome.broken, outcome.detail = repeated.broken, repeated.detail
        self._failed_pairs += [outcome for outcome in outcomes if outcome.failed and outcome.probe.kind == "pair"]

    def probe(self, kind: str, units: Iterable[int], stage: str, suspects: Iterable[int] | None = None) -> Probe:
        """A network test over `units`; a test of two is a pair, whatever it was meant as."""
        units = tuple(units)
        return Probe(
            "pair" if len(units) == 2 else "group" if kind == "group" else "pair",
            units,
            stage,
            units if suspects is None else tuple(suspects),
            samples=self.settings.samples,
        )

    def known_good(self, without: Collection[int] = (), most: int | None = None) -> list[int]:
        """Known-good units that are free, in random order: who failed beside whom must not decide who meets whom."""
        found = sorted(self.good - self.disputed() - set(without))
        return self.random.sample(found, len(found) if most is None else min(most, len(found)))

    def disputed(self) -> set[int]:
        """Units that speak for nobody: the accused, and both sides of a pair that failed although each side passed."""
        clashes = [outcome.probe.units for outcome in self._failed_pairs if self.good.issuperset(outcome.probe.units)]
        return {unit for units in clashes for unit in units} | self.accused.keys()

    def controls(self, busy: Collection[int], beside: int) -> list[Probe]:
        """Pairs of known-good units to run with `beside` others that are in question, so that pairs have a reference.

        Two at the least, because the reference is taken from the second best, with many samples, because it rests on
        them; none where pairs were measured before.
        """
        missing = 0 if self.ruler.fleet("pair") else max(2, ENOUGH - beside)
        free = self.known_good(busy, most=2 * missing)
        return [
            replace(self.probe("pair", units, "control", suspects=()), samples=max(MANY, self.settings.samples))
            for units in list(zip(free[::2], free[1::2], strict=False))[:missing]
        ]

    def met(self, unit: int, alone: bool = False) -> set[int]:
        """Who was `unit`'s partner in a pair, or in a pair that ran alone."""
        return {
            other
            for outcome in self.outcomes
            if outcome.probe.kind == "pair" and unit in outcome.probe.units and (outcome.alone or not alone)
            for other in outcome.partners(unit)
        }

    def replay(self, number: int) -> Steps[list[Outcome]]:
        """Run a whole round again, once; its outcomes in the round's order."""
        if number not in self._replayed:
            probes = [replace(probe, stage="replay", samples=max(MANY, probe.samples)) for probe in self.rounds[number]]
            self._replayed[number] = yield from self.ask(probes)
        return self._replayed[number]

    def find(self, finding: Finding) -> None:
        """Note a finding, once for the same units."""
        if not any((one.kind, one.units) == (finding.kind, finding.units) for one in self.findings):
            self.findings.append(finding)


def _disjoint(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes, of several rounds perhaps, in batches whose tests share no unit."""
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


def below_floor(fleet: Fleet, outcomes: Sequence[Outcome]) -> None:
    """Note it where the fleet as a whole misses the floor; single units are then found against the fleet itself."""
    kind = outcomes[0].probe.kind
    if fleet.ruler.below_floor(kind):
        own = fleet.ruler.fleet(kind)
        text = f"healthy {kind}s give about {own:.4g} GB/s, below the floor of {fleet.ruler.floor:g}"
        fleet.find(Finding("fleet", tuple(fleet.units), f"{text}: what all of them share, no single unit", []))
