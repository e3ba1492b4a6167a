"""Judge the transport of a hunt's tests and the health of the GPUs, from the evidence of each unit. Pure.

A fleet that is slow everywhere has no slow unit: only NCCL's log shows that it uses sockets. Judged where the stack's
machine has its own transport and several nodes take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workloads.evidence.facts import Evidence, LogFacts
from workloads.evidence.log_reader import JOINED
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import SINGLE, Accused, HuntFinding, HuntVerdict, Rail, Unit
from workloads.nccl.problems import node_problems, problems
from workloads.nccl.result import EvidenceFinding

WRONG_PATH = ("socket-transport", "other-plugin", "other-provider", "no-gdrdma", "nic-missing")
"""Findings that show a fault of the unit itself."""
UNKNOWN_PATH = ("no-log", "empty-log", "no-plugin", "no-channel")
SYMPTOMS = ("slow", "unsteady", "hang", "error")
"""Faults that a wrong path explains: a node on sockets also breaks the tests with nodes that are not."""
UNEXPLAINED = ("wrong", "transport")
"""Faults that a GPU's errors do not explain."""
DISPUTES = ("undecided", "fabric", "intermittent")
"""Findings that a dead unit explains."""


def judged(
    verdict: HuntVerdict, options: HuntOptions, evidence: Evidence | None, gone: Mapping[int, str] | None = None
) -> HuntVerdict:
    """Return the verdict with the units that the evidence accuses, and its findings about the fleet and its nodes.

    `gone` are the ranks that could not be started again, and why. The search misses their unit if it passed tests
    before, and treats its last test as a slow path.
    """
    accused = {one.unit: one for one in verdict.accused}
    lost = {rank // options.rails: reason for rank, reason in (gone or {}).items()}
    for unit, reason in lost.items():
        accused[unit] = (accused.get(unit) or Accused.of(unit, "error", [])).with_evidence([reason])
    findings = [one for one in verdict.findings if one.kind not in DISPUTES or lost.keys().isdisjoint(one.units)]
    if evidence is not None:
        _judge_path(verdict, options, evidence, accused, findings)
    ranked = [accused[unit] for unit in sorted(accused)]
    return verdict.model_copy(update={"accused": ranked, "findings": findings})


def _judge_path(
    verdict: HuntVerdict,
    options: HuntOptions,
    evidence: Evidence,
    accused: dict[int, Accused],
    findings: list[HuntFinding],
) -> None:
    """Add what the evidence shows to the accused units and the findings."""
    tested: set[int] = set()  # whose log shows a network test: the log of a broken test ended with its processes
    for test in verdict.tests:
        if test.broken in ("hang", "error"):
            tested.difference_update(test.units)
        elif test.kind not in SINGLE:
            tested.update(test.units)
    parts = {unit: _of_unit(unit, options, evidence) for unit in range(options.units)}
    logs = {unit: part.log for unit, part in parts.items()}
    paths = {unit: list(_path(logs[unit], options)) for unit in parts if unit in tested}
    logged = [unit for unit in paths if logs[unit]]
    shared = set.intersection(*({one.kind for one in paths[unit]} for unit in logged)) if logged else set()
    for kind in [kind for kind in WRONG_PATH if kind in shared]:
        text = next(one.text for unit in logged for one in paths[unit] if one.kind == kind)
        findings.append(HuntFinding(kind="transport", units=[], tests=[], text=text))
    for unit, found in paths.items():
        if own := [one.text for one in found if one.kind in WRONG_PATH and one.kind not in shared]:
            one = accused.get(unit) or Accused.of(unit, "transport", [])
            accused[unit] = one.with_evidence(own, "transport" if one.fault in SYMPTOMS else one.fault)
    for unit, part in parts.items():
        found_there = list(node_problems(part))
        remarks = [one.text for one in found_there]
        if any(one.code for one in found_there):
            one = accused.get(unit) or Accused.of(unit, "gpu", [])
            accused[unit] = one.with_evidence(remarks, one.fault if one.fault in UNEXPLAINED else "gpu")
        elif remarks and unit in accused:
            accused[unit] = accused[unit].with_evidence(remarks)
        elif remarks:
            findings.append(HuntFinding(kind="node", units=[unit], tests=[], text="; ".join(remarks)))
    unknown: dict[str, list[int]] = {}
    for unit, found in paths.items():
        for problem in found:
            if problem.kind in UNKNOWN_PATH and unit not in accused:
                unknown.setdefault(problem.text, []).append(unit)
    for text, units in unknown.items():
        why = f" ({'; '.join(evidence.missing)})" if evidence.missing else ""
        findings.append(HuntFinding(kind="transport", units=units, tests=[], text=text + why))


def _of_unit(unit: int, options: HuntOptions, evidence: Evidence) -> Evidence:
    ranks = [rank for rank in evidence.ranks if rank.rank // options.rails == unit]
    return evidence.model_copy(update={"ranks": ranks})


def _path(log: LogFacts | None, options: HuntOptions) -> Iterator[EvidenceFinding]:
    """Yield what the log of one unit says of the path. It holds groups of many sizes, so their sizes are no finding."""
    nodes, _ = options.world
    if options.network is None or nodes < 2:
        return
    for one in problems(log, nodes=nodes, nics=options.nics, network=options.network):
        if one.kind in (*WRONG_PATH, *UNKNOWN_PATH):
            yield one


def with_logged_nics(units: Sequence[Unit], evidence: Evidence | None) -> list[Unit]:
    """Return the units with the NICs that NCCL's log names, on rails for which the PCI path names none."""
    logs = {rank.rank: rank.log for rank in evidence.ranks} if evidence else {}

    def named(rank: int, rail: Rail) -> Rail:
        return rail if rail.nics else rail.model_copy(update={"nics": _logged(logs.get(rank))})

    return [
        unit.model_copy(
            update={"rails": [named(unit.unit * len(unit.rails) + at, rail) for at, rail in enumerate(unit.rails)]}
        )
        for unit in units
    ]


def _logged(log: LogFacts | None) -> list[str]:
    """Return the NICs that this rank's own connections used in groups of two, as a rail test is one."""
    if log is None or log.plugin == JOINED:
        return []
    used = sorted({one.device for one in log.carried if one.device is not None and one.end and one.size == 2})
    return [name for device in used for name in log.devices.get(device, "").split("+") if name]
