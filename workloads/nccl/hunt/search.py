"""Search for the faulty units: each unit alone, then pairs or groups, then rails, then the fabric.

Few units are tested in disjoint pairs, rotated once, or in every pair by the circle method. Many units are tested in
about √N groups at once; failed groups are halved, and the units that halving leaves unknown are tested together. This
follows NVIDIA's Cluster Readiness Engine (ADR-021/054/055, mode `diagnose`: groups of ⌈√N⌉, bisection, confirmation
with known-good nodes) and generalized binary splitting: only one half of a set with a fault is tested; if it passes,
the fault is in the other. Rounds cost more than tests, so few sets are split in four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import median

from workloads.nccl.hunt.confirm import confirm, explain, find_rails, find_undecided_rails
from workloads.nccl.hunt.fleet import ENOUGH, MANY, SURE, Fleet
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import NETWORK, SINGLE, Accused, Answer, GroupProbe, HuntVerdict, Round

SMALL = 32  # units that are searched by pairs
ROTATED = 2  # rounds of pairs without --full
ALL_UP_TO = 4  # most units whose pairs are all measured without --full: three rounds at most
HANGS = 2  # partners with which a unit hangs before the rounds of pairs skip it
PASSES = 3  # searches of the failures that remain unexplained
FEW = 3  # most sets that are split in four
NARROW = 4  # units of a set that is small


@dataclass(frozen=True)
class Suspects:
    """Units of which at least one is at fault if the failed test `origin` is right; unknown units without one."""

    units: Sequence[int]
    origin: GroupProbe | None = None


def hunt(options: HuntOptions, answer: Callable[[Round], Sequence[Answer]]) -> HuntVerdict:
    """Search the units for faulty ones; `answer` runs a round and returns one answer per test."""
    fleet = Fleet(options, answer)
    if options.single:
        _single(fleet)
    network = [unit for unit in fleet.units if unit not in fleet.accused]
    if len(network) > 1:
        (_pairs if len(network) <= SMALL else _groups)(fleet, network)
        _recheck_partners(fleet)
        find_rails(fleet)
        find_undecided_rails(fleet)
        _side_by_side(fleet)
    _report_broken(fleet)
    return HuntVerdict(
        tests=fleet.tests,
        accused=[fleet.accused[unit] for unit in sorted(fleet.accused)],
        findings=fleet.findings,
        network_tests=sum(test.kind in NETWORK for test in fleet.tests),
        rail_tests=sum(test.kind == "rail" for test in fleet.tests),
        rounds=len(fleet.rounds),
    )


def _single(fleet: Fleet) -> None:
    """Test each unit alone: its compute, and the links between its ranks. These verdicts need no partner."""
    for kind in SINGLE if fleet.options.rails > 1 else SINGLE[:1]:
        units = [unit for unit in fleet.units if unit not in fleet.accused]
        tests = fleet.test([GroupProbe(kind, (unit,), "single", (unit,), count=MANY) for unit in units])
        failed = [test for test in tests if test.failed]
        repeated = fleet.run([test.again("repeat", MANY) for test in failed], repeat=True)
        fleet.judge(repeated)
        for test, again in zip(failed, repeated, strict=True):
            [unit] = test.units
            if again.failed:
                fleet.accused[unit] = Accused.of(unit, again.broken or test.broken or kind, [test, again])
            else:
                fleet.find("intermittent", test.units, f"{kind}: failed and then did not", [test, again])


def _recheck_partners(fleet: Fleet) -> None:
    """Repeat the tests of verdicts that relied on a partner accused later."""
    for _ in range(len(fleet.accused)):
        accused = fleet.accused.copy()
        for one in accused.values():
            if any(partner in accused for partners in one.partners for partner in partners):
                del fleet.accused[one.unit]
                confirm(fleet, one.unit)


def _side_by_side(fleet: Fleet) -> None:
    """Check that the fabric carries concurrent tests: repeat one alone that passed in a full round."""
    concurrent = [test for test in fleet.tests if test.stage in ("groups", "pairs") and not test.alone]
    passed = [test for test in concurrent if test.failed is False]
    if not passed or fleet.serial:
        return
    [alone] = fleet.run([fleet.probe(passed[0].units, "alone", (), 3)])
    fleet.references.judge([alone])
    usual = median(test.value for test in passed if test.value is not None)
    if alone.value is not None and usual < fleet.references.threshold * alone.value:
        text = f"all tests side by side are slow: {usual:.4g} GB/s, and {alone.value:.4g} GB/s for one that runs alone"
        fleet.find("fabric", (), f"{text}: shared links are oversubscribed", [passed[0], alone])


def _report_broken(fleet: Fleet) -> None:
    """Record each hang, error or wrong data that no verdict and no finding has: chance causes none of them."""
    known = {number for finding in fleet.findings for number in finding.tests}
    for test in fleet.tests:
        if test.broken and test.number not in known and fleet.accused.keys().isdisjoint(test.units):
            fleet.find("intermittent", test.units, f"{test.broken}: failed and then did not", [test])


def circle(units: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return every pair of `units` once, in rounds of disjoint pairs: k - 1 rounds for even k, k for odd k."""
    ring: list[int | None] = [*units, *([None] if len(units) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]  # the first stays, the others rotate
    return rounds


def _pairs(fleet: Fleet, units: Sequence[int]) -> None:
    """Search by pairs: a unit that passes with no other is suspect, and meets known-good partners."""
    rounds = circle(units)
    if not fleet.options.full and len(units) > ALL_UP_TO:
        rounds = rounds[:ROTATED]
    tests: list[GroupProbe] = []
    for pairs in rounds:
        # Every hang costs a whole time-out: skip a unit that hung with two partners.
        hung = Counter(unit for test in tests if test.broken == "hang" for unit in test.units)
        here = [pair for pair in pairs if all(hung[unit] < HANGS for unit in pair)]
        tests += fleet.run([fleet.probe(pair, "pairs") for pair in here])
    if len(units) == ENOUGH and (passed := [test for test in tests if test.value is not None]):
        # With a fault, one pair of the three is healthy: a single fast result would accuse the third unit.
        best = max(passed, key=lambda test: test.value or 0)
        fleet.run([fleet.probe(best.units, "control", (), SURE)])
    # Judged together: the first rounds alone have too few results for a reference.
    fleet.judge(tests)
    fleet.check_floor("pair")
    if all(test.failed is None for test in tests):
        text = f"{len(tests)} pair has nothing to be compared with: set --floor GB/s, or add a third unit"
        fleet.find("unjudged", units, text, tests)
        return
    failed = [test for test in tests if test.failed]
    suspects = {unit for test in failed for unit in test.units} - fleet.good
    if not fleet.good and len(units) > 2:
        fleet.find(
            "fleet", units, "no pair passes: the cause is the whole fleet, or something that all pairs share", failed
        )
        return
    sets = [Suspects([unit], fleet.failures(unit)[0]) for unit in sorted(suspects)]
    # A slow pair whose units are both fast with others.
    sets += [Suspects(test.units, test) for test in failed if suspects.isdisjoint(test.units)]
    _settle(fleet, sets, 2)


def _groups(fleet: Fleet, units: Sequence[int]) -> None:
    """Search by groups."""
    shuffled = list(units)
    fleet.random.shuffle(shuffled)  # neighbors share a switch: groups of neighbors would share its faults
    count = round(sqrt(len(units)))
    tests = _first_groups(fleet, _parts(shuffled, count))
    size = ceil(len(units) / count)
    _settle(fleet, _narrow(fleet, [test for test in tests if test.failed], size), size)


def _settle(fleet: Fleet, suspects: Sequence[Suspects], size: int) -> None:
    """Confirm the suspects. Explain the failures that remain, and search those with a unit at fault again."""
    for _ in range(PASSES):
        origins: dict[int, GroupProbe] = {}
        for one in suspects:
            if len(one.units) == 1:
                confirm(fleet, one.units[0])
            if one.origin and fleet.good.issuperset(one.units):  # neither accused nor undecided
                origins[one.origin.number] = one.origin
        # An accused unit explains a failed test: the test's other units have passed other tests since.
        left = [test for test in origins.values() if fleet.accused.keys().isdisjoint(test.units)]
        failed = [again for test in left if (again := explain(fleet, test))]
        if not failed:
            return
        suspects = _narrow(fleet, failed, size)
    for test in failed:
        text = "this group fails repeatedly, but none of its units fails with others"
        fleet.find("intermittent", test.suspects, text, [test])


def _first_groups(fleet: Fleet, groups: Sequence[Sequence[int]]) -> list[GroupProbe]:
    """Test the first groups. If most fail, repeat one alone to see whether concurrent tests overload the fabric."""
    tests = fleet.test([fleet.probe(group, "groups") for group in groups])
    fleet.check_floor("group")
    failed = [test for test in tests if test.failed]
    if 2 * len(failed) <= len(tests):
        return tests
    [alone] = fleet.test([fleet.probe(failed[0].units, "alone")])
    if alone.failed:
        # With a fault in nearly every group, none is a reference: halve them until at most half fail.
        while 2 * len(failed) > len(tests) and max(len(test.units) for test in tests) > 3:
            halves = [part for test in tests for part in _parts(test.units, 2 if len(test.units) > 3 else 1)]
            tests = fleet.test([fleet.probe(half, "groups") for half in halves])
            failed = [test for test in tests if test.failed]
        return tests
    fleet.serial = True
    text = f"{len(failed)} of {len(tests)} groups are slow side by side, but the first of them is not slow alone"
    fleet.find("fabric", (), f"{text}: shared links are oversubscribed; tests continue one by one", [alone])
    rest = fleet.test([fleet.probe(test.units, "groups") for test in failed[1:]])
    return [*(test for test in tests if not test.failed), alone, *rest]


def _narrow(fleet: Fleet, failed: Sequence[GroupProbe], size: int) -> list[Suspects]:
    """Split the units of failed tests, all side by side, down to single suspects.

    All parts of a set but the last are tested. If they pass, the fault is in the last; if not, the last is unknown, and
    waits until a test of unknown units is full, or until all sets are small.
    """
    sets = [Suspects([unit for unit in test.suspects if unit not in fleet.accused], test) for test in failed]
    unknown: list[int] = []
    found: list[Suspects] = []
    while True:
        found += [one for one in sets if one.origin and len(one.units) == 1]
        sets = [one for one in sets if not one.origin or len(one.units) > 1]
        ready = len(unknown) if all(len(one.units) <= NARROW for one in sets) else len(unknown) // size * size
        sets += [Suspects(part) for part in _parts(unknown[:ready], ceil(ready / size))]
        unknown = unknown[ready:]
        planned = _plan(fleet, sets, size)
        if not planned:  # nothing is left, or no known-good partner
            return [*found, *(Suspects([unit], one.origin) for one in sets for unit in one.units)]
        fleet.test([test for _, tests in planned for test in tests])
        sets = [one for one in sets if all(one is not other for other, _ in planned)]
        for one, tests in planned:
            # A failed origin proves a fault, so a test without a reference counts as failed.
            failures = [test for test in tests if test.failed or (test.failed is None and one.origin)]
            sets += [Suspects(test.suspects, test) for test in failures]
            rest = [unit for unit in one.units if all(unit not in test.suspects for test in tests)]
            if failures:
                unknown += rest
            elif rest:
                sets.append(Suspects(rest, one.origin))


def _plan(fleet: Fleet, sets: Sequence[Suspects], size: int) -> list[tuple[Suspects, list[GroupProbe]]]:
    """Return the tests of the next round by set, and pairs of known-good units if pairs have no reference yet.

    Known-good units fill each test up to `size`: tests of one size have one reference. A set waits for the next round
    if too few of them are free, or if one of its units is in another test.
    """
    planned: list[tuple[Suspects, list[GroupProbe]]] = []
    busy: set[int] = set()
    suspects = {unit for one in sets for unit in one.units}
    ways = 4 if len(sets) <= FEW and not fleet.serial else 2
    for one in sets:
        if not busy.isdisjoint(one.units):  # sets from later failures can share units
            continue
        tests: list[GroupProbe] = []
        for part in _parts(one.units, ways)[:-1] if one.origin else [one.units]:
            filling = fleet.known_good(busy | suspects, most=max(0, size - len(part)))
            count = SURE if one.origin and one.origin.unsteady else 1
            tests.append(fleet.probe((*part, *filling), "bisection", part, count))
            busy.update(tests[-1].units)
        least = min(len(test.units) for test in tests)
        if least > 1 and (least >= size or not planned or not one.origin):
            planned.append((one, tests))
    missing = ENOUGH - sum(test.kind == "pair" for test in fleet.tests) if planned else 0
    free = fleet.known_good(busy | suspects, most=2 * max(0, missing))
    for pair in zip(free[::2], free[1::2], strict=False):
        planned.append((Suspects(pair), [fleet.probe(pair, "control", pair, SURE)]))
    return planned


def _parts(units: Sequence[int], count: int) -> list[Sequence[int]]:
    return [units[i::count] for i in range(min(count, len(units)))]
