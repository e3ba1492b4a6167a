"""A whole hunt, stage by stage: each unit on its own, then pairs or groups, then rails, then a look at the fabric."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from workloads.nccl.hunt import groups, pairs, rails
from workloads.nccl.hunt.confirm import Suspect, confirm
from workloads.nccl.hunt.fleet import Fleet
from workloads.nccl.hunt.plan import NETWORK, Accused, Fault, Finding, Kind, Outcome, Probe, Settings, Steps
from workloads.nccl.hunt.ruler import ENOUGH


@dataclass
class Verdict:
    """What a hunt found. `tests` counts groups and pairs, repeats and controls included; `rounds` counts all rounds."""

    accused: list[Accused]
    findings: list[Finding]
    outcomes: list[Outcome]
    tests: int
    rail_tests: int
    rounds: int

    @property
    def clean(self) -> bool:
        """Nobody accused, nothing undecided, nothing slow; what came once and not again is a remark."""
        return not self.accused and all(finding.kind == "intermittent" for finding in self.findings)


def hunt(units: int, settings: Settings) -> Steps[Verdict]:
    """Search `units` units; ValueError where there is nothing to search."""
    if units < 2:
        raise ValueError(f"{units} unit has nobody to be compared with: a hunt takes two or more")
    fleet = Fleet(units, settings)
    if settings.single:
        yield from _single(fleet)
    network = [unit for unit in fleet.units if unit not in fleet.accused]
    if len(network) > 1:
        if len(network) <= settings.small:
            yield from pairs.search(fleet, network)
        else:
            yield from groups.search(fleet, network)
        yield from _partners_hold(fleet)
        yield from rails.search(fleet)
        yield from _pair_rails(fleet)
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
    """Stage 0: compute, and the ranks of one unit among themselves. No partner is involved, so none is needed."""
    kinds: list[Kind] = ["burn", "intra"] if fleet.settings.rails > 1 else ["burn"]
    for kind in kinds:
        units = [unit for unit in fleet.units if unit not in fleet.accused]
        outcomes = yield from fleet.ask([Probe(kind, (unit,), "single", (unit,)) for unit in units])
        for outcome in outcomes:
            if outcome.failed:
                [unit] = outcome.probe.units
                fault: Fault = "burn" if kind == "burn" else "intra"
                fleet.accused[unit] = Accused(unit, outcome.broken or fault, [outcome])


def _partners_hold(fleet: Fleet) -> Steps[None]:
    """A partner that was accused later speaks for nobody: verdicts that rested on it are tested again."""
    for _ in range(len(fleet.accused)):
        shaken = [one for one in fleet.accused.values() if _rests_on_accused(fleet, one)]
        if not shaken:
            return
        for one in shaken:
            del fleet.accused[one.unit]
            yield from confirm(fleet, Suspect(one.unit, one.evidence[0], list(one.evidence)))


def _rests_on_accused(fleet: Fleet, one: Accused) -> bool:
    return any(partner in fleet.accused for partners in one.partners for partner in partners)


def _pair_rails(fleet: Fleet) -> Steps[None]:
    """Two units that stay undecided or unjudged: at least their slow rail can be named, against their other rails."""
    for finding in fleet.findings:
        if finding.kind in ("undecided", "unjudged") and len(finding.units) == 2 and fleet.settings.rails >= ENOUGH:
            slow = yield from rails.of_pair(fleet, finding.units)
            if slow:
                finding.kind = "undecided"
                finding.text += f"; slow rails between them: {', '.join(map(str, slow))}"


def _side_by_side(fleet: Fleet) -> Steps[None]:
    """Whether the fabric carries the tests side by side: one that passed beside others is run alone."""
    beside = [
        outcome
        for outcome in fleet.outcomes
        if outcome.probe.stage in ("groups", "pairs") and outcome.failed is False and not outcome.alone
    ]
    together = [outcome.value for outcome in beside if outcome.value is not None]
    if not beside or fleet.serial:
        return
    probe = beside[0].probe
    again = fleet.probe(probe.kind, probe.units, "alone", ())
    [alone] = yield from fleet.run([Probe(again.kind, again.units, again.stage, (), samples=max(3, again.samples))])
    fleet.ruler.judge(alone)
    usual = median(together)
    if alone.value is not None and usual < fleet.settings.threshold * alone.value:
        text = f"all tests side by side are slow: {usual:.4g} GB/s, and {alone.value:.4g} GB/s for one that runs alone"
        fleet.find(Finding("fabric", (), f"{text}: shared links are oversubscribed", [beside[0], alone]))
