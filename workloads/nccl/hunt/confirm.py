"""From a suspicion to a verdict: two independent known-good partners, one of the tests with nothing else running."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from workloads.nccl.hunt.fleet import Fleet
from workloads.nccl.hunt.plan import Accused, Fault, Finding, Outcome, Probe, Steps
from workloads.nccl.hunt.ruler import MANY

PARTNERS = 2  # independent partners that a verdict needs
TRIES = 6  # partners that a suspect meets at most


@dataclass
class Suspect:
    """A unit in question: the test that brought it here, and its own failed pairs so far."""

    unit: int
    origin: Outcome
    failed: list[Outcome] = field(default_factory=list)


def confirm(fleet: Fleet, suspect: Suspect) -> Steps[bool]:
    """Whether `suspect` is accused: it fails with two known-good partners, at least once alone, and passes with none.

    Alone, because pairs that run side by side share the links above their switches. Sharing makes slow; it neither
    hangs nor spoils data, so that a test that broke needs no repetition alone.
    """
    unit = suspect.unit
    fleet.good.discard(unit)  # in question, whatever it passed before: a link that comes and goes passes often
    for _ in range(TRIES):
        failed = [outcome for outcome in suspect.failed if _independent(fleet, unit, outcome)]
        partners = {outcome.partners(unit) for outcome in failed}
        if len(partners) >= PARTNERS and any(outcome.alone or outcome.broken for outcome in failed):
            fleet.accused[unit] = Accused(unit, fault_of(failed), failed)
            fleet.good.discard(unit)
            return True
        partner = _partner(fleet, unit)
        if partner is None:
            _undecided(fleet, suspect)
            return False
        [outcome] = yield from fleet.ask([many(fleet.probe("pair", (unit, partner), "alone", suspects=(unit,)))])
        if outcome.failed is None:  # too few pairs were measured to tell
            _undecided(fleet, suspect)
            return False
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
    """A known-good unit that `unit` has not met, else one that it has met only beside other tests."""
    free = fleet.known_good({unit})
    met = fleet.met(unit)
    met_alone = fleet.met(unit, alone=True)
    return next(
        (other for other in free if other not in met), next((other for other in free if other not in met_alone), None)
    )


def many(probe: Probe) -> Probe:
    """The test with so many samples that a link that comes and goes shows in them."""
    return replace(probe, samples=max(MANY, probe.samples))


def explain(fleet: Fleet, outcome: Outcome) -> Steps[bool]:
    """Why a test failed whose units pass with others. True where it fails again alone: then somebody is to be found.

    Where it passes alone, its whole round is run again, which tells a fabric that cannot carry all of it at once from a
    link that comes and goes.
    """
    units = tuple(unit for unit in outcome.probe.units if unit not in fleet.accused)
    if len(units) < 2 or (fleet.serial and not outcome.alone and outcome.probe.kind == "pair"):
        # Once the fabric is known to be the cause, what failed beside other tests needs no other one.
        return False
    [alone] = yield from fleet.ask([many(replace(outcome.probe, units=units, stage="alone"))])
    if alone.failed and not alone.unsteady:
        if len(units) == 2 and fleet.good.issuperset(units):
            text = "slow between these two and fast from both to others: look at the path between them, not at a node"
            fleet.find(Finding("fabric", units, text, [outcome, alone]))
            return False
        return True
    if fleet.serial and not outcome.alone:
        return False
    replayed = [alone]
    if not outcome.alone and not alone.unsteady:
        replayed = yield from fleet.replay(outcome.round)
    again = next((other for other in replayed if other.probe.units == outcome.probe.units), alone)
    beside = len(fleet.rounds[outcome.round]) - 1
    if again.failed and not again.unsteady:
        text = f"slow while {beside} other tests run, and not alone: links above the nodes are shared or oversubscribed"
        fleet.find(Finding("fabric", units, f"{text}; tests go on one by one", [outcome, again, alone]))
        fleet.serial = True
    else:
        text = "failed and then did not: a link that comes and goes, or a disturbance from outside"
        fleet.find(Finding("intermittent", outcome.probe.suspects or units, text, [outcome, alone]))
    return False


def fault_of(outcomes: list[Outcome]) -> Fault:
    """The gravest of what was seen."""
    broken = {outcome.broken for outcome in outcomes}
    gravest: list[Fault] = [fault for fault in ("wrong", "hang", "error") if fault in broken]
    return gravest[0] if gravest else "unsteady" if any(outcome.unsteady for outcome in outcomes) else "slow"


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
        text = "one of these two, or the path between them: a third unit is needed to say which"
    else:
        text = "no known-good partner is left for these units: more units are needed"
    fleet.find(Finding("undecided", units, text, suspect.failed or [suspect.origin]))
