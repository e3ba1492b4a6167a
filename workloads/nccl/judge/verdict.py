"""The judge: a measurement, its evidence and what was expected in, a verdict out. Pure.

All that is wrong is told; the exit code is that of the worst, in the order of `ORDER`. Nothing passes by being absent:
no result, no evidence, unchecked data and no baseline each have a finding of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from workloads.exits import Exit
from workloads.nccl.judge import checks, units
from workloads.nccl.judge.expectation import Expectation, expectation_of
from workloads.nccl.judge.measurement import Measurement
from workloads.nccl.judge.own_result import read
from workloads.nccl.judge.reading import measurement_of_texts
from workloads.nccl.result import Comparison, Finding, Result, Verdict
from workloads.nccl.sizes import format_size

ORDER = (Exit.ERROR, Exit.WRONG_DATA, Exit.NOT_AS_ASKED, Exit.HANG, Exit.BELOW)
"""Which of several codes is the verdict's: what cannot be read says nothing, and wrong data is worse than slow data."""


def judge(measurement: Measurement, expectation: Expectation) -> Verdict:
    """The verdict on a measurement, whose `facts` are the evidence."""
    facts = measurement.facts
    found = [
        *measurement.findings,
        *checks.completeness(measurement),
        *checks.operations(measurement, expectation),
        *checks.wrong_data(measurement),
        *checks.unchecked(measurement, expectation),
        *checks.transport(measurement, expectation),
        *checks.same_run(measurement),
        *checks.covered(measurement, expectation),
    ]
    sound = []
    for run in measurement.runs:
        if not (run.rows or run.guarded):
            continue
        contradictions = units.disagreements(run, expectation.ranks)
        found += contradictions
        found += checks.ranks(run, facts, expectation)
        found += checks.hosts(run, facts, expectation)
        found += checks.gpus(run, expectation)
        found += checks.times(run)
        if not contradictions:
            sound.append(run)
            found += checks.possible(run, facts, expectation)
    comparisons, compared = checks.bandwidth(sound, facts, expectation)
    return _verdict([*found, *compared], comparisons, expectation)


def judge_texts(results: str | None, logs: Sequence[str], expectation: Expectation) -> Verdict:
    """The verdict on the text of a results file and of logs. Without results the logs alone can fail, and not pass."""
    named = expectation.ops[0] if len(expectation.ops) == 1 else None
    return judge(measurement_of_texts(results, logs, named, expectation.limits), expectation)


def verdict_of(
    result: Result, *, machine: str | None, need_floor: bool = True, need_check: bool = True, ops: Sequence[str] = ()
) -> Verdict:
    """The verdict on a finished run of our own, on the machines that its stack has.

    Without a machine type (`local`) there is no fabric to judge: the verdict is the driver's own, about correctness. A
    run that claims a fabric all the same has no baseline. Raises `WorkloadError` for a machine type that is not in the
    catalog or cannot be judged.
    """
    if machine is None or result.world is None:
        return _of_the_driver(result, machine, need_floor)
    expectation = expectation_of(machine, result.world.nodes, ops, need_floor=need_floor, need_check=need_check)
    return judge(read(result, expectation.limits), expectation)


def _of_the_driver(result: Result, machine: str | None, need_floor: bool) -> Verdict:
    code, reason, findings = result.exit_code, result.reason, []
    if not code and result.proves == "fabric" and need_floor:
        code = Exit.BELOW
        reason = "no baseline: the machine type is not known; --no-floor does without"
        findings = [Finding(code=code, kind="no-baseline", text=reason)]
    elif not code:
        reason += "; no fabric to judge" if result.proves != "fabric" else "; judged without a machine's figures"
    return Verdict(
        code=code,
        outcome="fail" if code else "pass",
        reason=reason,
        machine=machine,
        findings=findings,
        comparisons=[],
    )


def deciding(findings: Sequence[Finding]) -> int:
    """The exit code of all findings together, 0 where none fails."""
    codes = {finding.code for finding in findings}
    return next((int(code) for code in ORDER if code in codes), int(Exit.OK))


def _verdict(findings: list[Finding], comparisons: list[Comparison], expectation: Expectation) -> Verdict:
    findings = list(dict.fromkeys(findings))
    judged = [comparison for comparison in comparisons if comparison.confidence != "low"]
    if not judged and not deciding(findings) and not any(finding.kind == "no-baseline" for finding in findings):
        findings.append(checks.no_baseline(expectation.ops or ("what was measured",), expectation))
    code = deciding(findings)
    if code:
        reason = next(finding.text for finding in findings if finding.code == code)
        return _made(code, "fail", reason, findings, comparisons, expectation)
    slow = next((finding.text for finding in findings if finding.kind == "slow"), None)
    if slow is not None:
        return _made(code, "warn", slow, findings, comparisons, expectation)
    if not judged:
        reason = "nothing is wrong, and no published figure says whether it is fast: a pass by --no-floor"
        return _made(code, "pass", reason, findings, comparisons, expectation)
    least = min(judged, key=lambda comparison: comparison.share)
    reason = (
        f"{least.op} {format_size(least.size)}: {least.measured:.1f} GB/s, {least.share:.1%} of {least.expected:g}"
        f" GB/s ({least.source})"
    )
    return _made(code, "pass", reason, findings, comparisons, expectation)


def _made(
    code: int,
    outcome: Literal["pass", "warn", "fail"],
    reason: str,
    findings: list[Finding],
    comparisons: list[Comparison],
    expectation: Expectation,
) -> Verdict:
    return Verdict(
        code=code,
        outcome=outcome,
        reason=reason,
        machine=expectation.machine,
        findings=findings,
        comparisons=comparisons,
    )
