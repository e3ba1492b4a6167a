"""Search of a hunt on fabrics with injected faults: accused units, their evidence, and the cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import ceil, log2, sqrt
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.workloads.nccl.hunt_simulator import Fabric, Fault, Kind, inject, play, search_options
from workloads.nccl.hunt.fleet import References
from workloads.nccl.hunt.result import NETWORK, SINGLE, Answer, GroupProbe, HuntVerdict, Round
from workloads.nccl.hunt.search import circle, hunt

QUIET = 0.0
KINDS: tuple[Kind, ...] = get_args(Kind)


class Watched(Fabric):
    """A fabric that checks the invariants of every round."""

    def answer(self, tests: Round) -> list[Answer]:
        assert tests
        named = [unit for probe in tests for unit in probe.units]
        assert len(named) == len(set(named)), "a round uses a unit twice"
        for probe in tests:
            assert set(probe.suspects) <= set(probe.units)
            assert len(probe.units) == {"burn": 1, "intra": 1, "pair": 2, "rail": 2}.get(probe.kind, len(probe.units))
        return super().answer(tests)


def sound(verdict: HuntVerdict) -> None:
    """Check that each accusation on the network has two tests without a common partner, and one pair alone if slow."""
    accused = {one.unit for one in verdict.accused}
    for one in verdict.accused:
        if one.fault in ("burn", "intra"):
            continue
        partners = {partner for partners in one.partners for partner in partners}
        evidence = [verdict.tests[number] for number in one.tests]
        assert any(set(some).isdisjoint(others) for some, others in combinations(one.partners, 2))
        assert not partners & accused
        assert any((test.alone or test.broken) and test.kind == "pair" for test in evidence)
        assert all(test.failed for test in evidence)
        for partner in partners:
            assert any(
                test.failed is False and partner in test.units for test in verdict.tests if test.kind in NETWORK
            ), f"unit {partner} is evidence against {one.unit} and never passed"


@given(
    units=st.integers(5, 90),
    bad=st.integers(0, 3),
    kind=st.sampled_from(KINDS[:2]),
    rails=st.sampled_from([1, 8]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_without_noise_exactly_faulty_units_are_accused(
    units: int, bad: int, kind: Kind, rails: int, seed: int
) -> None:
    faults = inject(units, min(bad, units // 4), kind, seed)
    verdict = play(units, Watched(faults, QUIET, seed), search_options(seed=seed, rails=rails))
    assert {one.unit for one in verdict.accused} == {fault.unit for fault in faults}
    sound(verdict)
    if rails > 1:
        rails_of = {fault.unit: [fault.rail] if kind == "nic" else list(range(rails)) for fault in faults}
        assert {one.unit: one.rails for one in verdict.accused} == rails_of
        assert verdict.findings == []


@given(
    units=st.integers(2, 80),
    bad=st.integers(0, 20),
    kind=st.sampled_from(KINDS),
    noise=st.sampled_from([0.0, 0.03, 0.1]),
    samples=st.sampled_from([1, 5]),
    full=st.booleans(),
    floor=st.sampled_from([None, 300.0, 500.0]),
    seed=st.integers(0, 10**6),
)
@example(units=75, bad=0, kind="nic", noise=0.1, samples=1, full=False, floor=None, seed=115)  # two sets shared a unit
@settings(max_examples=150, deadline=None)
def test_search_terminates_with_sound_verdicts(
    units: int, bad: int, kind: Kind, noise: float, samples: int, full: bool, floor: float | None, seed: int
) -> None:
    faults = inject(units, min(bad, units), kind, seed)
    options = search_options(seed=seed, samples=samples, full=full, floor=floor)
    verdict = play(units, Watched(faults, noise, seed), options)
    sound(verdict)
    assert verdict.network_tests <= 40 * units


def scaled(factor: float, samples: slice = slice(None)) -> Callable[[Answer], Answer]:
    """Return a function that multiplies these samples of an answer by `factor`."""

    def spoil(answer: Answer) -> Answer:
        found = list(answer.samples)
        found[samples] = [sample * factor for sample in found[samples]]
        return Answer(tuple(found))

    return spoil


class SpoiledOnce(Watched):
    """A healthy fleet of which one test is disturbed: test `number` of those alone, or of those on the network."""

    def __init__(self, noise: float, seed: int, single: bool, number: int, spoil: Callable[[Answer], Answer]) -> None:
        super().__init__([], noise, seed)
        self.single, self.left, self.spoil = single, number, spoil

    def answer(self, tests: Round) -> list[Answer]:
        answers = super().answer(tests)
        for index, probe in enumerate(tests):
            if (probe.kind in SINGLE) is self.single:
                if self.left == 0:
                    answers[index] = self.spoil(answers[index])
                self.left -= 1
        return answers


SPOILS = {
    "hang": lambda _: Answer(broken="hang"),
    "error": lambda _: Answer(broken="error"),
    "wrong": lambda answer: Answer(answer.samples, "wrong"),
    "one slow sample": scaled(0.01, slice(1)),
    **{f"{factor} of the bandwidth": scaled(factor) for factor in (0.001, 0.3, 0.6, 0.8, 0.89, 3.0, 1000.0)},
}


@pytest.mark.parametrize("how", SPOILS)
@given(
    units=st.one_of(st.integers(3, 6), st.integers(7, 80)),
    place=st.tuples(st.booleans(), st.integers(0, 80)),
    noise=st.sampled_from([0.0, 0.03]),
    samples=st.sampled_from([1, 5]),
    floor=st.sampled_from([None, 300.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_one_failed_measurement_never_accuses(
    how: str, units: int, place: tuple[bool, int], noise: float, samples: int, floor: float | None, seed: int
) -> None:
    """One that hangs or delivers wrong data does not accuse either, unless it repeats: it remains a finding."""
    fabric = SpoiledOnce(noise, seed, *place, SPOILS[how])
    verdict = play(units, fabric, search_options(rails=8, seed=seed, samples=samples, floor=floor))
    assert verdict.accused == []
    if fabric.left < 0 and how in ("hang", "error", "wrong"):
        assert {finding.kind for finding in verdict.findings} == {"intermittent"}


@given(bad=st.integers(0, 6), units=st.sampled_from([64, 100, 232, 400]), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_cost_is_bounded(bad: int, units: int, seed: int) -> None:
    """√N groups; per faulty unit a bisection and two to four more tests; three controls; one test of the fabric."""
    groups = ceil(sqrt(units))
    verdict = play(units, Fabric(inject(units, bad, "node", seed), QUIET, seed), search_options(seed=seed))
    assert verdict.network_tests <= groups + bad * (ceil(log2(units / groups)) + 5) + 4


@pytest.mark.parametrize("count", range(2, 34))
def test_circle_has_every_pair_once_in_disjoint_rounds(count: int) -> None:
    rounds = circle(range(count))
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    for pairs in rounds:
        units = [unit for pair in pairs for unit in pair]
        assert len(units) == len(set(units)) == 2 * (count // 2)
    every = [tuple(sorted(pair)) for pairs in rounds for pair in pairs]
    assert len(every) == len(set(every)) == count * (count - 1) // 2


def test_two_units_are_undecided() -> None:
    verdict = play(2, Fabric([Fault("node", 1, 0.5)], QUIET, 1), search_options(floor=300))
    assert verdict.accused == []
    [finding] = verdict.findings
    assert (finding.kind, finding.units) == ("undecided", [0, 1])
    assert "a third unit is needed" in finding.text


def test_fleet_below_floor_is_a_fleet_finding() -> None:
    verdict = play(60, Fabric([Fault("node", 7, 0.5)], 0.03, 1), search_options(floor=500))
    assert [one.unit for one in verdict.accused] == [7]
    assert "fleet" in {finding.kind for finding in verdict.findings}


class Breaking(Fabric):
    """Unit 2 hangs, corrupts or fails its tests, or computes slowly."""

    def __init__(self, how: Any) -> None:
        super().__init__([], QUIET, 1)
        self.how = how

    def answer(self, tests: Round) -> list[Answer]:
        return [self._one(probe, answer) for probe, answer in zip(tests, super().answer(tests), strict=True)]

    def _one(self, probe: GroupProbe, answer: Answer) -> Answer:
        if 2 in probe.units and probe.kind == self.how:
            return Answer(tuple(sample * 0.8 for sample in answer.samples))
        if 2 not in probe.units or probe.kind in SINGLE or self.how in SINGLE:
            return answer
        return Answer(answer.samples, "wrong") if self.how == "wrong" else Answer(broken=self.how)


@pytest.mark.parametrize("how", ["hang", "wrong", "error", "burn", "intra"])
@pytest.mark.parametrize("units", [3, 4, 12, 50])
def test_faults_are_classified(units: int, how: str) -> None:
    verdict = play(units, Breaking(how), search_options(rails=8))
    assert [(one.unit, one.fault) for one in verdict.accused] == [(2, how)]
    sound(verdict)


def test_slow_path_between_good_units_is_a_fabric_finding() -> None:
    class Path(Fabric):
        def answer(self, tests: Round) -> list[Answer]:
            return [
                Answer(tuple(sample * (0.5 if set(probe.units) == {0, 7} else 1) for sample in answer.samples))
                for probe, answer in zip(tests, super().answer(tests), strict=True)
            ]

    verdict = play(8, Path([], QUIET, 1), search_options(full=True))
    assert verdict.accused == []
    assert [(finding.kind, set(finding.units)) for finding in verdict.findings] == [("fabric", {0, 7})]


def test_missing_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        hunt(search_options(nodes=4), lambda _: [Answer((1.0,))])


def measured(*samples: float) -> GroupProbe:
    test = GroupProbe("group", (0,), "t")
    test.take(Answer(samples))
    return test


def fleet_of(*values: float) -> References:
    references = References(search_options())
    for value in values:
        references.add(measured(value))
    return references


def test_reference_ignores_slow_majority_and_broken_clock() -> None:
    references = fleet_of(100, 101, 99, 50, 51, 52, 53, 54, 55, 56, 990)
    assert references.reference("group") == pytest.approx(100, rel=0.01)


def test_only_borderline_results_are_repeated() -> None:
    references = fleet_of(*[100] * 5)
    for value, again in ((100, False), (92, True), (89, True), (86, False)):
        one = measured(value)
        references.judge([one])
        assert references.borderline(one) is again
        assert one.failed is (value < 90)
    thrice = measured(89, 89, 89)
    references.judge([thrice])
    assert not references.borderline(thrice)


def test_slow_samples_among_many_are_unsteady() -> None:
    references = fleet_of(*[100] * 5)
    one = measured(50, 100, 100, 100, 100)
    references.judge([one])
    assert (one.failed, one.unsteady) == (True, True)
    few = measured(50, 100, 100)
    references.judge([few])
    assert (few.failed, few.unsteady) == (False, False)
    for slow, failed in ((1, False), (2, True)):
        ten = measured(*[50] * slow, *[100] * (10 - slow))
        references.judge([ten])
        assert (ten.failed, ten.unsteady) == (failed, failed)
