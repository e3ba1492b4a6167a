"""Confirm a suspicion, then find the slow NIC.

A verdict needs failures with two independent known-good partners, one of them with nothing else running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from workloads.nccl.hunt.fleet import MANY, Fleet
from workloads.nccl.hunt.plan import Accused, Fault, Outcome, Probe, Steps

PARTNERS = 2  # independent partners that a verdict needs
TRIES = 6  # partners of a suspect at most
RAIL_FAULTS = ("slow", "wrong")  # a hang or an error costs a time-out per rail and identifies none


@dataclass
class Suspect:
    """A unit in question, the test that led to it, and its own failed pairs so far."""

    unit: int
    origin: Outcome
    failed: list[Outcome] = field(default_factory=list)


def confirm(fleet: Fleet, suspect: Suspect) -> Steps[bool]:
    """Return whether `suspect` is accused: it fails with two known-good partners, once alone, and passes with none.

    Pairs that run side by side share the links above their switches. Sharing slows tests down; it causes neither hangs
    nor wrong data, so a test that broke is not repeated alone.
    """
    unit = suspect.unit
    fleet.good.discard(unit)  # earlier passes do not count: a flapping link often passes
    for _ in range(TRIES):
        failed = [outcome for outcome in suspect.failed if _independent(fleet, unit, outcome)]
        partners = {outcome.partners(unit) for outcome in failed}
        if len(partners) >= PARTNERS and any(outcome.alone or outcome.broken for outcome in failed):
            fleet.accused[unit] = Accused(unit, fault_of(failed), failed)
            fleet.good.discard(unit)
            return True
        partner = _partner(fleet, unit)
        if partner is None:
            break
        [outcome] = yield from fleet.test([many(fleet.probe((unit, partner), "alone", suspects=(unit,)))])
        if outcome.failed is None:  # too few pairs for a reference
            break
        if outcome.failed:
            suspect.failed.append(outcome)
            continue
        fleet.good.add(unit)
        for earlier in failed:
            yield from explain(fleet, earlier)
        return False
    _undecided(fleet, suspect)
    return False


def _partner(fleet: Fleet, unit: int) -> int | None:
    """Return a known-good unit that `unit` has not met, or one that it has not met alone."""
    free = fleet.known_good({unit})
    for met in (fleet.met(unit), fleet.met(unit, alone=True)):
        if new := [other for other in free if other not in met]:
            return new[0]
    return None


def many(probe: Probe) -> Probe:
    """Return the test with enough samples to show a flapping link."""
    return replace(probe, samples=max(MANY, probe.samples))


def explain(fleet: Fleet, outcome: Outcome) -> Steps[bool]:
    """Explain a failed test whose units pass with others; return True if it fails again alone: a unit is at fault.

    If it passes alone, its whole round runs again, to distinguish a fabric that cannot carry all tests at once from a
    flapping link.
    """
    units = tuple(unit for unit in outcome.probe.units if unit not in fleet.accused)
    if len(units) < 2 or (fleet.serial and not outcome.alone and outcome.probe.kind == "pair"):
        return False  # a fabric already found to be overloaded explains failures in full rounds
    [alone] = yield from fleet.test([many(replace(outcome.probe, units=units, stage="alone"))])
    if alone.failed and not alone.unsteady:
        if len(units) == 2 and fleet.good.issuperset(units):
            text = "slow between these two and fast from both to others: look at the path between them, not at a node"
            fleet.find("fabric", units, text, [outcome, alone])
            return False
        return True
    if fleet.serial and not outcome.alone:
        return False
    replayed = [alone]
    if not outcome.alone and not alone.unsteady:
        replayed = yield from fleet.replay(outcome.round)
    again = next((other for other in replayed if other.probe.units == outcome.probe.units), alone)
    others = len(fleet.rounds[outcome.round]) - 1
    if again.failed and not again.unsteady:
        text = f"slow while {others} other tests run, and not alone: links above the nodes are shared or oversubscribed"
        fleet.find("fabric", units, f"{text}; tests continue one by one", [outcome, again, alone])
        fleet.serial = True
    else:
        text = "failed and then did not: a flapping link, or a disturbance from outside"
        fleet.find("intermittent", outcome.probe.suspects or units, text, [outcome, alone])
    return False


def fault_of(outcomes: list[Outcome]) -> Fault:
    """Return the most severe fault."""
    broken = {outcome.broken for outcome in outcomes}
    faults: tuple[Fault, ...] = ("wrong", "hang", "error")
    unsteady = any(outcome.unsteady for outcome in outcomes)
    return next((fault for fault in faults if fault in broken), "unsteady" if unsteady else "slow")


def _independent(fleet: Fleet, unit: int, outcome: Outcome) -> bool:
    disputed = fleet.disputed()
    return outcome.probe.kind == "pair" and all(
        other in fleet.good and other not in disputed for other in outcome.partners(unit)
    )


def _undecided(fleet: Fleet, suspect: Suspect) -> None:
    units = tuple(sorted({unit for outcome in suspect.failed for unit in outcome.probe.units} | {suspect.unit}))
    good = [unit for unit in units if unit in fleet.good and unit != suspect.unit]
    if good:
        text = (
            f"unit {suspect.unit} failed with {len(good)} known-good partner; a verdict needs two: one more is needed"
        )
    elif len(units) == 2:
        text = "one of these two, or the path between them: a third unit is needed to decide which"
    else:
        text = "no known-good partner is left for these units: more units are needed"
    fleet.find("undecided", units, text, suspect.failed or [suspect.origin])


def find_rails(fleet: Fleet) -> Steps[None]:
    """Set the slow rails of every accused unit. A control pair gives the bandwidth of a healthy rail.

    A slow rail is measured again with the partner's next rail: if that is slow too, this unit's NIC is at fault; else
    the path between both ends of the rail is.
    """
    accused = [one for one in fleet.accused.values() if one.fault in RAIL_FAULTS]
    if not accused or fleet.settings.rails < 2:
        return
    good = fleet.known_good()
    # Prefer a free partner from the verdict; accused units never share one.
    partners: dict[int, int] = {}
    for one in accused:
        met = [unit for units in one.partners for unit in units]
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
                [shifted] = yield from fleet.test([_rail(fleet, (one.unit, partners[one.unit]), rail, shifted=True)])
                if not shifted.failed:
                    text = f"rail {rail} is slow to the same rail of unit {partners[one.unit]}, not to the next one"
                    fleet.find("fabric", (one.unit,), f"{text}: look at the switch of that rail", [shifted])


def rails_of_pair(fleet: Fleet, units: Sequence[int]) -> Steps[list[int]]:
    """Return the slow rails between two units of which one is at fault; their other rails are the reference."""
    outcomes = []
    for rail in range(fleet.settings.rails):
        outcomes += yield from fleet.run([_rail(fleet, tuple(units), rail)])
    yield from fleet.judge(outcomes)
    return [outcome.probe.rail or 0 for outcome in outcomes if outcome.failed]


def _rail(fleet: Fleet, units: tuple[int, ...], rail: int, shifted: bool = False) -> Probe:
    stage = "rail shift" if shifted else "rails"
    return Probe("rail", units, stage, units[:1], rail=rail, shifted=shifted, samples=fleet.settings.samples)
