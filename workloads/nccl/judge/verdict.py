"""Judge a measurement by its evidence and an expectation. Pure.

The verdict lists all findings; its exit code is that of the worst, in the order of `ORDER`. A missing result, missing
evidence, unchecked data and a missing baseline are findings, so none of them passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workloads.exits import Exit
from workloads.nccl.judge import checks
from workloads.nccl.judge.expectation import Expectation, limits_of, machine_named, network_of
from workloads.nccl.judge.measurement import Measurement
from workloads.nccl.judge.reading import measurement_of_result, measurement_of_texts
from workloads.nccl.problems import THROTTLED, failure, node_problems, problems
from workloads.nccl.result import BenchResult, EvidenceFinding, Verdict
from workloads.nccl.units import format_size

ORDER = (Exit.ERROR, Exit.WRONG_DATA, Exit.NOT_AS_ASKED, Exit.HANG, Exit.BELOW)
"""Precedence of exit codes: unreadable results show nothing else, and wrong data is worse than slow data."""

UNSEEN = ("no-log", "unchecked", "some-ranks", "torn-lines", "evidence-missing")
"""Kinds of remarks that a pass names: not all of its evidence was seen."""


def judge(measurement: Measurement, expected: Expectation) -> Verdict:
    """Return the verdict on a measurement, whose `facts` are the evidence."""
    log = measurement.log
    found = [
        *measurement.findings,
        *checks.completeness(measurement),
        *checks.operations(measurement, expected),
        *checks.wrong_data(measurement),
        *checks.unchecked(measurement, expected),
        *checks.transport(measurement, expected),
        *checks.same_run(measurement),
        *checks.covered(measurement, expected),
    ]
    sound = []
    for run in measurement.runs:
        if not (run.rows or run.guarded):
            continue
        contradictions = checks.disagreements(run, expected.ranks)
        found += contradictions
        found += checks.ranks(run, log, expected)
        found += checks.hosts(run, log, expected)
        found += checks.gpus(run, expected)
        found += checks.times(run)
        if not contradictions:
            sound.append(run)
            found += checks.possible(run, log, expected)
    comparisons, compared = checks.bandwidth(sound, log, expected)
    found = _with_cause(list(dict.fromkeys([*found, *compared])))
    gating = [comparison for comparison in comparisons if comparison.confidence != "low"]
    if not gating and not deciding(found) and all(finding.kind != "no-baseline" for finding in found):
        found.append(checks.no_baseline(expected.ops or ("what was measured",), expected))
    code = deciding(found)
    slow = next((finding.text for finding in found if finding.kind == "slow"), None)
    if code:
        reason = next(finding.text for finding in found if finding.code == code)
    elif slow is not None:
        reason = "; ".join([slow, *(finding.text for finding in found if finding.kind == THROTTLED)])
    elif gating:
        least = min(gating, key=lambda comparison: comparison.share)
        reason = (
            f"{least.op} {format_size(least.size)}: {least.measured:.1f} GB/s,"
            f" {least.share:.1%} of {least.expected:g} GB/s ({least.source})"
        )
    else:
        reason = "nothing is wrong, and no published figure shows whether it is fast: it passes because of --no-floor"
    if not code:
        reason = "; ".join([reason, *(finding.text for finding in found if finding.kind in UNSEEN)])
    return Verdict(
        code=code,
        outcome="fail" if code else "warn" if slow is not None else "pass",
        reason=reason,
        machine=expected.machine,
        findings=found,
        comparisons=comparisons,
    )


def judge_texts(results: str | None, logs: Sequence[str], expected: Expectation) -> Verdict:
    """Judge the text of a results file and of logs. Logs without results can fail, but not pass."""
    op = expected.ops[0] if len(expected.ops) == 1 else None
    return judge(measurement_of_texts(results, logs, op, limits_of(expected.machine)), expected)


def verdict_of(result: BenchResult, machine: str | None, no_floor: bool = False) -> Verdict:
    """Judge a finished run of this program on the machines of its stack.

    Without a machine type (`local`), or with one that has no RDMA NIC, there is no fabric to judge: the verdict is the
    driver's, on correctness. A run on a fabric without a machine type has no baseline, and its NCCL has to use the RDMA
    NICs that the nodes have.
    Raises `WorkloadError` for a machine type that is unknown or cannot be judged.
    """
    rdma = machine is None or machine_named(machine).rdma
    if machine is not None and rdma and result.world is not None:
        nodes, transport = result.world.nodes, result.spec.transport
        expected = Expectation(machine=machine, nodes=nodes, transport=transport, no_floor=no_floor)
        return judge(measurement_of_result(result, limits_of(machine)), expected)
    code, reason = result.exit_code, result.reason
    findings = [] if result.evidence is None else list(node_problems(result.evidence))
    transport, world = result.spec.transport, result.world
    if transport is not None and world is not None and world.nodes > 1 and result.backend == "nccl":
        log = None if result.evidence is None else result.evidence.log
        findings += problems(log, nodes=world.nodes, nics=None, network=network_of(transport), ranks=world.ranks)
    if not code and (code := deciding(findings)):
        reason = next(finding.text for finding in findings if finding.code)
    elif not code and result.proves == "fabric" and rdma and not no_floor:
        code = Exit.BELOW
        reason = "no baseline: the machine type is not known; pass --no-floor to skip it"
        findings.append(failure("no-baseline", reason, Exit.BELOW))
    elif not code:
        fabric = result.proves == "fabric" and rdma
        reason += "; judged without a machine's figures" if fabric else "; no fabric to judge"
        reason += "" if rdma else f": a {machine} has no RDMA NIC"
    return Verdict(
        code=code,
        outcome="fail" if code else "pass",
        reason=reason,
        machine=machine if rdma else None,
        findings=findings,
        comparisons=[],
    )


def judged(result: BenchResult, machine: str | None) -> BenchResult:
    """Return the result with its verdict, which sets the run's exit code and reason if it fails.

    Raises `WorkloadError` for a machine type that cannot be judged.
    """
    verdict = verdict_of(result, machine, no_floor=result.spec.no_floor)
    update: dict[str, Any] = {"verdict": verdict}
    if verdict.code:
        update |= {"exit_code": verdict.code, "reason": verdict.reason}
    elif machine is not None and not result.exit_code:
        update |= {"reason": verdict.reason}
    return result.model_copy(update=update)


def _with_cause(found: list[EvidenceFinding]) -> list[EvidenceFinding]:
    """Return the findings; throttled GPUs fail a run that is too slow, because it does not show the fabric then."""
    if all(finding.kind != "below" for finding in found):
        return found
    why = "the figures below their floor do not show the fabric"
    return [failure(one.kind, f"{one.text}; {why}") if one.kind == THROTTLED else one for one in found]


def deciding(findings: Sequence[EvidenceFinding]) -> int:
    """Return the exit code of all findings together."""
    codes = {finding.code for finding in findings}
    return next((int(code) for code in ORDER if code in codes), int(Exit.OK))
