"""Which NIC: the ranks of one rail alone, one rail after the other."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.nccl.hunt.fleet import Fleet
from workloads.nccl.hunt.plan import Finding, Outcome, Probe, Steps

TO_RAILS = ("slow", "wrong")  # a hang or an error costs a time-out per rail and names nothing


def search(fleet: Fleet) -> Steps[None]:
    """Fill in the slow rails of every accused unit. A control pair shows what a healthy rail gives.

    A rail that is slow is measured once more against the partner's next rail: still slow, it is this unit's NIC; fast,
    it is what both ends of the rail have between them.
    """
    accused = [one for one in fleet.accused.values() if one.fault in TO_RAILS]
    if not accused or fleet.settings.rails < 2:
        return
    good = fleet.known_good()
    # The partner is one that the verdict rests on, wherever it is free; two accused never share one.
    partners: dict[int, int] = {}
    for one in accused:
        met = [partner for partners_ in one.partners for partner in partners_]
        partner = next((unit for unit in [*met, *good] if unit in good), None)
        if partner is not None:
            partners[one.unit] = partner
            good.remove(partner)
    pairs = list(partners.items())
    control = [(good[0], good[1])] if len(good) >= 2 else []
    measured: dict[int, list[Outcome]] = {unit: [] for unit in partners}
    for rail in range(fleet.settings.rails):
        outcomes = yield from fleet.run([_rail(fleet, pair, rail) for pair in [*pairs, *control]])
        for (unit, _), outcome in zip(pairs, outcomes, strict=False):
            measured[unit].append(outcome)
    for one in accused:
        if one.unit in measured:
            yield from fleet.judge(measured[one.unit])
            one.rails = [outcome.probe.rail or 0 for outcome in measured[one.unit] if outcome.failed]
            for rail in one.rails if len(one.rails) < fleet.settings.rails else []:
                [shifted] = yield from fleet.ask([_rail(fleet, (one.unit, partners[one.unit]), rail, shifted=True)])
                if not shifted.failed:
                    text = f"rail {rail} is slow to the same rail of unit {partners[one.unit]}, not to the next one"
                    fleet.find(Finding("fabric", (one.unit,), f"{text}: look at the switch of that rail", [shifted]))


def of_pair(fleet: Fleet, units: Sequence[int]) -> Steps[list[int]]:
    """The slow rails between two units of which one is at fault; the pair's other rails are the reference."""
    outcomes = []
    for rail in range(fleet.settings.rails):
        outcomes += yield from fleet.run([_rail(fleet, tuple(units), rail)])
    yield from fleet.judge(outcomes)
    return [outcome.probe.rail or 0 for outcome in outcomes if outcome.failed]


def _rail(fleet: Fleet, units: tuple[int, ...], rail: int, shifted: bool = False) -> Probe:
    stage = "rail shift" if shifted else "rails"
    return Probe("rail", units, stage, units[:1], rail=rail, shifted=shifted, samples=fleet.settings.samples)
