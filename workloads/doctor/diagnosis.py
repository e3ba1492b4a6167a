"""Diagnosis of a recorded state by all checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar

from pydantic import ConfigDict

from infra.catalog.names import NAMESPACE
from workloads.doctor import admission, conditions, ended, machines, nodes, pods, ray_state, workload
from workloads.doctor.check import Check, Problem, Severity
from workloads.doctor.state import UNREADABLE, State
from workloads.exits import Exit, last_line
from workloads.results.documents import ResultPart, Time

MODULES = (conditions, machines, pods, ended, workload, admission, ray_state, nodes)
CHECKS = tuple(
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, Check) and each.function.__module__ == module.__name__
)
"""All checks, causes before their consequences."""
SHOWN = 4  # places of a finding
CAUSES, LONGEST = 100, 2_000
"""Findings of one check, and characters of a text in one: most of them come from the cluster."""


class Finding(ResultPart):
    """A problem with the name of its check, and its cure."""

    check: str
    severity: Severity
    where: str
    cause: str
    cure: str
    evidence: str


class Diagnosis(ResultPart):
    """Result of all checks.

    `passed` found nothing. `skipped` could not run, because what they need could not be read: not a pass. `absent` do
    not apply to this stack or to its state.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)
    SCHEMA: ClassVar[str] = "rdma-ray/doctor/1"

    schema_: str = SCHEMA
    time: Time
    cluster: str
    target: str
    exit_code: int
    findings: list[Finding]
    passed: list[str]
    skipped: dict[str, str]
    absent: dict[str, str]


def diagnose(state: State, checks: Iterable[Check] = CHECKS) -> Diagnosis:
    """Run the checks on a state. Exit code 2: there are findings; 1: none, and a check could not run."""
    findings: list[Finding] = []
    passed: list[str] = []
    skipped: dict[str, str] = {}
    absent: dict[str, str] = {}
    for check in checks:
        unknown, missing = state.lacks(check.needs)
        if missing:
            absent[check.name] = next(iter(missing.values()))
        elif unknown:
            part, reason = next(iter(unknown.items()))
            skipped[check.name] = f"{part}: {reason}"
        else:
            try:
                problems = list(_findings(check, state))
            except UNREADABLE as error:
                skipped[check.name] = (
                    f"the state is not as expected ({type(error).__name__}: {last_line(error)[:LONGEST]})"
                )
                continue
            findings += problems
            cut = next((f"{part}: {state.cut[part]}" for part in check.needs if part in state.cut), None)
            if not problems and cut is not None:
                skipped[check.name] = cut  # what was left out may have a problem
            elif not problems:
                passed.append(check.name)
    code = Exit.BELOW if findings else Exit.ERROR if skipped else Exit.OK
    findings.sort(key=lambda finding: finding.severity)
    return Diagnosis(
        time=state.time,
        cluster=state.outputs.ray.cluster,
        target=state.outputs.target,
        exit_code=code,
        findings=findings,
        passed=passed,
        skipped=skipped,
        absent=absent,
    )


def _findings(one: Check, state: State) -> Iterator[Finding]:
    """Yield the check's findings: one for all the places with the same cause. Cures name the stack's namespace."""
    alike: dict[tuple[str, str, Severity], list[Problem]] = {}
    for problem in one(state):
        cure = (problem.cure or one.cure).replace(f"-n {NAMESPACE} ", f"-n {state.outputs.namespace or NAMESPACE} ")
        alike.setdefault((problem.cause, cure, problem.severity), []).append(problem)
    if len(alike) > CAUSES:
        more = f"{len(alike) - CAUSES} more causes"
        yield Finding(
            check=one.name, severity="error", where=more, cause="they were left out", cure=one.cure, evidence=""
        )
    for (cause, cure, severity), problems in islice(alike.items(), CAUSES):
        places = [problem.where for problem in problems]
        more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        where = ", ".join(places[:SHOWN]) + more
        evidence = "; ".join(dict.fromkeys(problem.evidence for problem in problems[:SHOWN]))
        texts = {"where": where, "cause": cause, "cure": cure, "evidence": evidence}
        short = {name: text if len(text) <= LONGEST else f"{text[:LONGEST]}…" for name, text in texts.items()}
        yield Finding(check=one.name, severity=severity, **short)
