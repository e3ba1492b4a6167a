"""Search for the faulty units: each unit alone, then pairs or groups, then rails, then the fabric.

Few units are tested in disjoint pairs, rotated once, or in every pair by the circle method. Many units are tested in
about √N groups at once; failed groups are halved, and the units that halving leaves unknown are tested together. This
follows NVIDIA's Cluster Readiness Engine (ADR-021/054/055, mode `diagnose`: groups of ⌈√N⌉, bisection, confirmation
with known-good nodes) and generalized binary splitting: only one half of a set with a fault is tested; if it passes,
the fault is in the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import ceil, isqrt
from statistics import median

from workloads.nccl.hunt.confirm import PARTNERS, Suspect, confirm, explain, find_rails, find_undecided_rails
from workloads.nccl.hunt.fleet import Fleet
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import NETWORK, SINGLE, Accused, Answer, Probe, Round, Verdict

SMALL = 32  # units that are searched by pairs
ROTATED = 2  # rounds of pairs without --full
ALL_UP_TO = 4  # most units whose pairs are all measured without --full: three rounds at most
PASSES = 3  # searches of the failures that remain unexplained


def hunt(options: HuntOptions, answer: Callable[[Round], Sequence[Answer]]) -> Verdict:
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
    return Verdict(
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
        tests = fleet.test([Probe(kind, (unit,), "single", (unit,)) for unit in units])
        for unit, test in zip(units, tests, strict=True):
            if test.failed:
                fleet.accused[unit] = Accused.of(unit, test.broken or kind, [test])


def _recheck_partners(fleet: Fleet) -> None:
    """Repeat the tests of verdicts that relied on a partner accused later."""
    for _ in range(len(fleet.accused)):
        accused = fleet.accused.copy()
        for one in accused.values():
            if any(partner in accused for partners in one.partners for partner in partners):
                del fleet.accused[one.unit]
                failed = [fleet.tests[number] for number in one.tests]
                confirm(fleet, Suspect([one.unit], failed[0], failed))


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
    tests: list[Probe] = []
    for pairs in rounds:
        # Every hang costs a whole time-out: skip a unit that hung with two partners.
        hung = Counter(unit for test in tests if test.broken == "hang" for unit in test.units)
        here = [pair for pair in pairs if all(hung[unit] < PARTNERS for unit in pair)]
        tests += fleet.run([fleet.probe(pair, "pairs") for pair in here])
    # Judged together: the first rounds alone have too few results for a reference.
    fleet.judge(tests)
    fleet.check_floor("pair")
    if all(test.failed is None for test in tests):
        text = f"{len(tests)} pair has nothing to be compared with: set --floor GB/s, or add a third unit"
        fleet.find("unjudged", units, text, tests)
        return
    fleet.good.update(*(test.units for test in tests if test.failed is False))
    failed = [test for test in tests if test.failed]
    suspects = {unit for test in failed for unit in test.units} - fleet.good
    if not fleet.good and len(units) > 2:
        fleet.find("fleet", units, "no pair passes: the whole fleet, or what all pairs share", failed)
        return
    for unit in sorted(suspects):
        own = [test for test in failed if unit in test.units]
        confirm(fleet, Suspect([unit], own[0], own))
    for test in failed:
        # A slow pair whose units are both fast with others.
        if fleet.good.issuperset(test.units) and suspects.isdisjoint(test.units):
            explain(fleet, test)


def _groups(fleet: Fleet, units: Sequence[int]) -> None:
    """Search by groups."""
    shuffled = list(units)
    fleet.random.shuffle(shuffled)  # neighbors share a switch: groups of neighbors would share its faults
    count = isqrt(len(units) - 1) + 1
    size = ceil(len(units) / count)
    tests = _first_groups(fleet, [shuffled[i::count] for i in range(count)])
    for _ in range(PASSES):
        unexplained: dict[int, Probe] = {}
        for suspect in _bisect(fleet, tests, size, unexplained):
            if not confirm(fleet, suspect) and fleet.good.issuperset(suspect.units):
                unexplained[suspect.origin.number] = suspect.origin
        tests = []
        for origin in unexplained.values():
            # An accused unit explains a failed test: the test's other units have passed other tests since.
            if fleet.accused.keys().isdisjoint(origin.suspects) and explain(fleet, origin):
                tests.append(origin)
        if not tests:
            return
    for test in tests:
        text = "this group fails repeatedly, and none of its units fails with others"
        fleet.find("intermittent", test.suspects, text, [test])


def _first_groups(fleet: Fleet, groups: Sequence[Sequence[int]]) -> list[Probe]:
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
            halves = [half for test in tests for half in _parts(test.units, -(-len(test.units) // 2))]
            tests = fleet.test([fleet.probe(half, "groups") for half in halves])
            failed = [test for test in tests if test.failed]
        return tests
    fleet.serial = True
    text = f"{len(failed)} of {len(tests)} groups are slow side by side and the first of them is not alone"
    fleet.find("fabric", (), f"{text}: shared links are oversubscribed; tests continue one by one", [alone])
    rest = fleet.test([fleet.probe(test.units, "groups") for test in failed[1:]])
    return [*(test for test in tests if not test.failed), alone, *rest]


def _bisect(fleet: Fleet, tests: Sequence[Probe], size: int, unexplained: dict[int, Probe]) -> list[Suspect]:
    """Halve the units of failed tests side by side down to single suspects, each with at most one failed pair.

    `unexplained` receives the failed tests whose unit, found by halving, does not fail.
    """
    fleet.good.update(*(test.units for test in tests if test.failed is False))
    failed = [test for test in tests if test.failed is not False]
    sets = [Suspect([unit for unit in test.suspects if unit not in fleet.accused], test) for test in failed]
    sets = [one for one in sets if one.units]
    pool: list[int] = []  # unknown units: the other half of a half that failed
    suspects: list[Suspect] = []
    while sets or pool:
        halves: list[tuple[list[int], Suspect | None]] = [
            (one.units[: max(1, len(one.units) // 2)], one) for one in sets
        ]
        if all(len(one.units) <= 1 for one in sets):
            # Last, so that a few tests clear what remains of all halvings.
            halves += [(part, None) for part in _parts(pool, size)]
        planned: list[tuple[Probe, Suspect | None]] = []
        busy: set[int] = set()
        for half, one in halves:
            if test := _padded(fleet, half, size, busy):
                planned.append((test, one))
                busy.update(test.units)
        if not planned:
            # No known-good partner is left.
            for left in [*sets, Suspect(pool, fleet.tests[-1])]:
                suspects += [Suspect([unit], left.origin) for unit in left.units]
            return suspects
        pairs = sum(test.kind == "pair" for test, _ in planned)
        controls = fleet.controls(busy, pairs) if pairs else []
        fleet.test([*(test for test, _ in planned), *controls])
        for test, one in planned:
            tested = list(test.suspects)
            rest = one.units[len(tested) :] if one else []
            if one is None:
                pool = [unit for unit in pool if unit not in tested]
            else:
                sets.remove(one)
            if test.failed is False:
                fleet.good.update(tested)
                if one and rest:
                    sets.append(Suspect(rest, one.origin))
                elif one:
                    unexplained[one.origin.number] = one.origin
                continue
            pool += [unit for unit in rest if unit not in pool]
            if len(tested) == 1:
                # Its partner was known good, so this is the first of its own failed pairs.
                suspects.append(Suspect(tested, test, [test] if test.failed else []))
            else:
                sets.append(Suspect(tested, test))
    return suspects


def _padded(fleet: Fleet, suspects: Sequence[int], size: int, busy: Collection[int]) -> Probe | None:
    """Return a test of `suspects` with known-good units up to `size`, or a pair for one unit.

    Tests of one size have one reference. None if a single unit has no free partner, or if a suspect is in another test
    of this round: sets from later failures can share units.
    """
    if not set(suspects).isdisjoint(busy):
        return None
    single = len(suspects) == 1
    without = {*busy, *suspects, *(fleet.met(suspects[0]) if single else ())}
    free = fleet.known_good(without, most=1 if single else max(0, size - len(suspects)))
    if single and not free:
        return None
    return fleet.probe((*suspects, *free), "bisection", suspects)


def _parts(units: Sequence[int], size: int) -> list[list[int]]:
    count = ceil(len(units) / size)
    return [list(units[i::count]) for i in range(count)]
