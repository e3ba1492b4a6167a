"""Search of a hunt on fabrics with injected faults: accused units, their evidence, and the cost."""

from __future__ import annotations

from math import ceil, log2, sqrt

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.workloads.hunt_simulator import Fabric, Fault, inject, play, search_options
from workloads.nccl.hunt.fleet import References
from workloads.nccl.hunt.result import NETWORK, Answer, Probe, Round, Verdict
from workloads.nccl.hunt.search import circle, hunt

QUIET = 0.0


class Watched(Fabric):
    """A fabric that checks the invariants of every round."""

    def __init__(self, faults: list[Fault], noise: float, seed: int, units: int) -> None:
        super().__init__(faults, noise, seed)
        self.units = units

    def answer(self, tests: Round) -> list[Answer]:
        assert tests
        named = [unit for probe in tests for unit in probe.units]
        assert len(named) == len(set(named)), "a round uses a unit twice"
        assert set(named) <= set(range(self.units))
        for probe in tests:
            assert set(probe.suspects) <= set(probe.units)
            assert len(probe.units) == {"burn": 1, "intra": 1, "pair": 2, "rail": 2}.get(probe.kind, len(probe.units))
        return super().answer(tests)


def sound(verdict: Verdict) -> None:
    """Check that each accusation on the network has two partners that are not accused, and one test alone if slow."""
    accused = {one.unit for one in verdict.accused}
    for one in verdict.accused:
        if one.fault in ("burn", "intra"):
            continue
        partners = {partner for partners in one.partners for partner in partners}
        evidence = [verdict.tests[number] for number in one.tests]
        assert len(set(one.partners)) >= 2
        assert not partners & accused
        assert any(test.alone or test.broken for test in evidence)
        assert all(test.failed for test in evidence)
        for partner in partners:
            assert any(
                test.failed is False and partner in test.units for test in verdict.tests if test.kind in NETWORK
            ), f"unit {partner} is evidence against {one.unit} and never passed"


@given(
    units=st.integers(5, 90),
    bad=st.integers(0, 3),
    kind=st.sampled_from(["nic", "node"]),
    rails=st.sampled_from([1, 8]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_without_noise_exactly_faulty_units_are_accused(units: int, bad: int, kind: str, rails: int, seed: int) -> None:
    bad = min(bad, units // 4)
    faults = inject(units, bad, "nic" if kind == "nic" else "node", seed)
    verdict = play(units, Watched(faults, QUIET, seed, units), search_options(seed=seed, rails=rails))
    assert {one.unit for one in verdict.accused} == {fault.unit for fault in faults}
    sound(verdict)
    if rails > 1:
        rails_of = {fault.unit: [fault.rail] if kind == "nic" else list(range(rails)) for fault in faults}
        assert {one.unit: one.rails for one in verdict.accused} == rails_of


@given(
    units=st.integers(2, 80),
    bad=st.integers(0, 20),
    kind=st.sampled_from(["nic", "node", "flapping", "spine"]),
    noise=st.sampled_from([0.0, 0.03, 0.1]),
    samples=st.sampled_from([1, 5]),
    full=st.booleans(),
    floor=st.sampled_from([None, 300.0, 500.0]),
    seed=st.integers(0, 10**6),
)
@example(units=75, bad=0, kind="nic", noise=0.1, samples=1, full=False, floor=None, seed=115)  # two sets shared a unit
@settings(max_examples=150, deadline=None)
def test_search_terminates_with_sound_verdicts(
    units: int, bad: int, kind: str, noise: float, samples: int, full: bool, floor: float | None, seed: int
) -> None:
    faults = inject(units, min(bad, units), kind, seed)  # type: ignore[arg-type]  # hypothesis gives plain strings
    options = search_options(seed=seed, samples=samples, full=full, floor=floor)
    verdict = play(units, Watched(faults, noise, seed, units), options)
    sound(verdict)
    assert verdict.network_tests <= 40 * units


@given(bad=st.integers(0, 6), units=st.sampled_from([64, 100, 232, 400]), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_cost_is_bounded(bad: int, units: int, seed: int) -> None:
    """√N groups; per faulty unit a bisection and two to four more tests; two controls; one test of the fabric."""
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


def test_two_units_without_floor_are_unjudged() -> None:
    verdict = play(2, Fabric([], QUIET, 1), search_options())
    assert [finding.kind for finding in verdict.findings] == ["unjudged"]
    assert not verdict.clean


def test_two_units_report_slow_rail() -> None:
    verdict = play(2, Fabric([Fault("nic", 1, 0.5, rail=6)], QUIET, 1), search_options(rails=8))
    assert verdict.accused == []
    assert [(finding.kind, finding.units) for finding in verdict.findings] == [("undecided", [0, 1])]
    assert verdict.findings[0].text.endswith("slow rails between them: 6")


def test_fleet_below_floor_is_a_fleet_finding() -> None:
    verdict = play(60, Fabric([Fault("node", 7, 0.5)], 0.03, 1), search_options(floor=500))
    assert [one.unit for one in verdict.accused] == [7]
    assert "fleet" in {finding.kind for finding in verdict.findings}


def test_shared_spine_is_a_fabric_finding() -> None:
    for units in (32, 64, 232):
        verdict = play(units, Fabric([Fault("spine", 1, 0.5)], 0.03, units), search_options(seed=units))
        assert verdict.accused == []
        assert "fabric" in {finding.kind for finding in verdict.findings}


class Breaking(Fabric):
    """One unit hangs, corrupts or fails its tests, or computes slowly."""

    def __init__(self, unit: int, how: str) -> None:
        super().__init__([], QUIET, 1)
        self.unit, self.how = unit, how

    def answer(self, tests: Round) -> list[Answer]:
        return [self._one(probe, answer) for probe, answer in zip(tests, super().answer(tests), strict=True)]

    def _one(self, probe: Probe, answer: Answer) -> Answer:
        if self.unit not in probe.units:
            return answer
        if self.how in ("burn", "intra"):
            return Answer(tuple(sample * 0.8 for sample in answer.samples)) if probe.kind == self.how else answer
        if probe.kind in ("burn", "intra"):
            return answer
        if self.how == "wrong":
            return Answer(answer.samples, "wrong", "3 wrong elements")
        return Answer(broken="hang") if self.how == "hang" else Answer(broken="error")


@pytest.mark.parametrize("how", ["hang", "wrong", "error", "burn", "intra"])
@pytest.mark.parametrize("units", [3, 4, 12, 50])
def test_faults_are_classified(units: int, how: str) -> None:
    verdict = play(units, Breaking(2, how), search_options(rails=8))
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


def measured(*samples: float) -> Probe:
    test = Probe("group", (0,), "t")
    test.take(Answer(samples))
    return test


def test_reference_ignores_slow_majority_and_broken_clock() -> None:
    references = References(search_options())
    for value in [100, 101, 99, 50, 51, 52, 53, 54, 55, 56, 990]:
        references.add(measured(value))
    assert references.reference("group") == pytest.approx(100, rel=0.01)


def test_only_borderline_results_are_repeated() -> None:
    references = References(search_options())
    for _ in range(5):
        references.add(measured(100))
    for value, again in ((100, False), (92, True), (89, True), (86, False)):
        one = measured(value)
        references.judge([one])
        assert references.borderline(one) is again
        assert one.failed is (value < 90)
    thrice = measured(89, 89, 89)
    references.judge([thrice])
    assert not references.borderline(thrice)


def test_slow_samples_among_many_are_unsteady() -> None:
    references = References(search_options())
    for _ in range(5):
        references.add(measured(100))
    one = measured(50, 100, 100, 100, 100)
    references.judge([one])
    assert (one.failed, one.unsteady) == (True, True)
    few = measured(50, 100, 100)
    references.judge([few])
    assert (few.failed, few.unsteady) == (False, False)
