"""Few units: disjoint pairs at once, rotated once; or every pair, by the circle method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workloads.nccl.hunt.confirm import PARTNERS, Suspect, confirm, explain
from workloads.nccl.hunt.fleet import Fleet, below_floor
from workloads.nccl.hunt.plan import Finding, Outcome, Steps

ROTATED = 2  # rounds of the quick form
ALL_UP_TO = 4  # units up to which every pair is measured anyway: three rounds at most


def circle(units: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Every pair of `units` once, in rounds of disjoint pairs: k - 1 rounds for even k, k for odd (one sits out)."""
    ring: list[int | None] = [*units, *([None] if len(units) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]  # the first stays, the others go round
    return rounds


def search(fleet: Fleet, units: Sequence[int]) -> Steps[None]:
    """Find the faulty ones among `units`: whoever passes with nobody is suspect, and meets known-good partners."""
    rounds = circle(units)
    if not fleet.settings.full and len(units) > ALL_UP_TO:
        rounds = rounds[:ROTATED]
    outcomes: list[Outcome] = []
    for pairs in rounds:
        out = _hung_twice(outcomes)
        here = [pair for pair in pairs if not out.intersection(pair)]
        outcomes += yield from fleet.run([fleet.probe("pair", pair, "pairs") for pair in here])
    # Judged together: the first rounds alone would have too few results for a reference.
    yield from fleet.judge(outcomes)
    below_floor(fleet, outcomes)
    if all(outcome.failed is None for outcome in outcomes):
        text = f"{len(outcomes)} pair has nothing to be compared with: give --floor GB/s, or a third unit"
        fleet.find(Finding("unjudged", tuple(units), text, outcomes))
        return
    for outcome in outcomes:
        if outcome.failed is False:
            fleet.good.update(outcome.probe.units)
    failed = [outcome for outcome in outcomes if outcome.failed]
    suspects = {unit for outcome in failed for unit in outcome.probe.units} - fleet.good
    if not fleet.good and len(units) > 2:
        text = "no pair passes: the whole fleet, or what all pairs share"
        fleet.find(Finding("fleet", tuple(units), text, failed))
        return
    for unit in sorted(suspects):
        own = [outcome for outcome in failed if unit in outcome.probe.units]
        yield from confirm(fleet, Suspect(unit, own[0], own))
    for outcome in failed:
        # A pair that is slow although both are fast with others: nobody's fault, so far.
        if fleet.good.issuperset(outcome.probe.units) and not suspects.intersection(outcome.probe.units):
            yield from explain(fleet, outcome)


def _hung_twice(outcomes: Sequence[Outcome]) -> set[int]:
    """Units that sit out, because every hang costs a whole time-out: they hung with two partners."""
    hung = Counter(unit for outcome in outcomes if outcome.broken == "hang" for unit in outcome.probe.units)
    return {unit for unit, times in hung.items() if times >= PARTNERS}
