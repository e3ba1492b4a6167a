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
from dataclasses import dataclass, replace
from math import ceil, isqrt
from statistics import median
from typing import Literal

from workloads.nccl.hunt.confirm import PARTNERS, Suspect, confirm, explain, find_rails, rails_of_pair
from workloads.nccl.hunt.fleet import ENOUGH, Fleet
from workloads.nccl.hunt.plan import NETWORK, Accused, Answer, Outcome, Probe, Round, Settings, Steps, Verdict

SMALL = 32  # units that are searched by pairs
ROTATED = 2  # rounds of pairs without --full
ALL_UP_TO = 4  # most units whose pairs are all measured without --full: three rounds at most
PASSES = 3  # searches of the failures that remain unexplained


def play(units: int, settings: Settings, answer: Callable[[Round], Sequence[Answer]]) -> Verdict:
    """Run a whole search; `answer` runs a round and returns one answer per test."""
    steps = hunt(units, settings)
    try:
        tests = next(steps)
        while True:
            tests = steps.send(answer(tests))
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict


def hunt(units: int, settings: Settings) -> Steps[Verdict]:
    """Search `units` units. Raises ValueError for a single unit."""
    if units < 2:
        raise ValueError(f"{units} unit has no unit to be compared with: a hunt needs two or more")
    fleet = Fleet(units, settings)
    if settings.single:
        yield from _single(fleet)
    network = [unit for unit in fleet.units if unit not in fleet.accused]
    if len(network) > 1:
        yield from (_pairs if len(network) <= SMALL else _groups)(fleet, network)
        yield from _recheck_partners(fleet)
        yield from find_rails(fleet)
        yield from _undecided_rails(fleet)
        yield from _side_by_side(fleet)
    return Verdict(
        accused=sorted(fleet.accused.values(), key=lambda one: one.unit),
        findings=fleet.findings,
        outcomes=fleet.outcomes,
        tests=sum(outcome.probe.kind in NETWORK for outcome in fleet.outcomes),
        rail_tests=sum(outcome.probe.kind == "rail" for outcome in fleet.outcomes),
        rounds=len(fleet.rounds),
    )


def _single(fleet: Fleet) -> Steps[None]:
    """Test each unit alone: its compute, and the links between its ranks. These verdicts need no partner."""
    kinds: tuple[Literal["burn", "intra"], ...] = ("burn", "intra") if fleet.settings.rails > 1 else ("burn",)
    for kind in kinds:
        units = [unit for unit in fleet.units if unit not in fleet.accused]
        outcomes = yield from fleet.test([Probe(kind, (unit,), "single", (unit,)) for unit in units])
        for outcome in outcomes:
            if outcome.failed:
                [unit] = outcome.probe.units
                fleet.accused[unit] = Accused(unit, outcome.broken or kind, [outcome])


def _recheck_partners(fleet: Fleet) -> Steps[None]:
    """Repeat the tests of verdicts that relied on a partner accused later."""

    def doubtful(one: Accused) -> bool:
        return any(partner in fleet.accused for partners in one.partners for partner in partners)

    for _ in range(len(fleet.accused)):
        for one in [one for one in fleet.accused.values() if doubtful(one)]:
            del fleet.accused[one.unit]
            yield from confirm(fleet, Suspect(one.unit, one.evidence[0], list(one.evidence)))


def _undecided_rails(fleet: Fleet) -> Steps[None]:
    """Find the slow rail of two units that stay undecided or unjudged, with their other rails as reference."""
    for index, finding in enumerate(fleet.findings):
        if finding.kind in ("undecided", "unjudged") and len(finding.units) == 2 and fleet.settings.rails >= ENOUGH:
            slow = yield from rails_of_pair(fleet, finding.units)
            if slow:
                text = f"{finding.text}; slow rails between them: {', '.join(map(str, slow))}"
                fleet.findings[index] = finding.model_copy(update={"kind": "undecided", "text": text})


def _side_by_side(fleet: Fleet) -> Steps[None]:
    """Check that the fabric carries concurrent tests: repeat one alone that passed in a full round."""
    passed = [
        outcome
        for outcome in fleet.outcomes
        if outcome.probe.stage in ("groups", "pairs") and outcome.failed is False and not outcome.alone
    ]
    if not passed or fleet.serial:
        return
    probe = fleet.probe(passed[0].probe.units, "alone", ())
    [alone] = yield from fleet.run([replace(probe, samples=max(3, probe.samples))])
    fleet.references.judge(alone)
    usual = median(outcome.value for outcome in passed if outcome.value is not None)
    if alone.value is not None and usual < fleet.settings.threshold * alone.value:
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


def _pairs(fleet: Fleet, units: Sequence[int]) -> Steps[None]:
    """Search by pairs: a unit that passes with no other is suspect, and meets known-good partners."""
    rounds = circle(units)
    if not fleet.settings.full and len(units) > ALL_UP_TO:
        rounds = rounds[:ROTATED]
    outcomes: list[Outcome] = []
    for pairs in rounds:
        # Every hang costs a whole time-out: skip a unit that hung with two partners.
        hung = Counter(unit for outcome in outcomes if outcome.broken == "hang" for unit in outcome.probe.units)
        here = [pair for pair in pairs if all(hung[unit] < PARTNERS for unit in pair)]
        outcomes += yield from fleet.run([fleet.probe(pair, "pairs") for pair in here])
    # Judged together: the first rounds alone have too few results for a reference.
    yield from fleet.judge(outcomes)
    fleet.check_floor("pair")
    if all(outcome.failed is None for outcome in outcomes):
        text = f"{len(outcomes)} pair has nothing to be compared with: set --floor GB/s, or add a third unit"
        fleet.find("unjudged", tuple(units), text, outcomes)
        return
    for outcome in outcomes:
        if outcome.failed is False:
            fleet.good.update(outcome.probe.units)
    failed = [outcome for outcome in outcomes if outcome.failed]
    suspects = {unit for outcome in failed for unit in outcome.probe.units} - fleet.good
    if not fleet.good and len(units) > 2:
        text = "no pair passes: the whole fleet, or what all pairs share"
        fleet.find("fleet", tuple(units), text, failed)
        return
    for unit in sorted(suspects):
        own = [outcome for outcome in failed if unit in outcome.probe.units]
        yield from confirm(fleet, Suspect(unit, own[0], own))
    for outcome in failed:
        # A slow pair whose units are both fast with others.
        if fleet.good.issuperset(outcome.probe.units) and not suspects.intersection(outcome.probe.units):
            yield from explain(fleet, outcome)


@dataclass
class SuspectSet:
    """Units of which at least one is at fault if the failed test `origin` is right."""

    units: list[int]
    origin: Outcome


def _groups(fleet: Fleet, units: Sequence[int]) -> Steps[None]:
    """Search by groups."""
    shuffled = list(units)
    fleet.random.shuffle(shuffled)  # neighbors share a switch: groups of neighbors would share its faults
    count = isqrt(len(units) - 1) + 1
    size = ceil(len(units) / count)
    outcomes = yield from _first_groups(fleet, [shuffled[i::count] for i in range(count)])
    for _ in range(PASSES):
        unexplained: dict[int, Outcome] = {}
        suspects = yield from _bisect(fleet, _suspect_sets(fleet, outcomes), size, unexplained)
        for suspect in suspects:
            if not (yield from confirm(fleet, suspect)) and suspect.unit in fleet.good:
                unexplained[suspect.origin.number] = suspect.origin
        outcomes = []
        for origin in unexplained.values():
            # An accused unit explains a failed test: the test's other units have passed other tests since.
            if fleet.accused.keys().isdisjoint(origin.probe.suspects) and (yield from explain(fleet, origin)):
                outcomes.append(origin)
        if not outcomes:
            return
    for outcome in outcomes:
        text = "this group fails repeatedly, and none of its units fails with others"
        fleet.find("intermittent", outcome.probe.suspects, text, [outcome])


def _first_groups(fleet: Fleet, groups: Sequence[Sequence[int]]) -> Steps[list[Outcome]]:
    """Test the first groups. If most fail, repeat one alone to see whether concurrent tests overload the fabric."""
    outcomes = yield from fleet.test([fleet.probe(group, "groups") for group in groups])
    fleet.check_floor("group")
    if not _most_failed(outcomes):
        return outcomes
    failed = [outcome for outcome in outcomes if outcome.failed]
    [alone] = yield from fleet.test([fleet.probe(failed[0].probe.units, "alone")])
    if alone.failed:
        return (yield from _smaller(fleet, outcomes))
    fleet.serial = True
    text = f"{len(failed)} of {len(outcomes)} groups are slow side by side and the first of them is not alone"
    fleet.find("fabric", (), f"{text}: shared links are oversubscribed; tests continue one by one", [alone])
    rest = yield from fleet.test([fleet.probe(outcome.probe.units, "groups") for outcome in failed[1:]])
    return [*(outcome for outcome in outcomes if not outcome.failed), alone, *rest]


def _smaller(fleet: Fleet, outcomes: list[Outcome]) -> Steps[list[Outcome]]:
    """Halve all groups until at most half of them fail: with a fault in nearly every group, none is a reference."""
    while _most_failed(outcomes) and max(len(outcome.probe.units) for outcome in outcomes) > 3:
        halves = [
            half for outcome in outcomes for half in _parts(outcome.probe.units, -(-len(outcome.probe.units) // 2))
        ]
        outcomes = yield from fleet.test([fleet.probe(half, "groups") for half in halves])
    return outcomes


def _most_failed(outcomes: Sequence[Outcome]) -> bool:
    return 2 * sum(bool(outcome.failed) for outcome in outcomes) > len(outcomes)


def _suspect_sets(fleet: Fleet, outcomes: Sequence[Outcome]) -> list[SuspectSet]:
    """Return the units of failed tests, and record those of passed tests as good."""
    sets = []
    for outcome in outcomes:
        if outcome.failed is False:
            fleet.good.update(outcome.probe.units)
        elif units := [unit for unit in outcome.probe.suspects if unit not in fleet.accused]:
            sets.append(SuspectSet(units, outcome))
    return sets


def _bisect(fleet: Fleet, sets: list[SuspectSet], size: int, unexplained: dict[int, Outcome]) -> Steps[list[Suspect]]:
    """Halve all sets side by side down to single suspects, each with at most one failed pair.

    `unexplained` receives the failed tests whose unit, found by halving, does not fail.
    """
    pool: list[int] = []  # unknown units: the other half of a half that failed
    suspects: list[Suspect] = []
    while sets or pool:
        tests: list[tuple[Probe, SuspectSet | None]] = []
        busy: set[int] = set()
        candidates: list[tuple[list[int], SuspectSet | None]] = [
            (one.units[: max(1, len(one.units) // 2)], one) for one in sets
        ]
        if all(len(one.units) <= 1 for one in sets):
            # Last, so that a few tests clear what remains of all halvings.
            candidates += [(part, None) for part in _parts(pool, size)]
        for units, one in candidates:
            if probe := _padded(fleet, units, size, busy):
                tests.append((probe, one))
                busy.update(probe.units)
        if not tests:
            # No known-good partner is left.
            for left in [*sets, SuspectSet(pool, fleet.outcomes[-1])]:
                suspects += [Suspect(unit, left.origin) for unit in left.units]
            return suspects
        pairs = sum(probe.kind == "pair" for probe, _ in tests)
        probes = [probe for probe, _ in tests] + (fleet.controls(busy, pairs) if pairs else [])
        outcomes = yield from fleet.test(probes)
        for (probe, one), outcome in zip(tests, outcomes, strict=False):
            tested = list(probe.suspects)
            rest = one.units[len(tested) :] if one else []
            if one is None:
                pool = [unit for unit in pool if unit not in tested]
            else:
                sets.remove(one)
            if outcome.failed is False:
                fleet.good.update(tested)
                if one and rest:
                    sets.append(SuspectSet(rest, one.origin))
                elif one:
                    unexplained[one.origin.number] = one.origin
                continue
            pool += [unit for unit in rest if unit not in pool]
            if len(tested) == 1:
                # Its partner was known good, so this is the first of its own failed pairs.
                suspects.append(Suspect(tested[0], outcome, [outcome] if outcome.failed else []))
            else:
                sets.append(SuspectSet(tested, outcome))
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
