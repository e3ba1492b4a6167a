"""Many units: about √N groups at once, failing ones halved, what halving left unknown tested in one go.

After NVIDIA's Cluster Readiness Engine (ADR-021/054/055, mode `diagnose`: groups of ⌈√N⌉, bisection, confirmation with
known-good nodes) and generalised binary splitting: of a set that holds a fault only one half is tested; where it
passes, the fault is in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, isqrt

from workloads.nccl.hunt.confirm import Suspect, confirm, explain
from workloads.nccl.hunt.fleet import Fleet, below_floor
from workloads.nccl.hunt.plan import Finding, Outcome, Probe, Steps

PASSES = 3  # how often what stays unexplained is searched again


@dataclass
class Tainted:
    """Units of which at least one is at fault, if the failed test `origin` is to be believed."""

    units: list[int]
    origin: Outcome


def search(fleet: Fleet, units: Sequence[int]) -> Steps[None]:
    """Find the faulty ones among `units`."""
    shuffled = list(units)
    fleet.random.shuffle(shuffled)  # neighbours share a switch: groups of neighbours would share its faults
    count = isqrt(len(units) - 1) + 1
    size = ceil(len(units) / count)
    outcomes = yield from _ask_groups(fleet, [shuffled[i::count] for i in range(count)])
    for _ in range(PASSES):
        unexplained: list[Outcome] = []
        suspects = yield from _bisect(fleet, _tainted(fleet, outcomes), size, unexplained)
        for suspect in suspects:
            if not (yield from confirm(fleet, suspect)) and suspect.unit in fleet.good:
                unexplained.append(suspect.origin)
        outcomes = []
        for origin in _once(unexplained):
            if set(origin.probe.suspects) & set(fleet.accused):
                # It failed because of them; the others of it have passed in other tests since.
                continue
            if (yield from explain(fleet, origin)):
                outcomes.append(origin)
        if not outcomes:
            return
    for outcome in outcomes:
        text = "this group fails again and again, and none of its units does with others"
        fleet.find(Finding("intermittent", outcome.probe.suspects, text, [outcome]))


def _ask_groups(fleet: Fleet, groups: Sequence[Sequence[int]]) -> Steps[list[Outcome]]:
    """The first look. Where most fails, one of them alone shows whether all at once is too much."""
    outcomes = yield from fleet.ask([fleet.probe("group", group, "groups") for group in groups])
    below_floor(fleet, outcomes)
    if not _most_failed(outcomes):
        return outcomes
    failed = [outcome for outcome in outcomes if outcome.failed]
    [alone] = yield from fleet.ask([fleet.probe("group", failed[0].probe.units, "alone")])
    if alone.failed:
        return (yield from _smaller(fleet, outcomes))
    fleet.serial = True
    text = f"{len(failed)} of {len(outcomes)} groups are slow side by side and the first of them is not alone"
    fleet.find(Finding("fabric", (), f"{text}: shared links are oversubscribed; tests go on one by one", [alone]))
    rest = yield from fleet.ask([fleet.probe("group", outcome.probe.units, "groups") for outcome in failed[1:]])
    return [*(outcome for outcome in outcomes if not outcome.failed), alone, *rest]


def _smaller(fleet: Fleet, outcomes: list[Outcome]) -> Steps[list[Outcome]]:
    """Halve all groups until no more than half of them fail.

    With a fault in nearly every group the best groups are only the least bad ones, and no reference at all.
    """
    while _most_failed(outcomes) and max(len(outcome.probe.units) for outcome in outcomes) > 3:
        halves = [
            half for outcome in outcomes for half in _parts(outcome.probe.units, -(-len(outcome.probe.units) // 2))
        ]
        outcomes = yield from fleet.ask([fleet.probe("group", half, "groups") for half in halves])
    return outcomes


def _most_failed(outcomes: Sequence[Outcome]) -> bool:
    return 2 * sum(bool(outcome.failed) for outcome in outcomes) > len(outcomes)


def _tainted(fleet: Fleet, outcomes: Sequence[Outcome]) -> list[Tainted]:
    """Sort what was tested into good and tainted."""
    tainted = []
    for outcome in outcomes:
        if outcome.failed is not False:
            tainted.append(Tainted([u for u in outcome.probe.suspects if u not in fleet.accused], outcome))
        else:
            fleet.good.update(outcome.probe.units)
    return [one for one in tainted if one.units]


def _bisect(fleet: Fleet, tainted: list[Tainted], size: int, unexplained: list[Outcome]) -> Steps[list[Suspect]]:
    """Halve all tainted sets side by side down to single suspects, each with at most one failed pair.

    `unexplained` takes the tests that failed although the unit that they led to does not.
    """
    pool: list[int] = []  # nothing is known of these: the other half of a half that failed
    suspects: list[Suspect] = []
    while tainted or pool:
        tests: list[tuple[Probe, Tainted | None]] = []
        held: Tainted | None
        busy: set[int] = set()
        for one in tainted:
            half = one.units[: max(1, len(one.units) // 2)]
            if probe := _padded(fleet, half, size, busy):
                tests.append((probe, one))
                busy.update(probe.units)
        if all(len(one.units) <= 1 for one in tainted):
            # Last, so that one or a few tests clear what all the halvings left.
            for part in _parts(pool, size):
                if probe := _padded(fleet, part, size, busy):
                    tests.append((probe, None))
                    busy.update(probe.units)
        if not tests:
            # No known-good partner is left for anybody.
            for one in [*tainted, Tainted(pool, fleet.outcomes[-1])]:
                suspects += [Suspect(unit, one.origin) for unit in one.units]
            return suspects
        pairs = sum(probe.kind == "pair" for probe, _ in tests)
        asked = [probe for probe, _ in tests] + (fleet.controls(busy, pairs) if pairs else [])
        outcomes = yield from fleet.ask(asked)
        for (probe, held), outcome in zip(tests, outcomes, strict=False):
            halved = list(probe.suspects)
            rest = held.units[len(halved) :] if held else []
            if held is None:
                pool = [unit for unit in pool if unit not in halved]
            else:
                tainted.remove(held)
            if outcome.failed is False:
                fleet.good.update(halved)
                if held and rest:
                    tainted.append(Tainted(rest, held.origin))
                elif held:
                    unexplained.append(held.origin)
                continue
            pool += [unit for unit in rest if unit not in pool]
            if len(halved) == 1:
                # Its partner was known good, so that this is the first of its own failed pairs.
                suspects.append(Suspect(halved[0], outcome, [outcome] if outcome.failed else []))
            else:
                tainted.append(Tainted(halved, outcome))
    return suspects


def _padded(fleet: Fleet, suspects: Sequence[int], size: int, busy: Collection[int]) -> Probe | None:
    """A test of `suspects`, filled up with known-good units to the size of the first groups, or a pair for one unit.

    Of one size, tests have one reference. None where a single unit finds no partner that is free, and where a suspect
    is in another test of this round: sets that later failures lead to can share units.
    """
    if not set(suspects).isdisjoint(busy):
        return None
    single = len(suspects) == 1
    without = {*busy, *suspects, *(fleet.met(suspects[0]) if single else ())}
    free = fleet.known_good(without, most=1 if single else max(0, size - len(suspects)))
    if single and not free:
        return None
    return fleet.probe("group", (*suspects, *free), "bisection", suspects)


def _parts(units: Sequence[int], size: int) -> list[list[int]]:
    count = ceil(len(units) / size)
    return [list(units[i::count]) for i in range(count)]


def _once(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return list({outcome.number: outcome for outcome in outcomes}.values())
