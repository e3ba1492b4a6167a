"""Confirm a suspicion, then find the slow NIC.

A verdict needs two failed tests without a common partner, all partners known good. One of them is a pair with nothing
else running; the other may be a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from workloads.nccl.hunt.fleet import ENOUGH, MANY, SURE, Fleet
from workloads.nccl.hunt.result import Accused, Fault, GroupProbe

TRIES = 6  # partners of a suspect at most
BROKEN: tuple[Fault, ...] = ("wrong", "hang", "error")  # the most severe first
RAIL_FAULTS = ("slow", "wrong")  # a hang or an error costs a time-out per rail and identifies none


def confirm(fleet: Fleet, unit: int) -> None:
    """Test a suspect with known-good partners until it is accused, passes once, or no partner is left.

    It leaves `fleet.good`: earlier passes do not count, because a flapping link often passes.
    """
    fleet.good.discard(unit)
    for _ in range(TRIES):
        trusted = fleet.trusted()
        failed = [test for test in fleet.failures(unit) if trusted.issuperset(test.partners(unit))]
        if _proven(unit, failed):
            fleet.accused[unit] = Accused.of(unit, _fault_of(failed), failed)
            return
        tried = {other for test in failed if _decisive(test) for other in test.partners(unit)}
        met = fleet.met(unit)
        partners = fleet.known_good({unit, *tried})
        if not partners:
            break
        # A partner that passed in many samples is hardly a flapping link.
        partner = min(partners, key=lambda other: (other in met, -min(SURE, fleet.passed[other])))
        # Most of these tests fail: they would lower the reference of pairs.
        [test] = fleet.run([fleet.probe((unit, partner), "alone", (unit,), SURE)], repeat=True)
        fleet.judge([test])
        if test.failed is None:  # too few pairs for a reference
            break
        if not test.failed:
            return
    _undecided(fleet, unit)


def _proven(unit: int, failed: Sequence[GroupProbe]) -> bool:
    """Return whether one of these tests is decisive, and another one has none of its partners."""
    return any(
        set(one.partners(unit)).isdisjoint(other.partners(unit)) and (_decisive(one) or _decisive(other))
        for one, other in combinations(failed, 2)
    )


def _decisive(test: GroupProbe) -> bool:
    """Return whether neither a third unit nor another test explains this failure.

    Tests that run side by side share the links above their switches. Sharing slows tests; it causes neither hangs nor
    wrong data.
    """
    return test.kind == "pair" and (test.broken is not None or (test.alone and len(test.samples) >= MANY))


def _fault_of(failed: Sequence[GroupProbe]) -> Fault:
    """Return the most severe fault."""
    broken = {test.broken for test in failed}
    unsteady = any(test.unsteady for test in failed)
    return next((fault for fault in BROKEN if fault in broken), "unsteady" if unsteady else "slow")


def _undecided(fleet: Fleet, unit: int) -> None:
    failed = fleet.failures(unit)
    failed = [test for test in failed if len(test.units) == len(failed[0].units)]
    units = sorted({other for test in failed for other in test.units})
    good = fleet.good.intersection(units)
    if good:
        text = f"unit {unit} failed with {len(good)} known-good partner; a verdict needs two: one more is needed"
    elif len(units) == 2:
        text = "one of these two, or the path between them: a third unit is needed to decide which"
    else:
        text = "no known-good partner is left for these units: more units are needed"
    fleet.find("undecided", units, text, failed)


def explain(fleet: Fleet, test: GroupProbe) -> GroupProbe | None:
    """Run a failed test again alone. Return this repetition if it fails: one of the units is at fault.

    If it passes, the whole round runs again, to distinguish a fabric that cannot carry all tests at once from a
    flapping link. A fabric already found to be overloaded explains the failures of full rounds.
    """
    units, overloaded = test.units, fleet.serial and not test.alone
    if overloaded and test.kind == "pair":
        return None
    [alone] = fleet.test([test.again("alone", max(SURE, test.count))])
    if alone.failed:
        limit = (alone.limit or 0) * (alone.reference or 0)
        if len(units) > 2 or not fleet.good.issuperset(units) or max(alone.samples, default=0) > limit:
            return alone
        text = "slow between these two, but fast from both to others: look at the path between them, not at a node"
        fleet.find("fabric", units, text, [test, alone])
        return None
    if overloaded:
        return None
    again = alone
    if not test.alone:
        again = next(other for other in fleet.replay(test.round) if other.units == test.units)
    if again.failed and not again.unsteady:
        others = len(fleet.rounds[test.round]) - 1
        text = f"slow while {others} other tests run, but not alone: links above the nodes are shared or oversubscribed"
        fleet.find("fabric", units, f"{text}; tests continue one by one", [test, again, alone])
        fleet.serial = True
    else:
        text = "failed and then did not: a flapping link, or a disturbance from outside"
        fleet.find("intermittent", test.suspects or units, text, [test, alone])
    return None


def find_rails(fleet: Fleet) -> None:
    """Set the slow rails of every accused unit. A control pair gives the bandwidth of a healthy rail.

    A slow rail is measured again with the partner's next rail: if that is slow too, this unit's NIC is at fault; else
    the path between both ends of the rail is.
    """
    accused = [one for one in fleet.accused.values() if one.fault in RAIL_FAULTS]
    if not accused or fleet.options.rails < 2:
        return
    good = fleet.known_good()
    # Prefer a free partner from the verdict; accused units never share one.
    pairs: list[tuple[Accused, int]] = []
    for one in accused:
        met = [unit for units in one.partners for unit in units]
        partner = next((unit for unit in [*met, *good] if unit in good), None)
        if partner is not None:
            pairs.append((one, partner))
            good.remove(partner)
    control = [(good[0], good[1])] if len(good) >= 2 else []
    measured = _by_rail(fleet, [*((one.unit, partner) for one, partner in pairs), *control])
    for (one, partner), tests in zip(pairs, measured, strict=False):
        fleet.judge(tests)
        one.rails = _slow(tests)
        for rail in one.rails if len(one.rails) < fleet.options.rails else []:
            [shifted] = fleet.test([_rail(fleet, (one.unit, partner), rail, shifted=True)])
            if not shifted.failed:
                text = f"rail {rail} is slow to the same rail of unit {partner}, not to the next one"
                fleet.find("fabric", (one.unit,), f"{text}: look at the switch of that rail", [shifted])


def find_undecided_rails(fleet: Fleet) -> None:
    """Find the slow rail of two units that stay undecided or unjudged, with their other rails as reference."""
    if fleet.options.rails < ENOUGH:
        return
    for index, finding in enumerate(fleet.findings):
        if finding.kind in ("undecided", "unjudged") and len(finding.units) == 2:
            [tests] = _by_rail(fleet, [tuple(finding.units)])
            fleet.judge(tests)
            if slow := _slow(tests):
                text = f"{finding.text}; slow rails between them: {', '.join(map(str, slow))}"
                fleet.findings[index] = finding.model_copy(update={"kind": "undecided", "text": text})


def _by_rail(fleet: Fleet, pairs: Sequence[tuple[int, ...]]) -> list[tuple[GroupProbe, ...]]:
    """Test the rails one after another, all pairs side by side, and return the tests of each pair."""
    rails = range(fleet.options.rails)
    rounds = [fleet.run([_rail(fleet, pair, rail) for pair in pairs]) for rail in rails]
    return list(zip(*rounds, strict=True))


def _rail(fleet: Fleet, units: tuple[int, ...], rail: int, shifted: bool = False) -> GroupProbe:
    stage = "rail shift" if shifted else "rails"
    return GroupProbe("rail", units, stage, units[:1], rail, shifted, fleet.options.samples or 1)


def _slow(tests: Sequence[GroupProbe]) -> list[int]:
    return [test.rail or 0 for test in tests if test.failed]
