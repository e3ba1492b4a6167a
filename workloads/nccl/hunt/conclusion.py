"""From a search's verdict to what is said and done: exit code, severity, the next step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workloads.exits import Exit
from workloads.nccl.hunt import plan, result
from workloads.nccl.hunt.plan import Severity
from workloads.nccl.hunt.search import Verdict

ISOLATE_BELOW = 0.5  # share of the reference from which on a unit spoils every job that it is in

SAID = {
    "slow": "slow on the network",
    "unsteady": "slow on the network from time to time",
    "hang": "does not answer in time",
    "wrong": "delivers wrong data",
    "error": "breaks the tests that it is in",
    "burn": "computes too slowly",
    "intra": "slow among its own ranks",
}


def severity(accused: plan.Accused) -> Severity:
    """isolate: no job must meet it again. drain: when its jobs are done."""
    if accused.fault in ("wrong", "hang", "error"):
        return "isolate"
    return "isolate" if accused.share is not None and accused.share < ISOLATE_BELOW else "drain"


def action(accused: plan.Accused, unit: result.Unit) -> str:
    """What to do next, for whoever runs the cluster."""
    first = "cordon it now" if severity(accused) == "isolate" else "drain it"
    match accused.fault:
        case "burn":
            then = "look for throttling and ECC errors (nvidia-smi -q -d PERFORMANCE,ECC), then replace it"
        case "intra":
            then = "check NVLink (nvidia-smi nvlink -s) and the PCIe topology (nvidia-smi topo -m), then replace it"
        case _ if accused.rails:
            rails = ", ".join(f"{rail}{_nic(unit, rail)}" for rail in accused.rails)
            then = f"check link, cable and error counters of rail {rails}, then replace the node"
        case _ if accused.rails == []:
            then = "each rail alone is well: check PCIe (lspci -vv, link width), IOMMU and ACS, then replace the node"
        case _:
            then = "check its NICs' links and error counters and its driver's log, then replace it"
    return f"{first}; {then}"


def accused(one: plan.Accused, units: Sequence[result.Unit]) -> result.Accused:
    """An accused unit with its evidence in words."""
    unit = units[one.unit]
    return result.Accused(
        unit=one.unit,
        name=unit.name,
        fault=one.fault,
        severity=severity(one),
        share=None if one.share is None else round(one.share, 4),
        rails=one.rails,
        nics=[nic for rail in one.rails or [] if (nic := _nic(unit, rail).strip(" ()"))],
        tests=[outcome.number for outcome in one.evidence],
        partners=[list(partners) for partners in one.partners if partners],
        text=SAID[one.fault],
        action=action(one, unit),
    )


def test(outcome: plan.Outcome) -> result.Test:
    probe = outcome.probe
    return result.Test(
        number=outcome.number,
        round=outcome.round,
        kind=probe.kind,
        stage=probe.stage,
        units=list(probe.units),
        rail=probe.rail,
        shifted=probe.shifted,
        alone=outcome.alone,
        samples=[_rounded(sample) for sample in outcome.samples],
        value=None if outcome.value is None else _rounded(outcome.value),
        reference=None if outcome.reference is None else _rounded(outcome.reference),
        share=None if outcome.share is None else round(outcome.share, 4),
        limit=outcome.limit or None,
        failed=outcome.failed,
        unsteady=outcome.unsteady,
        broken=outcome.broken,
        detail=outcome.detail,
    )


def parts(verdict: Verdict, units: Sequence[result.Unit]) -> dict[str, Any]:
    """The parts of a HuntResult that a verdict fills."""
    code, reason = conclude(verdict, [unit.name for unit in units])
    return {
        "exit_code": int(code),
        "reason": reason,
        "units": list(units),
        "tests": [test(outcome) for outcome in verdict.outcomes],
        "accused": [accused(one, units) for one in verdict.accused],
        "findings": [
            result.Finding(
                kind=finding.kind,
                units=list(finding.units),
                tests=[outcome.number for outcome in finding.evidence],
                text=finding.text,
            )
            for finding in verdict.findings
        ],
        "network_tests": verdict.tests,
        "rail_tests": verdict.rail_tests,
        "rounds": verdict.rounds,
    }


def conclude(verdict: Verdict, names: Sequence[str]) -> tuple[Exit, str]:
    """The exit code and one line. The gravest fault decides: wrong data, then a hang, then what is slow."""
    cost = f"{verdict.tests} tests in {verdict.rounds} rounds"
    if verdict.clean:
        remark = f", {len(verdict.findings)} that came once and not again" if verdict.findings else ""
        return Exit.OK, f"nobody is accused: {len(names)} units, {cost}{remark}"
    told = [f"{names[one.unit]} {SAID[one.fault]}" for one in verdict.accused]
    told += [
        f"{finding.kind}: {', '.join(names[unit] for unit in finding.units[:4]) or 'the whole fleet'}"
        for finding in verdict.findings
        if finding.kind != "intermittent"
    ]
    faults = {one.fault for one in verdict.accused}
    faults |= {
        "wrong" if outcome.broken == "wrong" else "hang"
        for finding in verdict.findings
        if finding.kind == "undecided"
        for outcome in finding.evidence
        if outcome.broken
    }
    code = Exit.WRONG_DATA if "wrong" in faults else Exit.HANG if faults & {"hang", "error"} else Exit.BELOW
    return code, f"{'; '.join(told)} ({cost})"


def _nic(unit: result.Unit, rail: int) -> str:
    """The rail's RDMA device, where the devices are as many as they must be to be told by their order."""
    return f" ({unit.nics[rail]})" if rail < len(unit.nics) and len(unit.nics) in (8, 16) else ""


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
